"""`mainspring jobs diff|adopt|backfill|export|import`: compare jobs with the code, the past, and a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed, command, usage_errors
from mainspring.cli.common.output import Column, echo, print_json, table, with_progress
from mainspring.cli.common.reading import read_past
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.visible import visible
from mainspring.cli.jobs.acting import act_on_jobs, acting_options, when
from mainspring.cli.jobs.group import choose, jobs, only, read_jobs
from mainspring.core.insight.wording import listed, several
from mainspring.core.schedules.declaration import SCHEDULE, Difference
from mainspring.core.showing.redaction import masked
from mainspring.core.validation import check_queue
from mainspring.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job

__all__ = ["adopt", "backfill", "diff", "export", "import_"]


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--check", is_flag=True, help="End with 1 if anything differs.")
@json_option
@on_app
def diff(app: Mainspring, job_ids: tuple[str, ...], check: bool, as_json: bool) -> None:
    """Show what differs between the schedules in the code and in the store.

    With a URL instead of an app it is what was changed by hand since it was declared.

    \b
    Examples:
      mainspring jobs diff --app shop:app
      mainspring jobs diff --check --app shop:app
    """
    wanted = set(job_ids)
    known = {job.id for job in choose(app, job_ids)} if job_ids else set()
    found = [each for each in app.differences() if not wanted or each.job in wanted | known]
    functions = {job.id: app.tasks.function(job.call.task_name) for job in app.store.examine_jobs()[0]}
    rows = [
        (each.job, each.field, *_sides(each, functions.get(each.job)), each.by or "", _moment(each)) for each in found
    ]
    if as_json:
        print_json([dict(zip(("job", "field", "code", "store", "by", "at"), row, strict=True)) for row in rows])
    elif rows:
        columns = (
            Column("job", cut=True), Column("field"), Column("code", cut=True), Column("store", cut=True),
            Column("changed by", cut=True, optional=True), Column("at", optional=True),
        )  # fmt: skip
        table(columns, rows)
        click.echo(f"take what the code says: {command(f'jobs adopt {rows[0][0]}')}", err=True)
    else:
        click.echo("nothing differs", err=True)
    if check and rows:
        raise click.exceptions.Exit(FAILED)


def _moment(difference: Difference) -> str:
    return "" if difference.at is None else f"{difference.at:%Y-%m-%d %H:%M:%S %Z}"


def _sides(difference: Difference, func: Callable[..., Any] | None) -> tuple[str, str]:
    """Return the values in the code and in the store, with secrets masked."""

    def shown(value: Any) -> str:
        if isinstance(value, BaseTrigger):
            return value.describe()
        if difference.field == SCHEDULE:
            return "absent"
        if difference.field == "args":
            return repr(masked(value, {}, func)[0])
        return repr(masked((), {difference.field: value})[1][difference.field])

    return shown(difference.code), shown(difference.store)


@jobs.command()
@acting_options
def adopt(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool) -> None:
    """Take what the code declares for jobs that were changed by hand.

    \b
    Examples:
      mainspring jobs adopt nightly_report --app shop:app
      mainspring jobs adopt '*' --dry-run --app shop:app
    """
    act_on_jobs(choose(app, job_ids), "adopted", lambda job: when(app, app.adopt(job.id)), dry_run)


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--since", required=True, metavar="TIME", help="2026-03-01, 2026-03-01T14:00, or 2d ago.")
@click.option("--until", default=None, metavar="TIME", help="By default now.")
@click.option("--dry-run", is_flag=True, help="Only say which fires would run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before it is done.")
@json_option
@on_app
def backfill(
    app: Mainspring,
    job_id: str,
    since: str,
    until: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the past fires of a job that have no run, one after another.

    \b
    Examples:
      mainspring jobs backfill nightly_report --since 2026-03-01 --until 2026-03-08 --dry-run --app shop:app
      mainspring jobs backfill nightly_report --since 2d --yes --app shop:app
    """
    from mainspring.cli.common.choosing import ask

    job, now = only(app, job_id), app.now()
    span = read_past(since, now, app.timezone), None if until is None else read_past(until, now, app.timezone)
    with usage_errors():
        done = app.backfill(job.id, *span, trial=True)
    if not dry_run and done.fires:
        question = f"{several(len(done.fires), 'fire')} of {visible(job.id)} will run. Go on?"
        ask(question, command("jobs backfill --dry-run"), yes)
        with usage_errors():
            done = app.backfill(job.id, *span)
    if as_json:
        run_id = None if done.run is None else done.run.id
        return print_json({"job": job.id, "fires": done.fires, "known": done.known, "run": run_id})
    for fire in done.fires:
        echo(f"{fire:%a %Y-%m-%d %H:%M:%S %Z}")
    left_out = f"; {several(len(done.known), 'fire')} had a run" if done.known else ""
    if not done.fires:
        raise CommandFailed(f"nothing to run{left_out}", command(f"jobs show {job.id}"))
    if done.run is None:
        return click.echo(f"{several(len(done.fires), 'fire')} would run{left_out}", err=True)
    return click.echo(
        f"{several(len(done.fires), 'fire')} run, the first as {visible(done.run.id)}{left_out}", err=True
    )


