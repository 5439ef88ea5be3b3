"""Schedules of django-q, kept as jobs of the app."""

from __future__ import annotations

import calendar
from datetime import date, datetime
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.app.declaring.task import Task
from mainspring.core.instants import from_us, to_us
from mainspring.core.job import Job
from mainspring.errors import near
from mainspring.tasks import intended
from mainspring.tasks.options import JOB_OPTIONS, find_task, read_options, with_options
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.combining import OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.cron.crontab import crontab_fields
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.util import convert_to_datetime

__all__ = ["Schedule", "schedule"]

MOST_REPEATS: Final = 100_000


class Schedule:
    """Constants for the types of schedules."""

    ONCE = "O"
    MINUTES = "I"
    HOURLY = "H"
    DAILY = "D"
    WEEKLY = "W"
    BIWEEKLY = "BW"
    MONTHLY = "M"
    BIMONTHLY = "BM"
    QUARTERLY = "Q"
    YEARLY = "Y"
    CRON = "C"


_DAYS: Final = {Schedule.DAILY: 1, Schedule.WEEKLY: 7, Schedule.BIWEEKLY: 14}
_MONTHS: Final = {Schedule.MONTHLY: 1, Schedule.BIMONTHLY: 2, Schedule.QUARTERLY: 3, Schedule.YEARLY: 12}
_TYPES: Final = {name: value for name, value in vars(Schedule).items() if name.isupper()}


def schedule(
    func: Any,
    /,
    *args: Any,
    name: str | None = None,
    hook: Any = None,
    schedule_type: str = Schedule.ONCE,
    minutes: int | None = None,
    repeats: int = -1,
    next_run: datetime | None = None,
    cron: str | None = None,
    cluster: str | None = None,
    intended_date_kwarg: str | None = None,
    **kwargs: Any,
) -> Job:
    """Schedule a function; return the job, whose id is `name` if one is given.

    The first run is at `next_run` (default: now, or a cron schedule's next time). The others follow by the wall clock
    of the app's zone. A name that exists already raises ConflictingIdError.
    """
    asked = read_options(kwargs, hook=hook, cluster=cluster)
    app, changes = asked.app, dict(asked.changes)
    for option in ("group", "delay", "at", "id", "unique"):
        if changes.get(option) is not None:
            raise TypeError(f"a schedule takes no {option}; its runs are found by app.find(job=name)")
    if asked.chain:
        raise TypeError("a schedule takes no chain; schedule a function that calls async_chain")
    job_options = {option: changes.pop(option) for option in JOB_OPTIONS & changes.keys()}
    task = with_options(app, find_task(app, func), changes)
    if intended_date_kwarg is not None:
        task, args = _with_intended_date(app, task, intended_date_kwarg, args, asked.keywords)
    start, trigger = _plan(app, schedule_type, minutes, cron, next_run, repeats)
    shown = name or task.defaults.name
    return app.add_job(task, trigger, args, asked.keywords, name, shown, start, **job_options)


def _with_intended_date(
    app: Mainspring, task: Task[..., Any], keyword: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Task[..., Any], tuple[Any, ...]]:
    """Return a task, and its arguments, that calls another task with the time its run was due."""
    if not isinstance(keyword, str) or not keyword.isidentifier():
        raise ValueError(f"intended_date_kwarg names a keyword argument, which {keyword!r} cannot")
    task.call(*args, **kwargs, **{keyword: ""})  # raises if the arguments do not fit
    reference = find_task(app, task.name).name  # raises if a worker could not find the function
    intended.register(app)
    caller = app.tasks.find(intended.CALL)
    named = task.options(name=task.defaults.name or task.__name__).defaults
    return Task(app, caller.func, caller.name, named), (keyword, reference, *args)


# -- when ----------------------------------------------------------------------------------------------------------


