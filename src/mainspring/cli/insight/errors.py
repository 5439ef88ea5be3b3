"""`mainspring errors`: failed runs, grouped by their error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.choosing import FilterCommand, read_filter, words_of
from mainspring.cli.common.failing import FAILED, command
from mainspring.cli.common.output import Column, ago, print_json, table
from mainspring.cli.common.target import json_option, on_app
from mainspring.core.instants import to_us
from mainspring.core.showing.failures import group_errors
from mainspring.core.showing.searching import MOST_RUNS_SEARCHED, search

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.showing.failures import ErrorGroup

__all__ = ["errors"]


@click.command(cls=FilterCommand)
@click.argument("words", metavar="[FILTER]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Look through all failed runs, not only the newest 10,000.")
@json_option
@on_app
def errors(app: Mainspring, words: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Group failed runs by their error: its type, and the place in your code where it was raised.

    FILTER is that of `mainspring runs`.

    \b
    Examples:
      mainspring errors since:1h --app shop:app
      mainspring errors status:failed,retrying queue:mail --app shop:app
    """
    given = words_of(words)
    chosen = given if any(" status:" in f" {word}" for word in given) else ["status:failed", *given]
    wanted = read_filter(app, chosen)
    most = None if everything else MOST_RUNS_SEARCHED
    page = search(app.runs, wanted, limit=most or 10**9, most=most)
    groups, now = group_errors(page.runs), app.now()
    if as_json:
        print_json([_to_json(group) for group in groups])
    elif groups:
        columns = (
            Column("count", right=True), Column("error", cut=True), Column("place", cut=True),
            Column("last", right=True), Column("newest run"), Column("message", cut=True, optional=True),
            Column("tasks", cut=True, optional=True),
        )  # fmt: skip
        table(columns, [_row(group, now) for group in groups])
        click.echo(f"look into one: {command('runs show ' + groups[0].run_ids[0])}", err=True)
    else:
        click.echo("no failed run matches" if given else "no failed runs are kept", err=True)
    if not page.complete:
        click.echo(f"looked through the newest {page.looked_through:,} runs: add --all to go on", err=True)
    if not groups:
        raise click.exceptions.Exit(FAILED)


def _row(group: ErrorGroup, now: int) -> list[str]:
    last = ago(now - to_us(group.newest.at))
    tasks = ", ".join(sorted(group.tasks, key=lambda task: -group.tasks[task]))
    return [f"{group.count:,}", group.type, group.place, last, group.run_ids[0], group.newest.message, tasks]


def _to_json(group: ErrorGroup) -> dict[str, Any]:
    return {
        "key": group.key,
        "type": group.type,
        "place": group.place,
        "count": group.count,
        "message": group.newest.message,
        "first_seen": group.oldest.at,
        "last_seen": group.newest.at,
        "tasks": group.tasks,
        "runs": group.run_ids,
    }
