"""`mainspring db`: check the schema and the records of a store, migrate it, delete runs past their retention."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import FAILED, CommandFailed, command
from mainspring.cli.common.output import echo, fields, print_json
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.verbs import VerbGroup
from mainspring.core.insight.wording import several
from mainspring.errors import StoreUnavailable

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["db"]

PRUNED_AT_ONCE: Final = 1000
"""The number of runs that one step deletes, so that nodes do not wait long for it."""


@click.group(cls=VerbGroup)
def db() -> None:
    """Check the records of a store, migrate it to this version, delete runs past their retention.

    \b
    Example:
      mainspring db check --app shop:app
    """


@db.command()
@json_option
@on_app
def check(app: Mainspring, as_json: bool) -> None:
    """Check that this version knows the schema of the store, and that its records can be read; change nothing.

    Ends with 1 if something is wrong.

    \b
    Example:
      mainspring db check --app shop:app
    """
    found = _examine(app)
    if as_json:
        print_json(found)
    else:
        schema = "none" if found["schema"] is None else str(found["schema"])
        pairs = [("store", found["version"] or "it answers"), ("schema", schema), ("jobs", f"{found['jobs']:,}")]
        pairs += [("runs", f"{found['runs']:,}"), ("broken", f"{found['broken']:,}")]
        fields([*pairs, ("unreadable", f"{len(found['unreadable']):,}")])
        for problem in found["problems"]:
            click.echo(problem, err=True)
    if found["problems"]:
        raise click.exceptions.Exit(FAILED)


def _examine(app: Mainspring) -> dict[str, Any]:
    """Read the facts about a store, and its faults."""
    mismatch = _mismatch(app)
    if mismatch:
        return _nothing() | {"problems": [mismatch]}
    health = app.store.health()
    jobs, unreadable = app.store.examine_jobs()
    found = _nothing() | {
        "version": health.version,
        "schema": health.schema,
        "jobs": len(jobs) + len(unreadable),
        "runs": app.count(),
        "broken": len(app.broken()),
        "unreadable": dict(sorted(unreadable.items())),
    }
    if found["broken"]:
        found["problems"].append(f"{found['broken']:,} records were set aside: {command('broken list')}")
    for job_id, reason in found["unreadable"].items():
        found["problems"].append(f"job {job_id!r} cannot be read here: {reason}")
    return found


def _nothing() -> dict[str, Any]:
    return {"version": "", "schema": None, "jobs": 0, "runs": 0, "broken": 0, "unreadable": {}, "problems": []}


def _mismatch(app: Mainspring) -> str:
    """Return the sentence about a schema that this version does not know; empty if it knows it."""
    try:
        app.now()  # opening a store compares its schema
    except StoreUnavailable as error:
        if getattr(error, "schema", None) is None:
            raise
        return str(error)
    return ""


@db.command()
@on_app
def migrate(app: Mainspring) -> None:
    """Bring the tables of a store to the schema of this version.

    No migration exists yet: tables of another schema need the version of mainspring that wrote them.

    \b
    Example:
      mainspring db migrate --app shop:app
    """
    mismatch = _mismatch(app)
    if mismatch:
        raise CommandFailed(mismatch, command("db check"))
    schema = app.store.health().schema
    known = "" if schema is None else f": the store has schema {schema}, as this version wants it"
    echo(f"nothing to migrate{known}")


@db.command()
@click.option("--most", type=click.IntRange(1), default=None, help="Delete at most this many runs.")
@on_app
def prune(app: Mainspring, most: int | None) -> None:
    """Delete ended runs that are past their retention now; nodes do the same, a little at a time.

    \b
    Example:
      mainspring db prune --app shop:app
    """
    *_, number = _with_counter(_pruned(app, most))
    echo(f"deleted {several(number, 'run')}")


def _pruned(app: Mainspring, most: int | None) -> Iterator[int]:
    """Delete runs past their retention, step by step; yield the number so far."""
    number = 0
    while most is None or number < most:
        limit = PRUNED_AT_ONCE if most is None else min(PRUNED_AT_ONCE, most - number)
        deleted = app.store.prune(limit)
        number += deleted
        yield number
        if not deleted:
            return


def _with_counter(numbers: Iterator[int]) -> Iterator[int]:
    """Pass numbers on under a moving bar, which only a terminal shows: the total is unknown."""
    if not sys.stderr.isatty():
        yield from numbers
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("prune"), BarColumn(), TextColumn("{task.completed:,.0f} runs deleted"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("prune", total=None)
        for number in numbers:
            progress.update(task, completed=number)
            yield number
        progress.update(task, total=max(1, number), completed=max(1, number))
