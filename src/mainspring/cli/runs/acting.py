"""`mainspring runs`: send runs back, run them again, cancel, move, postpone, prioritize, delete them."""

from __future__ import annotations

from typing import Any, Final

import click

from mainspring.cli.common.choosing import FilterCommand, act_on_runs, words_of
from mainspring.cli.common.output import echo, print_json
from mainspring.cli.common.reading import policy_of, policy_options, read_arguments, read_moment
from mainspring.cli.common.target import USAGE, CommandFailed, command, json_option, opened, target_options, why_option
from mainspring.cli.common.visible import visible
from mainspring.cli.runs.group import runs
from mainspring.core.run import FINAL, UNFINISHED, WAITING, Status
from mainspring.core.validation import check_queue
from mainspring.errors import MainspringError, RunNotFound

__all__ = ["again", "cancel", "delete", "move", "postpone", "prioritize", "retry"]

_RETRYABLE: Final = (Status.FAILED, Status.CANCELLED, Status.BROKEN)


def _bulk(func: Any) -> Any:
    func = why_option(target_options(func))
    func = click.option("-y", "--yes", is_flag=True, help="Do not ask before acting on all that match.")(func)
    func = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(func)
    return click.argument("words", metavar="ID...|FILTER...", nargs=-1)(func)


@runs.command(cls=FilterCommand)
@_bulk
@click.option("--at", default=None, metavar="TIME", help="Start at 14:00, 2026-03-01T14:00, or 5m from now.")
def retry(words: tuple[str, ...], at: str | None, dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Send failed, cancelled or broken runs back to their queue, to start at once or at a time.

    \b
    Examples:
      mainspring runs retry 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs retry status:failed queue:mail since:1h --dry-run --app shop:app
    """
    with opened(where, name) as app:
        moment = None if at is None else read_moment(at, app.now(), app.timezone)
        act_on_runs(
            app, words_of(words), verb="retry", done="sent back", able=_RETRYABLE,
            act=lambda run_id: app.retry(run_id, at=moment), dry_run=dry_run, yes=yes,
        )  # fmt: skip


@runs.command()
@click.argument("run_id", metavar="ID")
@click.argument("words", metavar="[ARG|NAME=VALUE]...", nargs=-1)
@click.option("--at", default=None, metavar="TIME", help="Start at 14:00, 2026-03-01T14:00, or 5m from now.")
@policy_options
@json_option
@target_options
def again(
    run_id: str, words: tuple[str, ...], at: str | None, as_json: bool, where: str | None, name: str, **options: Any
) -> None:
    """Enqueue the call of a run once more; arguments, if any are given, replace all that it had.

    The new run keeps the queue and the policy of the old one but for what is given. Arguments are read as by
    `mainspring enqueue`.

    \b
    Examples:
      mainspring runs again 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs again 019a8c3b5e7d0c4f2a cat.png width=200 --queue slow --app shop:app
    """
    with opened(where, name) as app:
        args, kwargs = read_arguments(words) if words else (None, None)
        moment = None if at is None else read_moment(at, app.now(), app.timezone)
        try:
            made = app.again(run_id, args=args, kwargs=kwargs, **policy_of(**options, at=moment))
        except RunNotFound as error:
            raise CommandFailed(str(error), command("runs list")) from None
        except (TypeError, ValueError) as error:
            if isinstance(error, OSError | MainspringError):
                raise
            raise CommandFailed(str(error), command(f"runs show {run_id}"), USAGE) from None
    if as_json:
        return print_json({"id": made.id, "copied_from": run_id})
    return echo(f"enqueued {visible(made.id)}")


@runs.command(cls=FilterCommand)
@_bulk
def cancel(words: tuple[str, ...], dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Cancel runs: those that wait at once, those that run by stopping them.

    \b
    Examples:
      mainspring runs cancel 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs cancel status:waiting task:send* --dry-run --app shop:app
    """
    with opened(where, name) as app:
        act_on_runs(
            app,
            words_of(words),
            verb="cancel",
            done="cancelled",
            able=UNFINISHED,
            act=app.cancel,
            dry_run=dry_run,
            yes=yes,
        )


@runs.command(cls=FilterCommand)
@click.option("--to", "queue", required=True, metavar="QUEUE", help="The queue to wait in.")
@_bulk
def move(words: tuple[str, ...], queue: str, dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Have runs that wait wait in another queue.

    \b
    Examples:
      mainspring runs move 019a8c3b5e7d0c4f2a --to slow --app shop:app
      mainspring runs move status:waiting task:resize --to slow --dry-run --app shop:app
    """
    try:
        check_queue(queue)
    except ValueError as error:
        raise CommandFailed(str(error), code=USAGE) from None
    with opened(where, name) as app:
        act_on_runs(
            app, words_of(words), verb="move", done="moved", able=WAITING,
            act=lambda run_id: app.move(run_id, queue), dry_run=dry_run, yes=yes,
        )  # fmt: skip


@runs.command(cls=FilterCommand)
@click.option("--until", required=True, metavar="TIME", help="14:00, 2026-03-01T14:00, or 5m from now.")
@_bulk
def postpone(words: tuple[str, ...], until: str, dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Let runs that wait start at another time, later or earlier.

    \b
    Examples:
      mainspring runs postpone 019a8c3b5e7d0c4f2a --until 2h --app shop:app
      mainspring runs postpone status:waiting queue:mail --until 18:00 --dry-run --app shop:app
    """
    with opened(where, name) as app:
        moment = read_moment(until, app.now(), app.timezone)
        act_on_runs(
            app, words_of(words), verb="postpone", done="postponed", able=WAITING,
            act=lambda run_id: app.postpone(run_id, moment), dry_run=dry_run, yes=yes,
        )  # fmt: skip


@runs.command(cls=FilterCommand)
@click.option("--priority", required=True, type=click.IntRange(-100, 100), help="From -100 to 100; 0 is usual.")
@_bulk
def prioritize(words: tuple[str, ...], priority: int, dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Give runs that wait another priority: higher ones start first.

    \b
    Examples:
      mainspring runs prioritize 019a8c3b5e7d0c4f2a --priority 50 --app shop:app
      mainspring runs prioritize status:waiting arg.user:42 --priority 10 --dry-run --app shop:app
    """
    with opened(where, name) as app:
        act_on_runs(
            app, words_of(words), verb="prioritize", done="prioritized", able=WAITING,
            act=lambda run_id: app.prioritize(run_id, priority), dry_run=dry_run, yes=yes,
        )  # fmt: skip


@runs.command(cls=FilterCommand)
@_bulk
def delete(words: tuple[str, ...], dry_run: bool, yes: bool, where: str | None, name: str) -> None:
    """Delete the records of runs that have ended.

    \b
    Examples:
      mainspring runs delete 019a8c3b5e7d0c4f2a --app shop:app
      mainspring runs delete status:succeeded until:2d --dry-run --app shop:app
    """
    with opened(where, name) as app:
        act_on_runs(
            app, words_of(words), verb="delete", done="deleted", able=FINAL, act=app.delete, dry_run=dry_run, yes=yes
        )
