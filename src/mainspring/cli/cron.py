"""`mainspring cron`: what a crontab expression means, before it is deployed."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from mainspring.triggers.cron import CronTrigger

__all__ = ["cron"]


@click.command()
@click.argument("expression")
@click.option("--timezone", "--tz", default="UTC", show_default=True, help="Time zone, such as Europe/Berlin.")
@click.option("-n", "--count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many times.")
@click.option("--after", default=None, help="Begin after this time (ISO 8601) instead of now.")
def cron(expression: str, timezone: str, count: int, after: str | None) -> None:
    """Show the next fire times of a crontab EXPRESSION such as "*/5 9 * * mon-fri" or "@daily"."""
    try:
        trigger = CronTrigger.from_crontab(expression, timezone)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    try:
        now = datetime.now(UTC) if after is None else datetime.fromisoformat(after)
    except ValueError:
        raise click.ClickException(f"--after {after!r} is not a time; write it as 2026-03-29T01:30") from None
    if now.tzinfo is None:
        now = now.replace(tzinfo=trigger.timezone)
    previous = None
    for shown in range(count):
        fire = trigger.get_next_fire_time(previous, now)
        if fire is None:
            if not shown:
                raise click.ClickException(f"{expression!r} never fires")
            return
        click.echo(f"{fire:%a %Y-%m-%d %H:%M:%S %Z}")
        previous = now = fire
