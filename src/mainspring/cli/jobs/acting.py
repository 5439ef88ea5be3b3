"""`mainspring jobs`: pause, resume, skip, remove jobs, or run them now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import FAILED, CommandFailed, command
from mainspring.cli.common.output import echo, length
from mainspring.cli.common.target import on_app, why_option
from mainspring.cli.common.visible import visible
from mainspring.cli.jobs.group import choose, jobs, next_time
from mainspring.core.instants import from_us
from mainspring.core.run import Status
from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job

__all__ = ["act_on_jobs", "acting_options", "pause", "remove", "resume", "run", "skip", "when"]


def acting_options(func: Any) -> Any:
    """Add the arguments and options of commands that act on jobs."""
    func = why_option(on_app(func))
    func = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(func)
    return click.argument("job_ids", metavar="ID...", nargs=-1, required=True)(func)


def act_on_jobs(chosen: Sequence[Job], done: str, act: Callable[[Job], str], dry_run: bool) -> None:
    """Act on jobs; name the failed ones, and exit with 1 if there are any."""
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
@acting_options
def pause(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool) -> None:
    """Stop jobs from coming due; their runs that wait or run go on.

    \b
    Examples:
      mainspring jobs pause nightly_report --app shop:app
      mainspring jobs pause 'report*' --dry-run --app shop:app
    """

    def act(job: Job) -> str:
        app.pause_job(job.id)
        return ""

    act_on_jobs(choose(app, job_ids), "paused", act, dry_run)


@jobs.command()
@acting_options
def resume(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool) -> None:
    """Let paused jobs come due again, from now on.

    \b
    Example:
      mainspring jobs resume nightly_report --app shop:app
    """

    def act(job: Job) -> str:
        if job.at is not None:
            return ": it was not paused"
        resumed = app.resume_job(job.id)
        return ": it will never fire again, and was removed" if resumed is None else when(app, resumed)

    act_on_jobs(choose(app, job_ids), "resumed", act, dry_run)


def when(app: Mainspring, job: Job) -> str:
    """Return when a job fires next, as text."""
    if job.at is None:
        return ": it is paused"
    moment, how_soon = next_time(app, job, app.now())
    return f": next at {moment}, {how_soon}"


@jobs.command()
@acting_options
def skip(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool) -> None:
    """Leave out the next fire of jobs.

    \b
    Example:
      mainspring jobs skip nightly_report --app shop:app
    """

    def act(job: Job) -> str:
        skipped = "" if job.nominal is None else f"{from_us(job.nominal).astimezone(app.timezone):%Y-%m-%d %H:%M:%S %Z}"
        return f": not at {skipped}{when(app, app.skip_next(job.id)).replace(': next', ', next', 1)}"

    act_on_jobs(choose(app, job_ids), "skipped", act, dry_run)


@jobs.command()
@acting_options
@click.option("--cancel-runs", is_flag=True, help="Also cancel their runs that have not ended.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before several jobs are removed.")
def remove(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool, cancel_runs: bool, yes: bool) -> None:
    """Remove jobs for good; one that is declared in code comes back when the app starts.

    \b
    Example:
      mainspring jobs remove old_report --cancel-runs --app shop:app
    """
    from mainspring.cli.common.choosing import ask

    chosen = choose(app, job_ids)
    if len(chosen) > len(job_ids) and not dry_run:
        ask(f"{len(chosen)} jobs will be removed. Go on?", command("jobs remove ID --dry-run"), yes)

    def act(job: Job) -> str:
        app.remove_job(job.id, cancel_runs=cancel_runs)
        return "" if job.declared is None else ": it is declared in code, and comes back when the app starts"

    act_on_jobs(chosen, "removed", act, dry_run)


@jobs.command()
@acting_options
@click.option("--wait", "wait_", is_flag=True, help="Wait until the runs have ended; 1 unless all succeed.")
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Seconds to wait; without end by default.")
def run(app: Mainspring, job_ids: tuple[str, ...], dry_run: bool, wait_: bool, timeout: float | None) -> None:
    """Make a run of jobs at once, besides their schedules.

    \b
    Example:
      mainspring jobs run nightly_report --wait --app shop:app
    """
    made: list[str] = []

    def act(job: Job) -> str:
        made.append(app.run_now(job.id).id)
        return f": {visible(made[-1])}"

    act_on_jobs(choose(app, job_ids), "enqueued", act, dry_run)
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
