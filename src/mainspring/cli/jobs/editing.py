"""`mainspring jobs add` and `mainspring jobs edit`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import USAGE, CommandFailed, command, usage_errors
from mainspring.cli.common.output import echo
from mainspring.cli.common.reading import (
    Length,
    find_task,
    policy_of,
    policy_options,
    read_arguments,
    read_excluding,
    read_moment,
    read_trigger,
    trigger_options,
)
from mainspring.cli.common.target import on_app, on_new_app, stacked
from mainspring.cli.common.visible import visible
from mainspring.cli.jobs.group import jobs, next_time, only, queue_of, shown_call
from mainspring.core.instants import from_us
from mainspring.core.schedules.upcoming import fires_from
from mainspring.core.validation import OVERLAPS, check_queue
from mainspring.errors import ConflictingIdError
from mainspring.triggers.excluding import like

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job
    from mainspring.triggers.base import BaseTrigger

__all__ = ["add", "edit"]

_ANY: Final = "any"
_AUTO: Final = "auto"


_job_options: Final = stacked(
    trigger_options,
    click.option("--job-name", default=None, help="A name to show; the task's by default."),
    policy_options,
    click.option("--grace", default=None, metavar="LENGTH|any", help="How late a fire may start."),
    click.option(
        "--down-after", default=None, metavar="LENGTH|auto", help="Call the job down if a fire has not ended by then."
    ),
    click.option(
        "--late-after", default=None, metavar="LENGTH|auto", help="Call a fire late that has not ended by then."
    ),
    click.option(
        "--overlap", type=click.Choice(OVERLAPS), default=None, help="What a fire above --max-instances does."
    ),
    click.option("--max-instances", type=click.IntRange(1), default=None, help="Runs of it at the same time."),
    click.option("--coalesce/--no-coalesce", default=None, help="Whether overdue fires become one run."),
)


@jobs.command()
@click.argument("task", metavar="TASK")
@click.argument("words", metavar="[ARG|NAME=VALUE]...", nargs=-1)
@click.option("--id", "job_id", default=None, help="Its id; one is made if it is absent.")
@click.option("--replace", is_flag=True, help="Overwrite a job of the same id.")
@click.option("--paused", is_flag=True, help="Add it paused.")
@click.option("--dry-run", is_flag=True, help="Only say when it would fire.")
@_job_options
@on_new_app
def add(
    app: Mainspring,
    task: str,
    words: tuple[str, ...],
    job_id: str | None,
    replace: bool,
    paused: bool,
    dry_run: bool,
    cron: str | None,
    every: float | None,
    at: str | None,
    timezone: str | None,
    exclude: tuple[str, ...],
    **options: Any,
) -> None:
    """Have TASK called by a schedule: --cron, --every or --at.

    TASK and its arguments are read as by `mainspring enqueue`.

    \b
    Examples:
      mainspring jobs add report --cron "0 3 * * mon-fri" --id nightly --app shop:app
      mainspring jobs add shop:resize cat.png width=100 --every 5m --app shop:app
      mainspring jobs add report --cron "0 9 * * *" --exclude weekends --exclude holidays.ics --app shop:app
    """
    trigger = read_trigger(app, cron, every, at, timezone)
    if trigger is None:
        raise CommandFailed("say when: --cron, --every or --at", command(f'jobs add {task} --cron "0 3 * * *"'), USAGE)
    trigger = read_excluding(trigger, exclude, app.timezone, app.now())
    found, (args, kwargs) = find_task(app, task), read_arguments(words)
    if dry_run:
        return _preview(app, trigger)
    _first_fire(app, trigger)
    more: dict[str, Any] = {"next_run_time": None} if paused else {}
    try:
        with usage_errors(command("tasks")):
            given = _given(**options)
            job = app.add_job(found, trigger, args, kwargs, job_id, replace_existing=replace, **given, **more)
    except ConflictingIdError as error:
        raise CommandFailed(
            f"the job id {error.job_id!r} is taken; choose another, or overwrite that job by --replace",
            command(f"jobs edit {error.job_id}"),
        ) from None
    echo(f"added {visible(job.id)}: {_next(app, job)}")
    return None


def _preview(app: Mainspring, trigger: BaseTrigger) -> None:
    first = _first_fire(app, trigger)
    echo("would fire")
    for fire in islice(fires_from(trigger, first), 5):
        echo(f"  {from_us(fire, trigger.timezone or app.timezone):%a %Y-%m-%d %H:%M:%S %Z}")


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.argument("words", metavar="[ARG|NAME=VALUE]...", nargs=-1)
@click.option("--task", default=None, help="Call another task.")
@click.option("--next", "next_time_", default=None, metavar="TIME", help="Fire next at this time, then by the trigger.")
@click.option("--no-args", is_flag=True, help="Call it without arguments.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@_job_options
@on_app
def edit(
    app: Mainspring,
    job_id: str,
    words: tuple[str, ...],
    task: str | None,
    next_time_: str | None,
    no_args: bool,
    dry_run: bool,
    cron: str | None,
    every: float | None,
    at: str | None,
    timezone: str | None,
    exclude: tuple[str, ...],
    **options: Any,
) -> None:
    """Change a job: when it fires, what it calls, how its runs are executed. Everything else stays.

    Arguments replace all that the job has, and --exclude all that it excludes; --exclude none removes that. A job that
    is declared in code is reset when its declaration changes.

    \b
    Examples:
      mainspring jobs edit nightly --cron "30 4 * * *" --app shop:app
      mainspring jobs edit thumbs cat.png width=200 --queue slow --retries 3 --app shop:app
    """
    job = only(app, job_id)
    changes = _given(**options)
    if task is not None:
        changes["func"] = find_task(app, task)
    if words or no_args:
        changes["args"], changes["kwargs"] = read_arguments(words)
    trigger = read_trigger(app, cron, every, at, timezone, job.trigger.timezone)
    if trigger is not None:
        trigger = like(trigger, job.trigger)
    if exclude:
        trigger = read_excluding(trigger or job.trigger, exclude, app.timezone, app.now())
    if trigger is not None:
        changes["trigger"] = trigger
        if job.at is not None:  # a paused job stays paused
            changes["next_run_time"] = from_us(_first_fire(app, trigger))
    if next_time_ is not None:
        changes["next_run_time"] = read_moment(next_time_, app.now(), app.timezone)
    if not changes:
        raise CommandFailed("say what to change", command(f"jobs show {job.id}"), USAGE)
    before = _shown_fields(app, job)
    with usage_errors(command("tasks"), (TypeError, ValueError, AttributeError)):
        changed = _evolved(job, changes) if dry_run else app.modify_job(job.id, **changes)
    after = _shown_fields(app, changed)
    for field in after:
        if before[field] != after[field]:
            echo(f"{field}: {visible(before[field])} -> {visible(after[field])}")
    if dry_run:
        return echo("nothing would change" if before == after else f"would be changed: {visible(job.id)}")
    echo(f"changed {visible(job.id)}: {_next(app, changed)}")
    if job.declared is not None:
        click.echo("it is declared in code; a changed declaration resets it when the app starts", err=True)
    return None


def _given(
    grace: str | None, late_after: str | None, down_after: str | None, job_name: str | None, **options: Any
) -> dict[str, Any]:
    """Return the given options of a job, by the names that `add_job` takes."""
    found = policy_of(**options, name=job_name)
    if "queue" in found:
        with usage_errors():
            check_queue(found["queue"])
    lengths = {
        "misfire_grace_time": (grace, _ANY),
        "late_after": (late_after, _AUTO),
        "down_after": (down_after, _AUTO),
    }
    for name, (text, none) in lengths.items():
        if text is not None:
            found[name] = None if text == none else Length().convert(text, None, None)
    return found


def _next(app: Mainspring, job: Job) -> str:
    moment, how_soon = next_time(app, job, app.now())
    return f"next at {moment}, {how_soon}" if how_soon else "it is paused"


def _first_fire(app: Mainspring, trigger: BaseTrigger) -> int:
    first = trigger.next_fire(None, app.now())
    if first is None:
        raise CommandFailed("it would never fire")
    return first


def _evolved(job: Job, changes: Mapping[str, Any]) -> Job:
    return job.evolve(**{**changes, "func": changes["func"].name} if "func" in changes else changes)


def _shown_fields(app: Mainspring, job: Job) -> dict[str, str]:
    """Return the changeable fields of a job, as text."""
    return {
        "task": job.call.task_name,
        "call": shown_call(app, job),
        "when": job.trigger.describe(),
        "next": next_time(app, job, app.now())[0],
        "queue": queue_of(job),
        "coalesce": str(job.coalesce),
        "max_instances": str(job.max_instances),
        "overlap": job.overlap,
        "grace": _ANY if job.misfire_grace_time is None else f"{job.misfire_grace_time:g} s",
        "late_after": _AUTO if job.late_after is None else f"{job.late_after:g} s",
        "down_after": _AUTO if job.down_after is None else f"{job.down_after:g} s",
        **{name: str(getattr(job.policy, name)) for name in ("priority", "retries", "timeout", "retention")},
    }
