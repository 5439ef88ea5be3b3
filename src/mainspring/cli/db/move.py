"""`mainspring move`: move jobs and waiting runs from one store to another, while nodes work on both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mainspring.cli.common.choosing import ask
from mainspring.cli.common.output import echo, with_progress
from mainspring.cli.common.target import USAGE, CommandFailed, opened
from mainspring.cli.common.visible import visible
from mainspring.cli.db.moving import Movable, Mover
from mainspring.core.redaction import without_password

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["move"]


@click.command()
@click.option("--from", "source", required=True, metavar="MODULE:APP|URL", help="The store to move from.")
@click.option("--to", "target", required=True, metavar="MODULE:APP|URL", help="The store to move to.")
@click.option("--name", default="mainspring", show_default=True, help="The app's name, for URLs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved, and what stays.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before it is done.")
def move(source: str, target: str, name: str, dry_run: bool, yes: bool) -> None:
    """Move jobs, and runs that wait, from one store to another, while nodes work on both.

    Each run starts once, at one of the two, and each job fires at one of the two. If the command is killed half way,
    call it again within a week: it goes on where it was. Runs that run end where they are, as do those that are
    gathered, with their group; ended runs stay as history. Have your apps enqueue to the target from now on.

    \b
    Example:
      mainspring move --from sqlite:///jobs.db --to postgresql://db/shop --dry-run
    """
    with opened(source, name) as here, opened(target, name, must_exist=False) as there:
        if here.store.volatile or there.store.volatile:
            raise CommandFailed("a store in memory ends with its process; name two that last", code=USAGE)
        if _place(here) == _place(there):
            raise CommandFailed("--from and --to name the same store", code=USAGE)
        mover = Mover(here.store, there.store)
        found = mover.look()
        if dry_run:
            echo(f"{_number(len(found.jobs), 'job')} and {_number(found.runs, 'run')} would be moved")
            return _say_what_stays(found)
        taken = mover.taken(found.jobs)
        if taken:
            shown = ", ".join(map(repr, taken[:5])) + (", ..." if len(taken) > 5 else "")
            raise CommandFailed(
                f"the target has jobs of the same ids ({shown}); nothing was moved",
                f"mainspring jobs remove {taken[0]} --app {without_password(target)}",
            )
        question = f"{_number(len(found.jobs), 'job')} and {_number(found.runs, 'run')} will be moved. Go on?"
        ask(
            question,
            f"mainspring move --from {without_password(source)} --to {without_password(target)} --dry-run",
            yes,
        )
        jobs, runs = _move(here, there, mover, found)
        echo(f"moved {_number(jobs, 'job')} and {_number(runs, 'run')}")
        return _say_what_stays(mover.look())


def _place(app: Mainspring) -> tuple[str, str]:
    return str(app.url), app.name


def _move(here: Mainspring, there: Mainspring, mover: Mover, found: Movable) -> tuple[int, int]:
    for queue in here.queues():
        if queue.limit:
            there.limit_queue(queue.name, abs(queue.limit))
        if queue.paused:  # so that nothing starts there that was not to start here
            there.pause_queue(queue.name)
    runs = mover.finish()
    jobs = sum(mover.move_job(job) for job in with_progress(found.jobs, "jobs"))
    for number in _under_bar(mover.move_runs(), found.runs):
        runs += number
    return jobs, runs


def _under_bar(numbers: Iterator[int], total: int) -> Iterator[int]:
    if total < 2 or not sys.stderr.isatty():
        yield from numbers
        return
    with click.progressbar(length=total, label="runs", file=sys.stderr) as bar:
        for number in numbers:
            bar.update(number)
            yield number


def _say_what_stays(found: Movable) -> None:
    for why, number in sorted(found.stays.items()):
        click.echo(f"{number:,} stay: {visible(why)}", err=True)


def _number(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"
