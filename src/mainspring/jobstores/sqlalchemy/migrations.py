"""The steps from each schema to the next. A node that opens a store takes those that are missing, one by one.

A step and the number that records it are one transaction, under the lock that creating the tables takes. MariaDB
commits with every statement that changes a table, so a step must be repeatable: killed half-way, it is taken again from
its start. Whoever adds a step also changes `Tables`, the description that new stores are made by.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Tx

__all__ = ["FIRST", "STEPS", "SchemaTooNew", "Step", "first_rows", "missing", "newest", "stop_older", "take", "unheard"]

FIRST: Final = 1
"""The schema of the first release."""


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


def missing(tx: Tx) -> Step | None:
    """Return the next step to take."""
    row = tx.one("SELECT value FROM {meta} WHERE name = 'schema'")
    if row is None:
        raise StoreUnavailable("the table meta has lost its row 'schema'; restore it from a backup")
    return next((step for step in STEPS if step.version > row[0]), None)


def stop_older(tx: Tx, step: Step) -> int:
    """Forbid older nodes to claim and fire, before the step is taken."""
    return tx.run("UPDATE {meta} SET value = ? WHERE name = 'oldest_reader' AND value < ?", *(step.version,) * 2)


def unheard(tx: Tx, since: int) -> list[str]:
    """Return the nodes that are alive and have not looked at the schema since a time: they may still be claiming."""
    rows = tx.all("SELECT info FROM {nodes} WHERE expires_at > ?", tx.now)
    infos = [msgspec.json.decode(bytes(info), type=NodeInfo) for (info,) in rows]
    return sorted(info.id for info in infos if info.beat_at < since)


def take(tx: Tx, step: Step) -> bool:
    """Take a step under the lock, unless another node was first."""
    if missing(tx) != step:
        return False
    step.change(tx)
    tx.run("UPDATE {meta} SET value = ? WHERE name = 'schema'", step.version)
    return True
