"""`mainspring move`: move jobs and runs from one store to another, while nodes work on both."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from mainspring.app.moving.mover import Movable, Moved, Mover
from mainspring.cli.common.choosing import ask
from mainspring.cli.common.failing import USAGE, CommandFailed
from mainspring.cli.common.output import echo
from mainspring.cli.common.target import opened
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import listed, several
from mainspring.core.showing.redaction import without_password

__all__ = ["move"]


@click.command()
@click.option("--from", "source", required=True, metavar="MODULE:APP|URL", help="The store to move from.")
@click.option("--to", "target", required=True, metavar="MODULE:APP|URL", help="The store to move to.")
@click.option("--name", default="mainspring", show_default=True, help="The app's name, for URLs.")
@click.option("--to-name", default=None, help="The app's name at the target, if it is another one.")
@click.option("--history/--no-history", default=True, help="Copy ended runs, too.  [default: history]")
@click.option("--wait", is_flag=True, help="Wait until no run runs at the source; move the flows that were underway.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved, and what stays.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before it is done.")
def move(
    source: str, target: str, name: str, to_name: str | None, history: bool, wait: bool, dry_run: bool, yes: bool
) -> None:
    """Move jobs and waiting runs from one store to another, and copy ended runs, while nodes work on both.

    Each run starts once, at one of the two, and each job fires at one of the two. If the command is killed half way,
    call it again: it goes on where it was. Running runs end where they are, and the flows that they are part of stay
    until then; --wait waits for them. Have your apps enqueue to the target from now on.

    \b
    Example:
      mainspring move --from sqlite:///jobs.db --to postgresql://db/shop --dry-run
    """
    with opened(source, name) as here, opened(target, to_name or name, must_exist=False) as there:
        if here.store.volatile or there.store.volatile:
            raise CommandFailed("a store in memory ends with its process; name two that last", code=USAGE)
        if (str(here.url), here.name) == (str(there.url), there.name):
            raise CommandFailed("--from and --to name the same store", code=USAGE)
        mover = Mover(here.store, there.store)
        found = mover.look()
        if not history:
            found.ended = 0
        if dry_run:
            echo(f"{_what(found)} would be moved{_copies(found.ended, ' would be copied')}")
            return _say_what_stays(found)
        _refuse_taken(mover.taken(found.jobs), target)
        ask(
            f"{_what(found)} will be moved{_copies(found.ended, ' will be copied')}. Go on?",
            f"mainspring move --from {without_password(source)} --to {without_password(target)} --dry-run",
            yes,
        )
        moved = mover.move(found, history=history, wait=wait, watch=_under_bar, say=_say_running)
        echo(f"moved {several(moved.jobs, 'job')} and {several(moved.runs, 'run')}{_copies(moved.ended, ' copied')}")
        return _say_what_stays(moved)


def _refuse_taken(taken: list[str], target: str) -> None:
    if taken:
        shown = listed(list(map(repr, taken)), 5)
        raise CommandFailed(
            f"the target has jobs of the same ids ({shown}); nothing was moved",
            f"mainspring jobs remove {taken[0]} --app {without_password(target)}",
        )


def _under_bar(numbers: Iterator[int], total: int, label: str) -> Iterator[int]:
    if total < 2 or not sys.stderr.isatty():
        yield from numbers
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        for number in numbers:
            bar.update(number)
            yield number


def _say_running(running: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\rwaiting for {several(running, 'run')} to end ... ", nl=False, err=True)


def _say_what_stays(found: Movable | Moved) -> None:
    for why, number in sorted(found.stays.items()):
        click.echo(f"{number:,} stay: {visible(why)}", err=True)


def _what(found: Movable) -> str:
    return f"{several(len(found.jobs), 'job')} and {several(found.runs, 'run')}"


def _copies(number: int, verb: str) -> str:
    return f", {several(number, 'ended run')}{verb}" if number else ""
