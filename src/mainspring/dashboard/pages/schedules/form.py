"""The form to add or edit a job: while the visitor types, it says in words when the job would fire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from os import PathLike
from typing import Any, Final, NamedTuple

from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.quantities import read_seconds, read_value
from mainspring.core.run import Call
from mainspring.core.schedules.linting import ScheduleIssue, check_possible, issues_of
from mainspring.core.schedules.upcoming import Fire, preview
from mainspring.dashboard.looks.values import arguments_text
from mainspring.dashboard.page import Action, BadParameter, Deed, Page, Question, View
from mainspring.dashboard.pages.schedules.actions import job_of
from mainspring.dashboard.schedule import expression_of
from mainspring.plugins import without_excluded
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.excluding import ExcludingTrigger, like, plain_trigger
from mainspring.triggers.exclusions.reading import exclusions_of
from mainspring.triggers.exclusions.rules import Exclusions
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import astimezone

__all__ = ["ACTIONS", "PAGE"]

FIRES_SHOWN: Final = 5
MOST_ARGUMENT_CHARS: Final = 100_000
_OVERLAPS: Final = {
    "skip": "is missed",
    "queue": "waits until an earlier run has ended",
    "cancel_other": "cancels the oldest run and takes its place",
}
_KINDS: Final = {"cron": "by a crontab line", "every": "every so often", "at": "once"}
_NAMED: Final = re.compile(r"([^\W\d]\w*)\s*=(.*)", re.DOTALL)


class Forecast(NamedTuple):
    """A schedule in words, its next fires, and likely mistakes in it; or the reason why it cannot be read."""

    words: str = ""
    fires: list[Fire] = []  # noqa: RUF012 - never changed
    issues: list[ScheduleIssue] = []  # noqa: RUF012
    problem: str = ""


def read_trigger(view: View, given: Mapping[str, str], zone: tzinfo | None = None) -> BaseTrigger:
    """Make the trigger that a form describes; raise ValueError with a sentence."""
    kind, text = given.get("kind", "cron"), given.get("when", "").strip()
    named = given.get("timezone", "").strip()
    place = (astimezone(named) if named else None) or zone or view.app.timezone
    if not text:
        raise BadParameter("say when it fires")
    if kind == "cron":
        return CronTrigger.from_crontab(text, place)
    if kind == "every":
        seconds = read_seconds(text)
        if seconds is None or seconds <= 0:
            raise BadParameter(f"{text!r} is not a length of time; write 90s, 5m, 1h30m or 2d")
        return IntervalTrigger(seconds=seconds, timezone=place)
    if kind != "at":
        raise BadParameter(f"{kind!r} is no kind of schedule; it can be {', '.join(_KINDS)}")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(f"{text!r} is not a date; write 2026-03-01T14:00") from None
    return DateTrigger(moment if moment.tzinfo else moment.replace(tzinfo=place), place)


def _without_excluded(view: View, trigger: BaseTrigger, given: Mapping[str, str]) -> BaseTrigger:
    exclude = read_exclude(given)
    if exclude is None:
        return trigger
    return without_excluded(trigger, exclude, trigger.timezone or view.app.timezone, view.now)


def forecast(view: View, given: Mapping[str, str], zone: tzinfo | None = None) -> Forecast:
    """Explain what a schedule means."""
    if not given.get("when", "").strip():
        return Forecast()
    try:
        trigger = _without_excluded(view, read_trigger(view, given, zone), given)
        check_possible(trigger)
    except (TypeError, ValueError) as error:
        return Forecast(problem=str(error))
    job = Job("preview", Call("preview"), trigger)
    fires = preview(job, view.now, FIRES_SHOWN, view.times.zone)
    issues = issues_of(job, view.now)
    return Forecast(trigger.describe(), fires, issues, "" if fires else "it would never fire")


def read_call_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a call, one per line: `NAME=VALUE` or a value by position; a value is JSON or else text."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for line in text[:MOST_ARGUMENT_CHARS].splitlines():
        if not line.strip():
            continue
        named = _NAMED.fullmatch(line.strip())
        if named is None:
            args.append(read_value(line.strip()))
        else:
            kwargs[named[1]] = read_value(named[2].strip())
    return args, kwargs


# -- the form ------------------------------------------------------------------------------------------------------


def _given(view: View, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the values to show in a form: those in the address, or else the job's."""
    return {name: view.text(name, default, 5000) for name, default in defaults.items()}