# -- files ---------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False, writable=True), default="-", help="Write to a file.")
@click.option("--all", "everything", is_flag=True, help="Also the schedules that are declared in code.")
@on_app
def export(app: Mainspring, job_ids: tuple[str, ...], output: str, everything: bool) -> None:
    """Write jobs as JSON, for `mainspring jobs import`; arguments are written as they are, secrets included.

    \b
    Examples:
      mainspring jobs export -o jobs.json --app shop:app
      mainspring jobs export 'report*' --app redis://localhost/0
    """
    from mainspring.schedulers.portable import export_jobs

    found = choose(app, job_ids) if job_ids else read_jobs(app)
    chosen = [job for job in found if job_ids or everything or job.declared is None]
    if len(chosen) < len(found):
        number = len(found) - len(chosen)
        click.echo(f"left out {several(number, 'job')} declared in code: --all exports them, too", err=True)
    if not chosen:
        raise CommandFailed("there are no jobs to export", command("jobs list"))
    with usage_errors():
        export_jobs(chosen, sys.stdout if output == "-" else output)
    if output != "-":
        echo(f"exported {several(len(chosen), 'job')} to {visible(output)}")


@jobs.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, allow_dash=True))
@click.option("--replace", is_flag=True, help="Overwrite jobs of the same id.")
@click.option("--paused", is_flag=True, help="Import the jobs paused.")
@click.option("-q", "--queue", default=None, help="Hand the jobs to this queue.")
@click.option("--dry-run", is_flag=True, help="Only say what would be imported.")
@on_app
def import_(app: Mainspring, file: str, replace: bool, paused: bool, queue: str | None, dry_run: bool) -> None:
    """Add the jobs of a FILE that `mainspring jobs export` wrote; all of them or, if an id is taken, none.

    \b
    Examples:
      mainspring jobs import jobs.json --dry-run --app shop:app
      mainspring jobs export --app sqlite:///old.db | mainspring jobs import - --app shop:app
    """
    from mainspring.schedulers.portable import import_jobs

    found = import_jobs(sys.stdin if file == "-" else file)
    for job in found:
        _prepare(job, queue, paused)
    taken = {job.id for job in read_jobs(app)} & {job.id for job in found}
    if taken and not replace:
        shown = listed(sorted(taken), 5)
        raise CommandFailed(
            f"{several(len(taken), 'job')} of {len(found)} are there already ({shown}); nothing was imported. "
            "--replace overwrites them",
            command("jobs list"),
        )
    if dry_run:
        for job in found:
            echo(f"would be imported: {visible(job.id)}{' (replaces one)' if job.id in taken else ''}")
        return
    for job in with_progress(found, "import"):
        app.jobs.put(job, replace=replace)
    echo(f"imported {several(len(found), 'job')}")


def _prepare(job: Job, queue: str | None, paused: bool) -> None:
    if queue is not None:
        with usage_errors():
            job.executor, job.queue = "queue", check_queue(queue)
    if job.executor != "queue":
        raise CommandFailed(
            f"job {job.id!r} is executed by the executor {job.executor!r} of a scheduler; --queue hands it to workers",
            "mainspring jobs import FILE --queue default",
            USAGE,
        )
    if paused:
        job.next_run_time = None
