"""`mainspring broken`: list, restore or discard the jobs and runs that were set aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.output import print_json
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.verbs import VerbGroup
from mainspring.cli.common.visible import visible
from mainspring.core.instants import from_us
from mainspring.errors import ConflictingIdError
from mainspring.jobstores.base import BrokenJob

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["broken"]


@click.group(cls=VerbGroup)
def broken() -> None:
    """List, restore or discard the jobs and runs that were set aside because they could not be read.

    \b
    Example:
      mainspring broken list --app shop:app
    """


@broken.command("list")
@click.argument("target", metavar="[MODULE:APP|URL]", required=False)
@json_option
@on_app
def list_(app: Mainspring, as_json: bool) -> None:
    """Show what was set aside, and why.

    \b
    Example:
      mainspring broken list --app shop:app
    """
    found: list[dict[str, Any]] = []
    for record in app.broken():
        kind, at = ("job", record.at) if isinstance(record, BrokenJob) else ("run", record.record.finished_at)
        moment = None if at is None else from_us(at).astimezone(app.timezone)
        found.append({"kind": kind, "id": record.id, "since": moment, "reason": record.reason or ""})
    if as_json:
        return print_json(found)
    for each in found:
        since = "" if each["since"] is None else f"{each['since']:%Y-%m-%d %H:%M:%S}"
        click.echo(f"{each['kind']}  {visible(each['id'])}  {since}  {visible(each['reason'])}")
    if not found:
        click.echo("nothing is set aside")
    return None


@broken.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@on_app
def restore(app: Mainspring, ids: tuple[str, ...]) -> None:
    """Put records back as they were, once you have fixed what was wrong with them.

    \b
    Example:
      mainspring broken restore nightly_report --app shop:app
    """
    _act(ids, app.restore, "restored")


@broken.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@on_app
def discard(app: Mainspring, ids: tuple[str, ...]) -> None:
    """Delete records that were set aside, for good.

    \b
    Example:
      mainspring broken discard nightly_report --app shop:app
    """
    _act(ids, app.discard, "discarded")


def _act(ids: tuple[str, ...], act: Callable[[str], bool], done: str) -> None:
    """Act on each record; name the failed ones, and exit with an error if there are any."""
    failed = False
    for record_id in ids:
        try:
            problem = "" if act(record_id) else "nothing of that id is set aside"
        except ConflictingIdError:
            problem = "another job has that id; remove that job first, or discard this record"
        if problem:
            failed = True
            click.echo(f"{visible(record_id)}: {problem}", err=True)
        else:
            click.echo(f"{done} {visible(record_id)}")
    if failed:
        raise click.exceptions.Exit(1)
