"""`mainspring queues`: list queues and their runs; pause, resume, limit, purge them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import USAGE, CommandFailed, command, usage_errors
from mainspring.cli.common.output import Column, echo, print_json, table
from mainspring.cli.common.target import json_option, on_app, opened, target_options, why_option
from mainspring.cli.common.verbs import VerbGroup
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import duration
from mainspring.core.run import HELD_PREFIX
from mainspring.core.validation import check_queue
from mainspring.errors import near

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobstores.base import NodeInfo

__all__ = ["queue_cells", "queues", "queues_data"]


@click.group(cls=VerbGroup)
def queues() -> None:
    """Show the runs that wait in queues; pause, resume, limit or purge queues.

    \b
    Example:
      mainspring queues list --app shop:app
    """


@queues.command("list")
@json_option
@on_app
def list_(app: Mainspring, as_json: bool) -> None:
    """Show the queues: how many runs wait, are delayed or run, and for how long the oldest has been due.

    \b
    Example:
      mainspring queues list --app shop:app
    """
    found = queues_data(app, app.nodes(), app.now())
    if as_json:
        return print_json(found)
    columns = (
        Column("queue", cut=True), Column("state"), Column("waiting", right=True), Column("delayed", right=True),
        Column("blocked", right=True), Column("running", right=True), Column("limit", right=True),
        Column("oldest", right=True),
    )  # fmt: skip
    return table(columns, [queue_cells(queue) for queue in found])


def queues_data(app: Mainspring, nodes: Sequence[NodeInfo], now: int) -> list[dict[str, Any]]:
    """Return the queues of an app as data."""
    served = {queue for node in nodes if node.state != "silent" for queue in node.queues}
    return [
        {
            "name": queue.name,
            "state": "paused"
            if queue.paused
            else "served"
            if queue.name in served
            else "held"
            if queue.name.startswith(HELD_PREFIX)
            else "unserved",
            "waiting": queue.waiting,
            "delayed": queue.delayed,
            "blocked": queue.blocked,
            "running": queue.running,
            "limit": abs(queue.limit) if queue.limit else None,
            "oldest_seconds": None if queue.oldest_at is None else max(0, now - queue.oldest_at) / 1e6,
        }
        for queue in app.queues()
    ]


def queue_cells(queue: Mapping[str, Any]) -> list[str]:
    """Return the cells of a queue: name, state, numbers of runs, limit, age of the oldest."""
    numbers = [f"{queue[kind]:,}" for kind in ("waiting", "delayed", "blocked", "running")]
    limit, oldest = queue["limit"], queue["oldest_seconds"]
    return [
        queue["name"],
        queue["state"],
        *numbers,
        "" if limit is None else f"{limit:,}",
        "" if oldest is None else duration(round(oldest * 1e6)),
    ]


def _check_known(app: Mainspring, names: Sequence[str], force: bool) -> None:
    """Refuse a name that no queue has: it is probably misspelt."""
    known = {queue.name for queue in app.queues()} | {queue for node in app.nodes() for queue in node.queues}
    for each in names:
        if each not in known and not force:
            raise CommandFailed(
                f"there is no queue {each!r} (--force acts nevertheless){near(each, known)}", command("queues list")
            )


def _acting(func: Any) -> Any:
    func = why_option(on_app(func))
    func = click.option("--force", is_flag=True, help="Also a queue that is empty and that nobody serves.")(func)
    return click.argument("names", metavar="QUEUE...", nargs=-1, required=True)(func)


@queues.command()
@_acting
def pause(app: Mainspring, names: tuple[str, ...], force: bool) -> None:
    """Let no node claim runs of these queues until they are resumed; started runs go on.

    \b
    Example:
      mainspring queues pause mail --app shop:app
    """
    _each(app, names, force, app.pause_queue, "paused")


@queues.command()
@_acting
def resume(app: Mainspring, names: tuple[str, ...], force: bool) -> None:
    """Let nodes claim the runs of queues again.

    \b
    Example:
      mainspring queues resume mail --app shop:app
    """
    _each(app, names, force, app.resume_queue, "resumed")


@queues.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("number", metavar="NUMBER|none")
@click.option("--force", is_flag=True, help="Also a queue that is empty and that nobody serves.")
@why_option
@target_options
def limit(queue: str, number: str, force: bool, where: str | None, name: str) -> None:
    """Limit how many runs of a queue run at once, on all nodes together.

    \b
    Examples:
      mainspring queues limit mail 10 --app shop:app
      mainspring queues limit mail none --app shop:app
    """
    if number != "none" and not (number.isdecimal() and int(number)):
        raise CommandFailed(f"{number!r} is no limit: give a whole number of at least 1, or none", code=USAGE)
    with opened(where, name) as app:
        _check_known(app, [queue], force)
        with usage_errors():
            check_queue(queue)
        app.limit_queue(queue, None if number == "none" else int(number))
    echo(
        f"lifted the limit of {visible(queue)}" if number == "none" else f"limited {visible(queue)} to {number} at once"
    )


@queues.command("limit-key")
@click.argument("key", metavar="KEY")
@click.argument("number", metavar="NUMBER|none")
@why_option
@target_options
def limit_key(key: str, number: str, where: str | None, name: str) -> None:
    """Limit how many runs of a key run at once, whatever their task says; none takes that back.

    \b
    Examples:
      mainspring queues limit-key tenant-7 5 --app shop:app
      mainspring queues limit-key tenant-7 none --app shop:app
    """
    if number != "none" and not number.isdecimal():
        raise CommandFailed(f"{number!r} is no limit: give a whole number, or none", code=USAGE)
    with opened(where, name) as app:
        app.set_limit(key, None if number == "none" else int(number))
    echo(
        f"{visible(key)} has the limit of its task"
        if number == "none"
        else f"limited {visible(key)} to {number} at once"
    )


@queues.command()
@json_option
@on_app
def limits(app: Mainspring, as_json: bool) -> None:
    """Show the limits of keys that were set at run time; `queues list` shows those of queues.

    \b
    Example:
      mainspring queues limits --app shop:app
    """
    found = app.limits()
    if as_json:
        return print_json(found)
    columns = (Column("key", cut=True), Column("limit", right=True))
    return table(columns, [[key, f"{number:,}"] for key, number in found.items()])


def _each(app: Any, names: tuple[str, ...], force: bool, act: Callable[[str], None], done: str) -> None:
    _check_known(app, names, force)
    for name in names:
        with usage_errors():
            check_queue(name)
        act(name)
        echo(f"{done} {visible(name)}")


@queues.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for the queue's name again.")
@why_option
@on_app
def purge(app: Mainspring, queue: str, dry_run: bool, yes: bool) -> None:
    """Cancel all runs of a queue that have not started.

    \b
    Examples:
      mainspring queues purge mail --dry-run --app shop:app
      mainspring queues purge mail --yes --app shop:app
    """
    _check_known(app, [queue], force=False)
    number = app.count(status="pending", queue=queue)
    if dry_run:
        return echo(f"{number:,} would be cancelled")
    if not yes:
        _ask_for_name(queue, number)
    return echo(f"cancelled {app.purge(queue):,} of {visible(queue)}")


def _ask_for_name(queue: str, number: int) -> None:
    what = f"{number:,} waiting and delayed runs of {visible(queue)} will be cancelled."
    if not sys.stdin.isatty():
        raise CommandFailed(f"{what} Say so with --yes", command(f"queues purge {queue} --dry-run"), USAGE)
    if click.prompt(f"{what} Type the queue's name to go on", err=True) != queue:
        raise CommandFailed("that is not its name; nothing was done", command("queues list"))
