"""The steps from each schema to the next. A node that opens a store takes those that are missing, one by one.

A step and the number that records it are one transaction, under the lock that creating the tables takes. MariaDB
commits with every statement that changes a table, so a step must be repeatable: killed half-way, it is taken again from
its start. Whoever adds a step also changes `Tables`, the description that new stores are made by.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Tx

__all__ = [
    "FIRST",
    "STEPS",
    "SchemaTooNew",
    "Step",
    "altered",
    "first_rows",
    "mend",
    "missing",
    "newest",
    "node_info",
    "number",
    "oldest_reader",
    "stop_older",
    "take",
    "unheard",
]

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

FIRST: Final = 2
"""The schema of the first release."""
MARGIN: Final = 1_000_000
"""Versions that processes may have been given and not used yet."""
_MOST: Final = 2**62
"""No number in `meta` comes near this."""


class Step(NamedTuple):
    """A change of the tables."""

    version: int
    """The schema that it leads to."""
    change: Callable[[Tx], None]
    """Makes the change; `tx.database.kind` tells the dialect."""
    stops_older: bool
    """Whether nodes that do not know it must not claim and fire any more."""


STEPS: Final[list[Step]] = []
"""All steps, by version."""


class SchemaTooNew(StoreUnavailable):
    """The tables were migrated by a newer release that this one must not work beside."""

    def __init__(self, oldest_reader: int, reader: int) -> None:
        super().__init__(oldest_reader, reader)
        self.oldest_reader, self.reader = oldest_reader, reader

    def __str__(self) -> str:
        return (
            f"the database was migrated for nodes that read schema {self.oldest_reader} or newer and this one reads "
            f"{self.reader}: it claims and fires nothing any more; upgrade mainspring on this node"
        )


def newest() -> int:
    """Return the schema that this release knows."""
    return STEPS[-1].version if STEPS else FIRST


def first_rows(schema: int) -> list[tuple[str, int]]:
    """Return the rows of `meta` that a new store starts with."""
    oldest = max((step.version for step in STEPS if step.stops_older and step.version <= schema), default=FIRST)
    rows = [("schema", schema), ("oldest_reader", oldest), ("versions", 0), ("clock", 0), ("stirs", 0)]
    return [*rows, ("made", random.getrandbits(62))]


def number(tx: Tx, name: str) -> int | None:
    """Return a number that the store keeps of itself; None if somebody has deleted or altered it."""
    rows = tx.raw("SELECT value FROM {meta} WHERE name = ?", name)
    value = rows[0][0] if rows else None
    return value if isinstance(value, int) and 0 <= value < _MOST else None


def altered(tx: Tx) -> list[str]:
    """Return the names of the numbers that are not there, or are none."""
    return [name for name, _ in first_rows(newest()) if number(tx, name) is None]


def mend(tx: Tx, least: int = 0) -> None:
    """Put back the numbers that are not there or are none; versions begin anew above all that are in use."""
    steps = FIRST if STEPS else newest()  # a step may be taken again, but must not be left out
    for name, value in first_rows(steps):
        known = number(tx, name)
        if known is not None and (name != "versions" or known >= least):
            continue
        if name == "versions":
            [(highest,)] = tx.all(f"SELECT max(version) FROM {{jobs}} WHERE version BETWEEN 0 AND {_MOST}")
            value = max(least, int(highest or 0)) + MARGIN
        log.error("the store's own number %r was altered or deleted; it goes on with %d", name, value)
        tx.run("DELETE FROM {meta} WHERE name = ?", name)
        tx.insert("meta", ("name", "value"), [(name, value)])


def missing(tx: Tx) -> Step | None:
    """Return the next step to take."""
    schema = number(tx, "schema")
    return next((step for step in STEPS if step.version > (FIRST if schema is None else schema)), None)


def oldest_reader(tx: Tx) -> int | None:
    """Return the oldest release that may work here; None if what is said of it was not announced, so was altered."""
    oldest = number(tx, "oldest_reader")
    if oldest is None or oldest > max(number(tx, "schema") or 0, number(tx, "announced") or 0):
        return None
    return oldest


def stop_older(tx: Tx, step: Step) -> int:
    """Forbid older nodes to claim and fire, before the step is taken."""
    tx.run("DELETE FROM {meta} WHERE name = 'announced'")
    tx.insert("meta", ("name", "value"), [("announced", step.version)])
    return tx.run("UPDATE {meta} SET value = ? WHERE name = 'oldest_reader' AND value < ?", *(step.version,) * 2)


def unheard(tx: Tx, since: int) -> list[str]:
    """Return the nodes that are alive and have not looked at the schema since a time: they may still be claiming."""
    rows = tx.all("SELECT info FROM {nodes} WHERE expires_at > ?", tx.now)
    infos = [info for row in rows if (info := node_info(row[0])) is not None]
    return sorted(info.id for info in infos if info.beat_at < since)


def node_info(said: Any) -> NodeInfo | None:
    """Return what a node says of itself; None if somebody has altered it, which its next beat puts right."""
    try:
        return msgspec.json.decode(bytes(said), type=NodeInfo)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def take(tx: Tx, step: Step) -> bool:
    """Take a step under the lock, unless another node was first."""
    if missing(tx) != step:
        return False
    step.change(tx)
    tx.run("UPDATE {meta} SET value = ? WHERE name = 'schema'", step.version)
    return True
