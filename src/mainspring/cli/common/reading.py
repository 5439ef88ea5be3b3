"""Read the arguments, durations, times and triggers that people type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import USAGE, CommandFailed, command, usage_errors
from mainspring.cli.common.target import stacked
from mainspring.core.instants import from_us
from mainspring.core.quantities import read_seconds, read_time, read_value
from mainspring.core.validation import check_queue
from mainspring.errors import TaskNotFound, near
from mainspring.triggers.zones import astimezone

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.declaring.task import Task
    from mainspring.triggers.base import BaseTrigger

__all__ = [
    "Length",
    "exclude_option",
    "find_task",
    "policy_of",
    "policy_options",
    "read_arguments",
    "read_excluding",
    "read_moment",
    "read_past",
    "read_queue",
    "read_trigger",
    "trigger_options",
]

_NAMED: Final = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)


class Length(click.ParamType):  # type: ignore[type-arg]
    """A duration in seconds, written as `90`, `90s` or `1h30m`."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return float(value)
        except ValueError:
            found = read_seconds(value)
        if found is None:
            self.fail(f"{value!r} is not a length of time; write 90s, 5m, 1h30m or 2d", param, ctx)
        return found


def read_queue(_: click.Context, __: click.Parameter, queue: str) -> str:
    """Check a queue name, as the callback of an option."""
    with usage_errors():
        return check_queue(queue)


