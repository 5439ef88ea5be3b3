"""`mainspring jobs`: list jobs, show one, show when they fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed, command
from mainspring.cli.common.output import Column, ago, echo, fields, length, print_json, table
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.jobs.group import choose, jobs, next_time, only, queue_of, read_jobs, shown_call
from mainspring.core.insight.health import JobState
from mainspring.core.insight.wording import duration
from mainspring.core.instants import from_us, to_us
from mainspring.core.job import FIRING_FIELDS
from mainspring.core.schedules.upcoming import Fire, fires_between, preview
from mainspring.errors import near
from mainspring.triggers.excluding import ExcludingTrigger
from mainspring.triggers.zones import MAX_INSTANT

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.insight.health import JobHealth
    from mainspring.core.job import Job
    from mainspring.core.showing.run_view import RunView

__all__ = ["list_", "next_", "show", "to_json"]

RUNS_SHOWN: Final = 5
FIRES_SHOWN: Final = 5


def _read_states(_: click.Context, __: click.Parameter, text: str | None) -> list[JobState] | None:
    """Read the states of `--health late,down`; return None, for any state, if the option is missing."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    known = [str(state) for state in JobState]
    for word in words:
        if word not in known:
            hint = near(word, known)
            raise CommandFailed(f"no health is called {word!r}{hint}", command("jobs list --health late,down"), USAGE)
    return list(map(JobState, words))


@jobs.command("list")
@click.option("--health", "states", metavar="STATE,...", callback=_read_states,
              help="Only jobs that are new, paused, up, late or down.")  # fmt: skip
@json_option
@on_app
def list_(app: Mainspring, states: list[JobState] | None, as_json: bool) -> None:
    """Show jobs and how they fare, the next one to fire first.

    \b
    Examples:
      mainspring jobs list --app shop:app
      mainspring jobs list --health late,down --app shop:app
    """
    found, now = read_jobs(app), app.now()
    healths = app.healths(found)
    found = [job for job in found if states is None or healths[job.id].state in states]
    if as_json:
        print_json([to_json(app, job, healths[job.id]) for job in found])
    elif found:
        columns = (
            Column("id", cut=True), Column("health"), Column("next", optional=True), Column("", right=True),
            Column("when", cut=True), Column("task", cut=True, optional=True), Column("queue", optional=True),
        )  # fmt: skip
        table(columns, [_row(app, job, healths[job.id], now) for job in found])
    else:
        click.echo("there are no jobs" if states is None else f"no job is {' or '.join(states)}", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)


def _row(app: Mainspring, job: Job, health: JobHealth, now: int) -> list[str]:
    shown = [job.id, str(health.state), *next_time(app, job, now), job.trigger.describe()]
    return [*shown, job.call.task_name, queue_of(job)]


def to_json(app: Mainspring, job: Job, health: JobHealth) -> dict[str, Any]:
    """Return a job as data, with secrets masked."""
    return {
        "id": job.id,
        "name": job.name,
        "task": job.call.task_name,
        "call": shown_call(app, job),
        "trigger": str(job.trigger),
        "when": job.trigger.describe(),
        "exclude": job.trigger.exclude.texts() if isinstance(job.trigger, ExcludingTrigger) else [],
        "next_run_time": None if job.at is None else from_us(job.at).astimezone(app.timezone),
        "paused": job.at is None,
        "health": health.state,
        "health_reason": health.why,
        "queue": queue_of(job) or None,
        "executor": job.executor,
        **{name: getattr(job, name) for name in FIRING_FIELDS},
        "declared": job.declared is not None,
    }


@jobs.command()
@click.argument("job_id", metavar="ID")
@json_option
@on_app
def show(app: Mainspring, job_id: str, as_json: bool) -> None:
    """Show a job, its next fires and its last runs.

    \b
    Example:
      mainspring jobs show nightly_report --app shop:app
    """
    job, now = only(app, job_id), app.now()
    record = to_json(app, job, app.healths([job])[job.id])
    fires = [] if job.at is None else preview(job, now, FIRES_SHOWN, app.timezone)
    runs = app.find(job=job.id, limit=RUNS_SHOWN)
    shown_next = " ".join(next_time(app, job, now))
    if as_json:
        return print_json({**record, "fires": [fire.at for fire in fires], "runs": [_run_to_json(run) for run in runs]})
    pairs = [("id", job.id), ("call", record["call"]), ("task", record["task"]), ("when", record["when"])]
    pairs += [("next", shown_next.strip()), ("health", f"{record['health']}: {record['health_reason']}")]
    pairs += [("queue", record["queue"] or f"none: executor {job.executor}")]
    pairs += [("coalesce", "yes" if job.coalesce else "no"), ("max_instances", str(job.max_instances))]
    pairs += [("overlap", job.overlap)]
    grace = "any" if job.misfire_grace_time is None else f"{job.misfire_grace_time:g} s"
    pairs += [("may be late by", grace), ("declared in code", "yes" if record["declared"] else "no")]
    fields(pairs)
    if len(fires) > 1:
        echo("\nnext fires")
        for fire in fires:
            echo(f"  {' '.join(_fire_row(fire, now)).rstrip()}")
    if runs:
        echo("\nlast runs")
        columns = (Column("status"), Column("id"), Column("made", right=True), Column("took", right=True))
        rows = [(str(run.status), run.id, ago(now - run.record.created_at), length(run.duration)) for run in runs]
        table(columns, rows)
    return None


def _run_to_json(run: RunView) -> dict[str, Any]:
    names = ("id", "status", "created_at", "started_at", "finished_at", "duration")
    return {name: getattr(run, name) for name in names}


def _fire_row(fire: Fire, now: int) -> tuple[str, str]:
    """Return when a fire is due, and the note about it."""
    late = now - to_us(fire.at)
    notes = [f"overdue by {duration(late)}"] if late >= 0 else []
    notes += [] if fire.note is None else [fire.note.text]
    return f"{fire.at:%a %Y-%m-%d %H:%M:%S %Z}", "; ".join(notes)


@jobs.command("next")
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("-n", "--number", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many.")
@json_option
@on_app
def next_(app: Mainspring, job_ids: tuple[str, ...], number: int, as_json: bool) -> None:
    """Show the next fires of jobs, or of all jobs together.

    \b
    Examples:
      mainspring jobs next --app shop:app
      mainspring jobs next nightly_report -n 20 --app shop:app
    """
    found, now = choose(app, job_ids) if job_ids else read_jobs(app), app.now()
    # Begin at the earliest due time, which may be overdue.
    due = min((job.nominal for job in found if job.at is not None and job.nominal is not None), default=0)
    fires = fires_between(found, due, MAX_INSTANT, number, app.timezone)
    if as_json:
        print_json(
            [
                {
                    "job": fire.job_id,
                    "at": fire.at,
                    "overdue": to_us(fire.at) <= now,
                    "note": None if fire.note is None else fire.note.text,
                }
                for fire in fires
            ]
        )
    elif fires:
        columns = (Column("at"), Column("job", cut=True), Column("note", cut=True, optional=True))
        rows = [(at, fire.job_id, note) for fire in fires for at, note in [_fire_row(fire, now)]]
        noted = any(note for _, _, note in rows)
        table(columns if noted else columns[:2], rows if noted else [row[:2] for row in rows])
    if not fires:
        click.echo("nothing will fire", err=True)
        raise click.exceptions.Exit(FAILED)