_EMPTY: Final = {
    "id": "", "task": "", "arguments": "", "kind": "cron", "when": "", "timezone": "", "queue": "", "retries": "",
    "timeout": "", "max_instances": "", "grace": "", "coalesce": "", "overlap": "", "exclude": "",
}  # fmt: skip


def _question(view: View, title: str, button: str, given: dict[str, str], job: Job | None) -> Question:
    note = ""
    if job is not None and job.declared is not None:
        note = "It is declared in code: a changed declaration resets it when the app starts."
    fields = {
        "given": given,
        "kinds": list(_KINDS.items()),
        "overlaps": list(_OVERLAPS.items()),
        "excluded": _excluded_words(job),
        "tasks": sorted(task.name for task in view.tasks),
        "forecast": forecast(view, given, None if job is None else job.trigger.timezone),
        "job": job,
        "shown_arguments": "" if job is None else arguments_text(job.args, job.kwargs, None),
        "zone": str(view.app.timezone),
    }
    text = "A job calls a task on a schedule. Fields that you leave empty are as the task says."
    return Question(title, text, button, note=note, template="fields/job.html", fields=fields)


def _excluded_words(job: Job | None) -> str:
    """Return a job's exclusions in words; empty if it has none."""
    return job.trigger.exclude.describe() if job is not None and isinstance(job.trigger, ExcludingTrigger) else ""


def read_exclude(given: Mapping[str, str]) -> Exclusions | None:
    """Read the times to exclude, one per line; None if the form does not mention them."""
    lines = [line.strip() for line in given.get("exclude", "").splitlines() if line.strip()]
    if not lines:
        return None
    return Exclusions() if lines == ["none"] else exclusions_of(lines, _no_file)


def _no_file(name: str | PathLike[str]) -> Exclusions:
    """Refuse to read a file: a visitor must not choose which files this machine opens."""
    raise BadParameter(f"exclude: {str(name)[:50]!r}: files can be named in code only")


def ask_add(view: View) -> Question:
    """Show the form for a new job."""
    return _question(view, "Add a job", "Add job", _given(view, _EMPTY), None)


def ask_edit(view: View) -> Question:
    """Show the form with a job's values."""
    job = job_of(view)
    known = {**_EMPTY, "queue": job.queue, "max_instances": str(job.max_instances)}
    known |= {"coalesce": "yes" if job.coalesce else "no", "retries": str(job.policy.retries)}
    known |= {"timeout": "" if job.policy.timeout is None else f"{job.policy.timeout:g}s"}
    known |= {"grace": "any" if job.misfire_grace_time is None else f"{job.misfire_grace_time:g}s"}
    known |= {"overlap": job.overlap} | _trigger_fields(job.trigger)
    return _question(view, f"Edit “{job.id}”", "Save", _given(view, known), job)


def _trigger_fields(trigger: BaseTrigger) -> dict[str, str]:
    """Return a trigger's form fields; they are empty, and the trigger stays, if the form cannot express it."""
    zone = "" if trigger.timezone is None else str(trigger.timezone)
    expression, trigger = expression_of(trigger), plain_trigger(trigger)
    if isinstance(trigger, CronTrigger) and "[" not in expression:
        return {"kind": "cron", "when": expression, "timezone": zone}
    if isinstance(trigger, IntervalTrigger):
        return {"kind": "every", "when": f"{trigger.interval.total_seconds():g}s", "timezone": zone}
    return {"kind": "cron", "when": "", "timezone": zone}


