"""`mainspring cron`: explain a crontab expression before it is deployed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import click

from mainspring.cli.common.failing import USAGE, CommandFailed
from mainspring.cli.common.output import echo, print_json
from mainspring.cli.common.reading import exclude_option, read_excluding
from mainspring.cli.common.target import json_option
from mainspring.core.instants import from_us, to_us
from mainspring.core.schedules.upcoming import fires_from
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.clock_notes import fire_note
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.zones import get_localzone

__all__ = ["cron"]


@click.command()
@click.argument("expression")
@click.option("--timezone", "--tz", default=None, help="Time zone, such as Europe/Berlin. By default this machine's.")
@click.option("-n", "--count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many times.")
@click.option("--after", default=None, help="Begin after this time (ISO 8601) instead of now.")
@exclude_option
@json_option
def cron(
    expression: str, timezone: str | None, count: int, after: str | None, exclude: tuple[str, ...], as_json: bool
) -> None:
    """Say in words what a crontab EXPRESSION means, and show its next fire times.

    A fire that a change of the local clock moves or repeats has a note, and one before which others are excluded.

    \b
    Examples:
      mainspring cron "*/5 9-17 * * mon-fri"
      mainspring cron @daily --tz Europe/Berlin -n 3
      mainspring cron "0 9 * * *" --exclude weekends --exclude 12-25
    """
    plain = _trigger(expression, timezone)
    start = _start(after, plain)
    trigger = read_excluding(plain, exclude, plain.timezone, start)
    fires = list(islice(fires_from(trigger, trigger.next_fire(None, start)), count))
    notes = [_note(trigger, fire, before) for fire, before in zip(fires, [None, *fires], strict=False)]
    if as_json:
        times = [{"time": from_us(at, plain.timezone), "note": note} for at, note in zip(fires, notes, strict=True)]
        print_json({"words": trigger.describe(), "timezone": str(trigger.timezone), "fires": times})
    else:
        echo(trigger.describe())
        for fire, note in zip(fires, notes, strict=True):
            echo(f"{from_us(fire, plain.timezone):%a %Y-%m-%d %H:%M:%S %Z}{f'  {note}' if note else ''}")
    if not fires:
        raise CommandFailed(f"{expression!r} never fires")


def _trigger(expression: str, timezone: str | None) -> CronTrigger:
    try:
        return CronTrigger.from_crontab(expression, timezone or get_localzone())
    except ValueError as error:
        raise CommandFailed(str(error), 'mainspring cron "*/5 9 * * mon-fri" --tz Europe/Berlin', USAGE) from None


def _start(after: str | None, trigger: CronTrigger) -> int:
    try:
        start = datetime.now(UTC) if after is None else datetime.fromisoformat(after)
    except ValueError:
        raise CommandFailed(f"--after {after!r} is not a time; write it as 2026-03-29T01:30", code=USAGE) from None
    return to_us(start if start.tzinfo is not None else start.replace(tzinfo=trigger.timezone))


def _note(trigger: BaseTrigger, fire: int, before: int | None) -> str | None:
    note = fire_note(trigger, fire, before)
    return None if note is None else note.text
