"""A SQLite store that counts what a page asks of it, and refuses to scan.

SQLite calls a progress handler every so many instructions of its virtual machine. That number depends on the rows that
a statement looks at and on nothing else, so a scan is refused by its cost, whatever way it was written.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from mainspring import Mainspring

__all__ = ["StoreMeter", "metered", "multiply"]

STEP = 100
"""Instructions between two calls of the handler."""


class StoreMeter:
    """What was asked of a store: trips, and instructions; a trip that takes more than `most` of them is refused."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._mine = threading.local()
        self.trips = self.instructions = 0

    def begin(self) -> None:
        """Count anew."""
        with self._lock:
            self.trips = self.instructions = 0

    def trip(self) -> None:
        """Count a round trip of this thread."""
        self._mine.instructions = 0
        with self._lock:
            self.trips += 1

    def step(self) -> int:
        """Count some instructions; return 1, which ends the statement, if there were too many."""
        self.instructions += STEP
        self._mine.instructions = getattr(self._mine, "instructions", 0) + STEP
        return int(self.most is not None and self._mine.instructions > self.most)


@contextmanager
def metered(app: Mainspring, meter: StoreMeter, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meter the store of an app that lives in a SQLite file."""
    database: Any = app.store._open()  # type: ignore[attr-defined]

    def handle(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(meter.step, STEP)

    database.connections._empty()  # so that each is checked out once more
    event.listen(database.engine, "checkout", handle)
    handle(database._writer)

    def counting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **options: Any) -> Any:
            meter.trip()
            return plain(*args, **options)

        return asked

    try:
        with patch.context() as changes:
            for name in ("_read", "write"):
                changes.setattr(database, name, counting(getattr(database, name)))
            yield
    finally:
        event.remove(database.engine, "checkout", handle)
        database._writer.set_progress_handler(None, STEP)


def multiply(app: Mainspring, times: int) -> None:
    """Let the store hold every ended run so many times more, made months earlier: nobody's newest."""
    assert isinstance(app.url, str)
    connection = sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)
    name = next(row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%runs'"))
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
    others = [column for column in columns if column not in ("id", "created_at", "unique_key")]
    connection.execute("BEGIN")
    for number in range(times):
        kept = f"id || '~copy{number}', created_at - {(100 + number) * 86_400_000_000}, {', '.join(others)}"
        ended = "status IN ('succeeded', 'failed', 'cancelled', 'missed') AND instr(id, '~copy') = 0"
        into = f"INSERT INTO {name} (id, created_at, {', '.join(others)})"
        connection.execute(f"{into} SELECT {kept} FROM {name} WHERE {ended}")
    connection.execute("COMMIT")
    connection.close()