def _options(form: Mapping[str, str]) -> dict[str, Any]:
    """Read the options of a form, without empty fields."""
    found: dict[str, Any] = {}
    for name, least in (("retries", 0), ("max_instances", 1)):
        text = form.get(name, "").strip()
        if text:
            if not re.fullmatch(r"\d{1,6}", text) or int(text) < least:
                raise BadParameter(f"{name}: {text!r} is no whole number from {least}")
            found[name] = int(text)
    if form.get("queue", "").strip():
        found["queue"] = form["queue"].strip()
    if form.get("timeout", "").strip():
        found["timeout"] = _length(form["timeout"], "timeout")
    grace = form.get("grace", "").strip()
    if grace:
        found["misfire_grace_time"] = None if grace == "any" else _length(grace, "late by")
    if form.get("coalesce") in ("yes", "no"):
        found["coalesce"] = form["coalesce"] == "yes"
    if form.get("overlap") in _OVERLAPS:
        found["overlap"] = form["overlap"]
    return found


def _length(text: str, name: str) -> float:
    seconds = read_seconds(text.strip())
    if seconds is None:
        raise BadParameter(f"{name}: {text!r} is not a length of time; write 90s, 5m or 1h30m")
    return seconds


def add(view: View, form: Mapping[str, str]) -> Deed:
    """Add a job."""
    trigger = _without_excluded(view, read_trigger(view, form), form)
    check_possible(trigger)
    if trigger.next_fire(None, view.now) is None:
        raise BadParameter("it would never fire")
    args, kwargs = read_call_arguments(form.get("arguments", ""))
    task = form.get("task", "").strip()
    if not task:
        raise BadParameter("say which task it calls")
    job = view.app.add_job(task, trigger, args, kwargs, form.get("id", "").strip() or None, **_options(form))
    return Deed(f"{job.id} is added", view.of("job", job.id), go=view.path_of("job", job.id))


def edit(view: View, form: Mapping[str, str]) -> Deed:
    """Change only the fields of a job that the form changes."""
    job = job_of(view)
    changes = {name: value for name, value in _options(form).items() if value != _present(job, name)}
    if form.get("arguments", "").strip():
        changes["args"], changes["kwargs"] = read_call_arguments(form["arguments"])
    known = _trigger_fields(job.trigger)
    if form.get("when", "").strip() and any(form.get(name, "").strip() != known[name] for name in known):
        trigger = like(read_trigger(view, form, job.trigger.timezone), job.trigger)
        trigger = _without_excluded(view, trigger, form)
        check_possible(trigger)
        first = trigger.next_fire(None, view.now)
        if first is None:
            raise BadParameter("it would never fire")
        changes["trigger"] = trigger
        if job.at is not None:  # a paused job stays paused
            changes["next_run_time"] = from_us(first)
    elif (exclude := read_exclude(form)) is not None:
        changes["exclude"] = exclude
    if not changes:
        return Deed(f"{job.id} stays as it is", go=view.path_of("job", job.id))
    view.app.modify_job(job.id, **changes)
    return Deed(f"{job.id} is changed", go=view.path_of("job", job.id))


def _present(job: Job, name: str) -> Any:
    return getattr(job.policy, name) if name in ("retries", "timeout") else getattr(job, name)


def read_preview(view: View) -> dict[str, Any]:
    """Explain a schedule for the form while the visitor types."""
    return {
        "forecast": forecast(view, {name: view.text(name, "", 300) for name in ("kind", "when", "timezone", "exclude")})
    }


ACTIONS = (
    Action("job.add", "/jobs/new", add, ask_add),
    Action("job.edit", "/jobs/{id:path}/edit", edit, ask_edit),
)
PAGE = Page("/jobs/preview", "jobs", "Preview", "parts/forecast.html", read_preview, actions=ACTIONS)
