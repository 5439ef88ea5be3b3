"""`mainspring jobs`: look at jobs and when they fire; pause, resume, remove them, run them now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.app.doctor import duration
from mainspring.cli.common.output import Column, ago, echo, fields, length, print_json, table
from mainspring.cli.common.target import FAILED, USAGE, CommandFailed, command, json_option, opened, target_options
from mainspring.cli.common.visible import visible
from mainspring.core.instants import from_us, to_us
from mainspring.core.redaction import masked
from mainspring.core.run import Status
from mainspring.errors import JobLookupError, MainspringError

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job
    from mainspring.core.run_view import RunView

__all__ = ["jobs"]

RUNS_SHOWN: Final = 5
FIRES_SHOWN: Final = 5


@click.group()
def jobs() -> None:
    """Look at jobs and when they fire; pause, resume or remove them, run them now.

    \b
    Example:
      mainspring jobs list --app shop:app
    """


# -- looking -------------------------------------------------------------------------------------------------------


def _read(app: Mainspring) -> list[Job]:
    """Return all jobs by next run time, paused ones last; those that this process cannot read are only named.

    Unlike `app.jobs()` this sets no job aside: a command called with the wrong key must not stop what others schedule.
    """
    found, unreadable = app.store.examine_jobs()
    for job_id, reason in sorted(unreadable.items()):
        click.echo(f"{visible(job_id)} cannot be read here: {visible(reason)}", err=True)
    return sorted(found, key=lambda job: (job.at is None, job.at or 0, job.id))


def _chosen(app: Mainspring, job_ids: Sequence[str]) -> list[Job]:
    """Return the jobs of these ids, each of which may end with a star."""
    by_id = {job.id: job for job in _read(app)}
    chosen: dict[str, Job] = {}
    for job_id in job_ids:
        if job_id not in by_id and job_id.endswith("*"):
            matching = {name: job for name, job in by_id.items() if name.startswith(job_id[:-1])}
        else:
            matching = {job_id: by_id[job_id]} if job_id in by_id else {}
        if not matching:
            raise CommandFailed(str(JobLookupError(job_id, tuple(by_id))), command("jobs list"))
        chosen |= matching
    return list(chosen.values())


@jobs.command("list")
@json_option
@target_options
def list_(as_json: bool, where: str | None, name: str) -> None:
    """Show all jobs, the next one to fire first.

    \b
    Example:
      mainspring jobs list --app shop:app
    """
    with opened(where, name) as app:
        found, now = _read(app), app.now()
        rows = [_row(app, job, now) for job in found]
        records = [_to_json(app, job) for job in found] if as_json else []
    if as_json:
        print_json(records)
    elif rows:
        columns = (
            Column("id", cut=True), Column("next"), Column("", right=True), Column("when", cut=True),
            Column("task", cut=True, optional=True), Column("queue", optional=True),
        )  # fmt: skip
        table(columns, rows)
    else:
        click.echo("there are no jobs", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)


def _row(app: Mainspring, job: Job, now: int) -> list[str]:
    return [job.id, *_next(app, job, now), job.trigger.describe(), job.call.task_name, _queue(job)]


def _next(app: Mainspring, job: Job, now: int) -> tuple[str, str]:
    if job.at is None:
        return "paused", ""
    when = f"in {duration(job.at - now)}" if job.at > now else f"due {ago(now - job.at)}"
    return f"{from_us(job.at).astimezone(app.timezone):%Y-%m-%d %H:%M:%S %Z}", when


def _queue(job: Job) -> str:
    return job.queue if job.executor == "queue" else ""


def _to_json(app: Mainspring, job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "task": job.call.task_name,
        "call": _call(app, job),
        "trigger": str(job.trigger),
        "when": job.trigger.describe(),
        "next_run_time": None if job.at is None else from_us(job.at).astimezone(app.timezone),
        "paused": job.at is None,
        "queue": _queue(job) or None,
        "executor": job.executor,
        "coalesce": job.coalesce,
        "max_instances": job.max_instances,
        "misfire_grace_time": job.misfire_grace_time,
        "declared": job.declared is not None,
    }


def _call(app: Mainspring, job: Job) -> str:
    task = app.tasks.get(job.call.task_name)
    args, kwargs = masked(job.args, job.kwargs, None if task is None else task.func)
    shown = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{job.name or job.call.task_name}({', '.join(shown)})"


@jobs.command()
@click.argument("job_id", metavar="ID")
@json_option
@target_options
def show(job_id: str, as_json: bool, where: str | None, name: str) -> None:
    """Show a job, its next fires and its last runs.

    \b
    Example:
      mainspring jobs show nightly_report --app shop:app
    """
    with opened(where, name) as app:
        job, now = _only(app, job_id), app.now()
        record = _to_json(app, job)
        fires = [] if job.at is None else app.preview(job, FIRES_SHOWN)
        runs = app.find(job=job.id, limit=RUNS_SHOWN)
        shown_next = " ".join(_next(app, job, now))
    if as_json:
        return print_json({**record, "fires": fires, "runs": [_run_to_json(run) for run in runs]})
    pairs = [("id", job.id), ("call", record["call"]), ("task", record["task"]), ("when", record["when"])]
    pairs += [("next", shown_next.strip()), ("queue", record["queue"] or f"none: executor {job.executor}")]
    pairs += [("coalesce", "yes" if job.coalesce else "no"), ("max_instances", str(job.max_instances))]
    grace = "any" if job.misfire_grace_time is None else f"{job.misfire_grace_time:g} s"
    pairs += [("may be late by", grace), ("declared in code", "yes" if record["declared"] else "no")]
    fields(pairs)
    if len(fires) > 1:
        echo("\nnext fires")
        for moment in fires:
            echo(f"  {_shown(moment)}")
    if runs:
        echo("\nlast runs")
        columns = (Column("status"), Column("id"), Column("made", right=True), Column("took", right=True))
        rows = [(str(run.status), run.id, ago(now - run.record.created_at), length(run.duration)) for run in runs]
        table(columns, rows)
    return None


def _run_to_json(run: RunView) -> dict[str, Any]:
    names = ("id", "status", "created_at", "started_at", "finished_at", "duration")
    return {name: getattr(run, name) for name in names}


def _only(app: Mainspring, job_id: str) -> Job:
    found = _chosen(app, [job_id])
    if len(found) > 1:
        raise CommandFailed(f"{job_id!r} means {len(found)} jobs; name one of them", command("jobs list"), USAGE)
    return found[0]


def _shown(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M:%S %Z}"


@jobs.command("next")
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("-n", "--number", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many.")
@json_option
@target_options
def next_(job_ids: tuple[str, ...], number: int, as_json: bool, where: str | None, name: str) -> None:
    """Show the next fires of jobs, or of all jobs together.

    \b
    Examples:
      mainspring jobs next --app shop:app
      mainspring jobs next nightly_report -n 20 --app shop:app
    """
    with opened(where, name) as app:
        chosen = [job for job in (_chosen(app, job_ids) if job_ids else _read(app)) if job.at is not None]
        # A job that fires after the last of those that are found already cannot add to them.
        fires: list[tuple[int, str, datetime]] = []
        for job in sorted(chosen, key=lambda job: job.at or 0):
            if len(fires) >= number and job.nominal is not None and job.nominal > fires[-1][0]:
                continue
            fires += [(to_us(moment), job.id, moment) for moment in app.preview(job, number)]
            fires = sorted(fires, key=lambda fire: fire[:2])[:number]
    if as_json:
        print_json([{"job": job_id, "at": moment} for _, job_id, moment in fires])
    elif fires:
        table((Column("at"), Column("job", cut=True)), [(_shown(moment), job_id) for _, job_id, moment in fires])
    if not fires:
        click.echo("nothing will fire", err=True)
        raise click.exceptions.Exit(FAILED)


# -- acting --------------------------------------------------------------------------------------------------------


def _acting(func: Any) -> Any:
    func = target_options(func)
    func = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(func)
    return click.argument("job_ids", metavar="ID...", nargs=-1, required=True)(func)


def _act(chosen: Sequence[Job], done: str, act: Callable[[Job], str], dry_run: bool) -> None:
    """Act on jobs; name those with which that failed, and end with 1 then."""
    failed = False
    for job in chosen:
        if dry_run:
            echo(f"would be {done}: {visible(job.id)}")
            continue
        try:
            echo(f"{done} {visible(job.id)}{act(job)}")
        except (MainspringError, ValueError) as error:
            if isinstance(error, OSError):  # the store does not answer
                raise
            failed = True
            click.echo(f"{visible(job.id)}: {visible(str(error))}", err=True)
    if failed:
        raise CommandFailed(f"not all could be {done}", command("jobs list"))


@jobs.command()
@_acting
def pause(job_ids: tuple[str, ...], dry_run: bool, where: str | None, name: str) -> None:
    """Stop jobs from coming due; their runs that wait or run go on.

    \b
    Examples:
      mainspring jobs pause nightly_report --app shop:app
      mainspring jobs pause 'report*' --dry-run --app shop:app
    """
    with opened(where, name) as app:

        def act(job: Job) -> str:
            app.pause_job(job.id)
            return ""

        _act(_chosen(app, job_ids), "paused", act, dry_run)


@jobs.command()
@_acting
def resume(job_ids: tuple[str, ...], dry_run: bool, where: str | None, name: str) -> None:
    """Let paused jobs come due again, from now on.

    \b
    Example:
      mainspring jobs resume nightly_report --app shop:app
    """
    with opened(where, name) as app:

        def act(job: Job) -> str:
            if job.at is not None:
                return ": it was not paused"
            resumed = app.resume_job(job.id)
            return ": it will never fire again, and was removed" if resumed is None else _when(app, resumed)

        _act(_chosen(app, job_ids), "resumed", act, dry_run)


def _when(app: Mainspring, job: Job) -> str:
    moment, how_soon = _next(app, job, app.now())
    return f": next at {moment}, {how_soon}"


@jobs.command()
@_acting
@click.option("--cancel-runs", is_flag=True, help="Also cancel their runs that have not ended.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before several jobs are removed.")
def remove(job_ids: tuple[str, ...], dry_run: bool, cancel_runs: bool, yes: bool, where: str | None, name: str) -> None:
    """Remove jobs for good; one that is declared in code comes back when the app starts.

    \b
    Example:
      mainspring jobs remove old_report --cancel-runs --app shop:app
    """
    from mainspring.cli.common.choosing import ask

    with opened(where, name) as app:
        chosen = _chosen(app, job_ids)
        if len(chosen) > len(job_ids) and not dry_run:
            ask(f"{len(chosen)} jobs will be removed. Go on?", command("jobs remove ID --dry-run"), yes)

        def act(job: Job) -> str:
            app.remove_job(job.id, cancel_runs=cancel_runs)
            return "" if job.declared is None else ": it is declared in code, and comes back when the app starts"

        _act(chosen, "removed", act, dry_run)


@jobs.command()
@_acting
@click.option("--wait", "wait_", is_flag=True, help="Wait until the runs have ended; 1 unless all succeed.")
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Seconds to wait; without end by default.")
def run(
    job_ids: tuple[str, ...], dry_run: bool, wait_: bool, timeout: float | None, where: str | None, name: str
) -> None:
    """Make a run of jobs at once, besides their schedules.

    \b
    Example:
      mainspring jobs run nightly_report --wait --app shop:app
    """
    made: list[str] = []
    with opened(where, name) as app:

        def act(job: Job) -> str:
            made.append(app.run_now(job.id).id)
            return f": {visible(made[-1])}"

        _act(_chosen(app, job_ids), "enqueued", act, dry_run)
        if not wait_ or not made:
            return
        try:
            ended = app.wait(made, timeout)
        except TimeoutError as error:
            raise CommandFailed(str(error), command(f"runs show {made[0]}")) from None
    for each in ended:
        echo(f"{each.status} {visible(each.id)} {length(each.duration)}".rstrip())
    if any(each.status is not Status.SUCCEEDED for each in ended):
        raise click.exceptions.Exit(FAILED)
