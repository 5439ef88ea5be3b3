"""`mainspring simulate`: show what the schedules would do, before they are deployed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed, command
from mainspring.cli.common.output import Column, echo, length, print_json, table
from mainspring.cli.common.target import json_option, opened, target_options
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import several

if TYPE_CHECKING:
    from mainspring.core.schedules.simulating import JobForecast, Overlap, Simulation

__all__ = ["simulate"]


@click.command()
@click.option("--days", default=30.0, show_default=True, help="How many days ahead.")
@click.option("--since", default=None, metavar="TIME", help="Begin at this time (ISO 8601) instead of now.")
@click.option("--took", multiple=True, metavar="JOB=SECONDS", help="How long runs of a job take; may be given again.")
@json_option
@target_options
def simulate(
    days: float, since: str | None, took: tuple[str, ...], as_json: bool, where: str | None, name: str
) -> None:
    """Show what the schedules would do: fires, overlaps, clock changes, busiest minutes, jobs that never fire.

    Nothing is changed, and no store is needed: what it holds is taken into account if it can be read. Ends with 1 if a
    job never fires, or there are no jobs.

    \b
    Examples:
      mainspring simulate --days 30 --app shop:app
      mainspring simulate --since 2027-03-27 --days 3 --took nightly_report=3600 --app shop:app
    """
    durations = dict(map(_duration, took))
    with opened(where, name, must_exist=False) as app:
        try:
            found = app.simulate(days, since=_moment(since), durations=durations)
        except ValueError as error:
            raise CommandFailed(str(error), command("simulate --days 30"), USAGE) from None
    if as_json:
        print_json(_to_json(found))
    else:
        _show(found)
    if not found.jobs or found.never:
        raise click.exceptions.Exit(FAILED)


def _duration(text: str) -> tuple[str, float]:
    job_id, _, seconds = text.rpartition("=")
    try:
        number = float(seconds)
    except ValueError:
        number = -1.0
    if not job_id or not 0 <= number < 1e9:
        raise CommandFailed(f"--took {text!r} is not JOB=SECONDS", command("simulate --took nightly=3600"), USAGE)
    return job_id, number


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        message = f"--since {text!r} is not a time; write it as 2027-03-28 or 2027-03-28T01:30"
        raise CommandFailed(message, command("simulate --since 2027-03-28"), USAGE) from None


def _to_json(found: Simulation) -> dict[str, Any]:
    rows = {
        name: [each._asdict() for each in getattr(found, name)] for name in ("jobs", "overlaps", "oddities", "busiest")
    }
    told = {"since": found.since, "until": found.until, "fires": found.fires, "most_at_once": found.most_at_once}
    return {**told, "never": found.never, **rows}


def _show(found: Simulation) -> None:
    if not found.jobs:
        click.echo("there are no schedules", err=True)
        return
    busy = f", at most {several(found.most_at_once, 'run')} at once" if found.fires else ""
    span = f"{_shown(found.since)} to {_shown(found.until)}"
    jobs = several(len(found.jobs), "job fires", "jobs fire")
    echo(f"{jobs} {several(found.fires, 'time')} from {span}{busy}\n")
    columns = (
        Column("job", cut=True), Column("fires", right=True), Column("first"),
        Column("takes", right=True, optional=True), Column("when", cut=True),
    )  # fmt: skip
    table(columns, [_row(job) for job in found.jobs])
    _section("overlaps", [_overlap(each) for each in found.overlaps])
    _section("clock changes", [f"{_shown(each.at)}  {each.job_id}: {each.text}" for each in found.oddities])
    _section(
        "busiest minutes",
        [f"{_shown(each.at)}  {each.fires:,} fires: {', '.join(each.job_ids[:5])}" for each in found.busiest[:5]],
    )
    _section("never fire", list(found.never))


def _row(job: JobForecast) -> tuple[str, ...]:
    first = job.state if job.first is None else _shown(job.first)
    return job.job_id, f"{job.fires:,}", first, length(job.usual_seconds), job.words


def _overlap(overlap: Overlap) -> str:
    takes = length(overlap.usual_seconds)
    ends = []
    if overlap.started:
        ends.append(f"{overlap.started:,} start beside an earlier run")
    if overlap.missed:
        ends.append(f"{overlap.missed:,} are missed (max_instances is {overlap.max_instances})")
    if overlap.waited:
        ends.append(f"{overlap.waited:,} wait until an earlier run has ended")
    if overlap.cancelled:
        ends.append(f"{overlap.cancelled:,} cancel an earlier run")
    return f"{overlap.job_id} takes {takes}, so of its fires {' and '.join(ends)}"


def _section(title: str, lines: list[str]) -> None:
    if lines:
        echo(f"\n{title}")
        for line in lines:
            echo(f"  {visible(line)}")


def _shown(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M %Z}"