def _plan(
    app: Mainspring, kind: str, minutes: int | None, cron: str | None, next_run: Any, repeats: int
) -> tuple[datetime, BaseTrigger]:
    """Return the first fire and the trigger of a schedule; a number of repeats becomes the trigger's end."""
    if kind not in _TYPES.values():
        raise ValueError(f"there is no schedule type {kind!r}{near(str(kind), _TYPES)}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or not -1 <= repeats <= MOST_REPEATS or not repeats:
        raise ValueError(f"repeats is -1 (for ever) or a number from 1 to {MOST_REPEATS}, not {repeats!r}")
    if minutes is not None and (isinstance(minutes, bool) or not isinstance(minutes, int) or minutes < 1):
        raise ValueError(f"minutes must be a whole number of at least 1, not {minutes!r}")
    if kind == Schedule.CRON and not cron:
        raise ValueError("a schedule of the type CRON needs cron='minute hour day month weekday'")
    now = from_us(app.now()).astimezone(app.timezone)
    start = convert_to_datetime(next_run, app.timezone, "next_run") or now
    start = start.astimezone(app.timezone)
    if kind == Schedule.ONCE or repeats == 1:
        if kind == Schedule.CRON and next_run is None:
            start = first_of(make_trigger(app, kind, minutes, cron, start, None), start, cron)
        return start, DateTrigger(start, timezone=app.timezone)
    trigger = make_trigger(app, kind, minutes, cron, start, None)
    if kind == Schedule.CRON and next_run is None:
        start = first_of(trigger, start, cron)
    if repeats > 0:
        trigger = make_trigger(app, kind, minutes, cron, start, last_of(trigger, start, repeats))
    return start, trigger


def first_of(trigger: BaseTrigger, start: datetime, cron: str | None) -> datetime:
    fire = trigger.first_fire(to_us(start))
    if fire is None:
        raise ValueError(f"the crontab expression {cron!r} never comes due")
    return from_us(fire).astimezone(start.tzinfo)


def last_of(trigger: BaseTrigger, start: datetime, repeats: int) -> datetime | None:
    """Return the time of the last of `repeats` fires."""
    fire: int | None = to_us(start)
    for _ in range(repeats - 1):
        fire = None if fire is None else trigger.next_fire(fire, fire)
    return None if fire is None else from_us(fire).astimezone(start.tzinfo)


def make_trigger(
    app: Mainspring, kind: str, minutes: int | None, cron: str | None, start: datetime, end: datetime | None
) -> BaseTrigger:
    zone = app.timezone
    if kind == Schedule.CRON:
        fields, either_day = crontab_fields(str(cron))
        options: dict[str, Any] = {**fields, "either_day": either_day}
        return CronTrigger(**options, end_date=end, timezone=zone)
    if kind in (Schedule.MINUTES, Schedule.HOURLY):
        length = (minutes or 1) if kind == Schedule.MINUTES else 60
        return IntervalTrigger(minutes=length, start_date=start, end_date=end, timezone=zone)
    if kind in _DAYS:
        return _calendar(start, end, days=_DAYS[kind])
    return _monthly(start, end, _MONTHS[kind])


def _calendar(start: datetime, end: date | None, **interval: int) -> BaseTrigger:
    return CalendarIntervalTrigger(
        **interval,
        hour=start.hour,
        minute=start.minute,
        second=start.second,
        start_date=start.date(),
        end_date=None if end is None else date(end.year, end.month, end.day),
        timezone=start.tzinfo,
    )


def _monthly(start: datetime, end: datetime | None, step: int) -> BaseTrigger:
    """Fire every `step` months on the day of the start, or on the last day of a month without that day."""
    if start.day <= 28:
        return _calendar(start, end, months=step)
    months = sorted({(start.month - 1 + step * n) % 12 + 1 for n in range(12)})
    short = [month for month in months if calendar.monthrange(2025, month)[1] < start.day]
    long = [month for month in months if month not in short]
    parts = [
        CronTrigger(
            month=",".join(map(str, chosen)),
            day=day,
            hour=start.hour,
            minute=start.minute,
            second=start.second,
            start_date=start,
            end_date=end,
            timezone=start.tzinfo,
        )
        for chosen, day in ((long, start.day), (short, "last"))
        if chosen
    ]
    return parts[0] if len(parts) == 1 else OrTrigger(parts)