def read_arguments(words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a call: `NAME=VALUE` by name, others by position; each value is JSON or else text."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        named = _NAMED.fullmatch(word)
        if named is None:
            args.append(read_value(word))
        elif named[1] in kwargs:
            raise CommandFailed(f"{named[1]} is given twice", code=USAGE)
        else:
            kwargs[named[1]] = read_value(named[2])
    return args, kwargs


def find_task(app: Mainspring, name: str) -> Task[..., Any]:
    """Return a task by name, with or without its module, or any function that may be called by name."""
    found = app.tasks.get(name)
    alike = [task for task in app.tasks if task.name.rpartition(":")[2] == name]
    if found is not None or len(alike) == 1:
        return found or alike[0]
    if alike:
        raise CommandFailed(
            f"{name!r} means several tasks: {', '.join(sorted(task.name for task in alike))}", code=USAGE
        )
    known = {task.name for task in app.tasks if not task.name.startswith("mainspring:")}
    if ":" not in name and "." not in name:
        if known:
            hint = near(name, known | {each.rpartition(":")[2] for each in known})
            raise CommandFailed(f"the app has no task {name!r}{hint}", command("tasks"))
        raise CommandFailed(
            f"a store does not know the tasks of its app, such as {name!r}; name the app",
            "mainspring tasks --app MODULE:APP",
            USAGE,
        )
    try:
        return app.as_task(name)
    except TaskNotFound as error:
        raise CommandFailed(str(error), command("tasks") if known else "mainspring tasks --app MODULE:APP") from None


def read_moment(text: str, now: int, zone: tzinfo) -> datetime:
    """Read a future time: `5m` or `in 5m` from now, the next occurrence of a time of day, or a date and time."""
    return _moment(text.strip().removeprefix("in "), now, zone, 1, "how long from now")


def read_past(text: str, now: int, zone: tzinfo) -> datetime:
    """Read a past time: `5m` or `5m ago`, the last occurrence of a time of day, or a date and time."""
    return _moment(text.strip().removesuffix("ago"), now, zone, -1, "how long ago")


def _moment(text: str, now: int, zone: tzinfo, direction: int, length_in_words: str) -> datetime:
    text = text.strip()
    try:
        return read_time(text, from_us(now, zone), direction)
    except (OverflowError, ValueError):
        raise CommandFailed(
            f"{text!r} is not a time; write {length_in_words} (5m, 1h30m), a time of day (14:00), or a date "
            "(2026-03-01T14:00)",
            code=USAGE,
        ) from None


# -- schedules -----------------------------------------------------------------------------------------------------


exclude_option: Final = click.option(
    "--exclude",
    multiple=True,
    metavar="WHEN",
    help="Do not fire then: 2026-12-24, 2026-12-24..2027-01-06, 12-25, sat,sun, 12:00-13:00, holidays.ics.",
)


def read_excluding(trigger: BaseTrigger, exclude: Sequence[str], zone: tzinfo, now: int) -> BaseTrigger:
    """Return a trigger with the exclusions of --exclude; `none` removes its existing ones."""
    from mainspring.plugins import without_excluded

    if not exclude:
        return trigger
    try:
        return without_excluded(trigger, None if exclude == ("none",) else list(exclude), zone, now)
    except (TypeError, ValueError) as error:
        raise CommandFailed(
            str(error), "mainspring cron '0 9 * * *' --exclude sat,sun --exclude 12-25", USAGE
        ) from None


trigger_options: Final = stacked(
    click.option("--cron", metavar="EXPR", help="Fire by a crontab expression, as in '0 3 * * *'."),
    click.option("--every", type=Length(), metavar="LENGTH", help="Fire every 90s, 5m, 1h30m, 2d."),
    click.option("--at", metavar="TIME", help="Fire once: at 14:00, 2026-03-01T14:00, or 5m from now."),
    click.option("--timezone", "--tz", metavar="ZONE", help="The zone of --cron and --at; the app's if absent."),
    exclude_option,
)
"""Adds the options that say when a job fires."""


def read_trigger(
    app: Mainspring,
    cron: str | None,
    every: float | None,
    at: str | None,
    timezone: str | None,
    zone: tzinfo | None = None,
) -> BaseTrigger | None:
    """Make the trigger that the options describe; return None if none of them says when.

    Without --timezone, the trigger is in `zone`, or else in the app's zone.
    """
    given = [name for name, value in (("--cron", cron), ("--every", every), ("--at", at)) if value is not None]
    if len(given) > 1:
        raise CommandFailed(f"{' and '.join(given)} both say when; give one of them", code=USAGE)
    if not given and timezone is not None:
        raise CommandFailed("--timezone goes with --cron, --every or --at", code=USAGE)
    try:
        return _trigger(app, cron, every, at, (zone or app.timezone) if timezone is None else astimezone(timezone))
    except (TypeError, ValueError) as error:
        raise CommandFailed(str(error), 'mainspring cron "0 3 * * *"' if cron else "", USAGE) from None


def _trigger(
    app: Mainspring, cron: str | None, every: float | None, at: str | None, zone: tzinfo
) -> BaseTrigger | None:
    if cron is not None:
        from mainspring.triggers.cron import CronTrigger

        return CronTrigger.from_crontab(cron, zone)
    if every is not None:
        from mainspring.triggers.interval import IntervalTrigger

        if every <= 0:
            raise ValueError("--every is longer than nothing: write 90s, 5m, 1h30m or 2d")
        return IntervalTrigger(seconds=every, timezone=zone)
    if at is not None:
        from mainspring.triggers.date import DateTrigger

        return DateTrigger(read_moment(at, app.now(), zone), zone)
    return None


policy_options: Final = stacked(
    click.option("-q", "--queue", default=None, help="Its queue; the task's by default."),
    click.option("--priority", type=click.IntRange(-100, 100), default=None, help="From -100 to 100."),
    click.option("--retries", type=click.IntRange(0), default=None, help="Tries after a failure."),
    click.option("--run-timeout", type=Length(), default=None, help="Stop a run after this long."),
    click.option("--retention", type=Length(), default=None, help="Keep an ended run this long."),
)
"""Adds the options that say how a run is executed."""


def policy_of(
    queue: str | None,
    priority: int | None,
    retries: int | None,
    run_timeout: float | None,
    retention: float | None,
    **more: Any,
) -> dict[str, Any]:
    """Return the given options of a run, by the names that `task.options` takes."""
    named = {"queue": queue, "priority": priority, "retries": retries, "timeout": run_timeout, "retention": retention}
    return {name: value for name, value in (named | more).items() if value is not None}
