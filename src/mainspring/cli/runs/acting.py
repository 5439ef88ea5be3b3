"""`mainspring runs`: send runs back, run them again, cancel, move, postpone, prioritize, delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.choosing import ChosenRuns, FilterCommand, on_runs
from mainspring.cli.common.failing import CommandFailed, command, usage_errors
from mainspring.cli.common.output import echo, print_json
from mainspring.cli.common.reading import policy_of, policy_options, read_arguments, read_moment, read_queue
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.visible import visible
from mainspring.cli.runs.group import runs
from mainspring.errors import RunNotFound

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["again", "cancel", "delete", "move", "postpone", "prioritize", "retry"]


@runs.command(cls=FilterCommand)
@on_runs
@click.option("--at", default=None, metavar="TIME", help="Start at 14:00, 2026-03-01T14:00, or 5m from now.")
def retry(chosen: ChosenRuns, at: str | None) -> None:
    """Send failed, cancelled or broken runs back to their queue, to start at once or at a time.

    \b
    Examples:
      mainspring runs retry 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs retry status:failed queue:mail since:1h --dry-run --app shop:app
    """
    app = chosen.app
    moment = None if at is None else read_moment(at, app.now(), app.timezone)
    chosen.each("retry", at=moment)


@runs.command()
@click.argument("run_id", metavar="ID")
@click.argument("words", metavar="[ARG|NAME=VALUE]...", nargs=-1)
@click.option("--at", default=None, metavar="TIME", help="Start at 14:00, 2026-03-01T14:00, or 5m from now.")
@policy_options
@json_option
@on_app
def again(app: Mainspring, run_id: str, words: tuple[str, ...], at: str | None, as_json: bool, **options: Any) -> None:
    """Enqueue the call of a run once more; arguments, if any are given, replace all that it had.

    The new run keeps the queue and the policy of the old one but for what is given. Arguments are read as by
    `mainspring enqueue`.

    \b
    Examples:
      mainspring runs again 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs again 019a8c3b5e7d0c4f2a cat.png width=200 --queue slow --app shop:app
    """
    args, kwargs = read_arguments(words) if words else (None, None)
    moment = None if at is None else read_moment(at, app.now(), app.timezone)
    try:
        with usage_errors(command(f"runs show {run_id}")):
            made = app.again(run_id, args=args, kwargs=kwargs, **policy_of(**options, at=moment))
    except RunNotFound as error:
        raise CommandFailed(str(error), command("runs list")) from None
    if as_json:
        return print_json({"id": made.id, "copied_from": run_id})
    return echo(f"enqueued {visible(made.id)}")


@runs.command(cls=FilterCommand)
@on_runs
def cancel(chosen: ChosenRuns) -> None:
    """Cancel waiting runs at once, and stop running ones.

    \b
    Examples:
      mainspring runs cancel 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs cancel status:waiting task:send* --dry-run --app shop:app
    """
    chosen.each("cancel")


@runs.command(cls=FilterCommand)
@click.option("--to", "queue", required=True, metavar="QUEUE", callback=read_queue, help="The queue to wait in.")
@on_runs
def move(chosen: ChosenRuns, queue: str) -> None:
    """Move waiting runs to another queue.

    \b
    Examples:
      mainspring runs move 019a8c3b5e7d0c4f2a --to slow --app shop:app
      mainspring runs move status:waiting task:resize --to slow --dry-run --app shop:app
    """
    chosen.each("move", queue=queue)


@runs.command(cls=FilterCommand)
@click.option("--until", required=True, metavar="TIME", help="14:00, 2026-03-01T14:00, or 5m from now.")
@on_runs
def postpone(chosen: ChosenRuns, until: str) -> None:
    """Let waiting runs start at another time, later or earlier.

    \b
    Examples:
      mainspring runs postpone 019a8c3b5e7d0c4f2a --until 2h --app shop:app
      mainspring runs postpone status:waiting queue:mail --until 18:00 --dry-run --app shop:app
    """
    chosen.each("postpone", at=read_moment(until, chosen.app.now(), chosen.app.timezone))


@runs.command(cls=FilterCommand)
@click.option("--priority", required=True, type=click.IntRange(-100, 100), help="From -100 to 100; 0 is usual.")
@on_runs
def prioritize(chosen: ChosenRuns, priority: int) -> None:
    """Give waiting runs another priority: higher ones start first.

    \b
    Examples:
      mainspring runs prioritize 019a8c3b5e7d0c4f2a --priority 50 --app shop:app
      mainspring runs prioritize status:waiting arg.user:42 --priority 10 --dry-run --app shop:app
    """
    chosen.each("prioritize", priority=priority)


@runs.command(cls=FilterCommand)
@on_runs
def delete(chosen: ChosenRuns) -> None:
    """Delete the records of runs that have ended.

    \b
    Examples:
      mainspring runs delete 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs delete status:succeeded until:2d --dry-run --app shop:app
    """
    chosen.each("delete")
