"""Make the job for a schedule row."""

from __future__ import annotations

import ast
import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.utils.timezone import get_current_timezone, is_naive, make_aware
from msgspec.structs import replace

from mainspring.app.declaring.task import Options, Task, reference_of
from mainspring.core.instants import from_us, to_us
from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.errors import TaskNotFound
from mainspring.tasks import intended
from mainspring.tasks.options import JOB_OPTIONS, CallOptions, find_task, read_options, with_options
from mainspring.tasks.scheduling import MOST_REPEATS, first_of, last_of, make_trigger
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.date import DateTrigger

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["PREFIX", "following", "job_id_of", "make_job", "pk_of", "read_args", "read_kwargs"]

PREFIX: Final = "schedule:"
"""The prefix of a schedule's job id; the row's key follows it."""
ONCE: Final = "O"
CRON: Final = "C"

log = logging.getLogger("mainspring.django")


def job_id_of(pk: Any) -> str:
    """Return the id of a row's job."""
    return f"{PREFIX}{pk}"


def pk_of(job_id: str) -> int | None:
    """Return the key of the row that a job belongs to, or None if it belongs to none."""
    pk = job_id.removeprefix(PREFIX)
    return int(pk) if job_id.startswith(PREFIX) and pk.isdecimal() else None


def make_job(app: Mainspring, row: Any, stored: Job | None, *, coalesce: bool) -> Job | None:
    """Return the job that a row describes; None for a paused or used-up row.

    `stored` is the row's current job: a schedule that continues keeps the day of the month on which it began.
    """
    if row.next_run is None or row.repeats == 0:
        return None
    at, when = _moment(app, row.next_run), _digest(row.schedule_type, row.minutes, row.cron, str(app.timezone))
    anchor = _anchor(stored, when, at)
    trigger, end = _trigger(app, row, anchor, at)
    asked, task, call = _call(app, row)
    job_options = {name: asked.changes[name] for name in JOB_OPTIONS & asked.changes.keys()}
    job = Job(
        job_id_of(row.pk),
        call,
        trigger,
        executor="queue",
        queue=task.defaults.queue,
        policy=task.defaults.policy,
        at=to_us(at),
        **{"coalesce": coalesce, **job_options},
    )
    what = _digest(call.func, call.args, sorted(call.kwargs.items()), call.name, task.defaults, sorted(job_options))
    job.declared = f"{when}.{what}.{to_us(anchor)}.{'' if end is None else to_us(end)}"
    return job


def following(app: Mainspring, row: Any, after: datetime, stored: Job | None = None) -> datetime | None:
    """Return the row's first fire after `after`, or None."""
    start = _moment(app, after)
    if row.schedule_type == CRON:
        return first_of(make_trigger(app, CRON, None, row.cron, start, None), start, row.cron)
    if row.schedule_type == ONCE:
        return None
    when = _digest(row.schedule_type, row.minutes, row.cron, str(app.timezone))
    trigger = make_trigger(app, row.schedule_type, row.minutes, None, _anchor(stored, when, start), None)
    found = trigger.next_fire(to_us(start), to_us(start))
    return None if found is None else from_us(found)


def _moment(app: Mainspring, value: datetime) -> datetime:
    """Return a time in the app's zone; read a naive time in Django's zone."""
    return (make_aware(value, get_current_timezone()) if is_naive(value) else value).astimezone(app.timezone)


def _digest(*said: Any) -> str:
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _anchor(stored: Job | None, when: str, at: datetime) -> datetime:
    """Return the time from which a schedule counts: the stored job's if the schedule merely continues."""
    if stored is not None and stored.declared is not None and stored.at == to_us(at):
        known, _, rest = stored.declared.partition(".")
        anchor = rest.split(".")[1:2]
        if known == when and anchor and anchor[0].lstrip("-").isdecimal():
            return from_us(int(anchor[0])).astimezone(at.tzinfo)
    return at


def _trigger(app: Mainspring, row: Any, anchor: datetime, at: datetime) -> tuple[BaseTrigger, datetime | None]:
    """Return the trigger of a row, and its last fire if the row limits its repeats."""
    if row.schedule_type == ONCE:
        return DateTrigger(at, timezone=app.timezone), None
    if row.schedule_type == CRON and not row.cron:
        raise ValueError("a schedule of the type Cron needs a cron expression: minute hour day month weekday")
    trigger = make_trigger(app, row.schedule_type, row.minutes, row.cron, anchor, None)
    if not 0 < row.repeats <= MOST_REPEATS:
        return trigger, None
    end = last_of(trigger, at, row.repeats)
    return make_trigger(app, row.schedule_type, row.minutes, row.cron, anchor, end), end


# -- what to call --------------------------------------------------------------------------------------------------


def _call(app: Mainspring, row: Any) -> tuple[CallOptions, Task[..., Any], Call]:
    args, kwargs = read_args(row.args), read_kwargs(row.kwargs)
    asked = read_options(kwargs, app, cluster=row.cluster or None)
    changes = {name: value for name, value in asked.changes.items() if name not in JOB_OPTIONS}
    hook = changes.pop("hook", None) or row.hook
    task = with_options(app, _task(app, row.func), changes)
    if hook:
        policy = replace(task.defaults.policy, hook=_task(app, hook).name)
        task = Task(app, task.func, task.name, replace(task.defaults, policy=policy))
    name = row.name or task.defaults.name or task.__name__
    if row.intended_date_kwarg:
        args = (row.intended_date_kwarg, task.name, *args)
        return asked, task, Call(intended.CALL, args, asked.keywords, name)
    return asked, task, Call(task.name, args, asked.keywords, name)


def _task(app: Mainspring, func: str) -> Task[..., Any]:
    """Return the task of a function; accept a function that only the workers can import."""
    try:
        return find_task(app, func)
    except TaskNotFound as error:
        log.warning("a schedule names %r, which cannot be found here: %s", func, error)
        return Task(app, _unknown, reference_of(func), Options(name=str(func).rpartition(".")[2]))


def _unknown(*args: Any, **kwargs: Any) -> None:
    """Stand in for a function that this process cannot import; nothing calls it."""


def read_args(text: str | None) -> tuple[Any, ...]:
    """Return the arguments in a row's text: `1, 2, 'John'`."""
    if not text or not text.strip():
        return ()
    try:
        value = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"the arguments {text!r} are no literals such as 1, 2, 'John': {error}") from error
    return value if isinstance(value, tuple) else (value,)


def read_kwargs(text: str | None) -> dict[str, Any]:
    """Return the keyword arguments in a row's text: `x=1, y='John'`, or a dict."""
    if not text or not text.strip():
        return {}
    try:
        if text.strip().startswith("{"):
            value = ast.literal_eval(text.strip())
        else:
            call: Any = ast.parse(f"f({text})", mode="eval").body
            if call.args:
                raise ValueError("a value without a name")
            value = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, MemoryError, RecursionError, AttributeError) as error:
        raise ValueError(f"the keyword arguments {text!r} are not of the form x=1, y='John': {error}") from error
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"the keyword arguments {text!r} are not of the form x=1, y='John'")
    return dict(value)
