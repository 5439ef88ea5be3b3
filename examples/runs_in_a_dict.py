"""The runs of a store in a dictionary with versions: small primitives, of which mainspring makes the whole contract.

Read it beside docs/writing-a-small-store.md, and write yours from it. A store that can compare and set one record needs
no more than this to keep flows, limits, leases and counts. `SplitJobStore(jobs, runs)` adds the jobs.

Run it: `python examples/runs_in_a_dict.py`
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from mainspring.jobstores.base import CHANGES, ENDS
from mainspring.jobstores.run_records import Order, RunRecord, RunRecords, StoreNote, Want

NEVER = 2**62

ORDERS: dict[str, Callable[[RunRecord], Any]] = {
    "urgent": lambda each: (-each.row.priority, each.row.run_at, each.row.id),
    "run_at": lambda each: each.row.run_at,
    "oldest": lambda each: (-each.row.priority, each.row.created_at, each.row.id),
    "lease": lambda each: (each.row.lease_until or 0, each.row.id),
    "expires": lambda each: each.expires_at or 0,
    "newest": lambda each: (each.row.created_at, each.row.id),
}


class DictRunRecords(RunRecords):
    """Run records in a dictionary. One lock makes each element of a batch one step; a server does that by itself."""

    volatile = True

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cursors = Counter({CHANGES: 1, ENDS: 1})
        self._runs: dict[str, RunRecord] = {}
        self._gone: dict[str, int] = {}
        self._notes: dict[tuple[str, str], StoreNote] = {}
        self._totals: Counter[str] = Counter()

    def now(self) -> int:
        return time.time_ns() // 1000

    # -- runs --------------------------------------------------------------------------------------------------

    def add(self, records: Sequence[RunRecord]) -> list[bool]:
        with self._changed:
            return [self._write(each, None) for each in records]

    def get(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        with self._changed:
            return {run_id: self._runs[run_id] for run_id in ids if run_id in self._runs}

    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        with self._changed:
            return [self._write(record, version) for record, version in writes]

    def _write(self, record: RunRecord, version: int | None) -> bool:
        row = record.row
        old = self._runs.get(row.id)
        if (None if old is None else old.version) != version:
            return False
        if row.unique is not None and self._holder(row.unique) not in (None, row.id):
            return False
        self._runs[row.id] = record
        return True

    def _holder(self, key: str) -> str | None:
        return next((each.row.id for each in self._runs.values() if each.row.unique == key), None)

    def remove(self, marks: Sequence[tuple[str, int]], until: int | None) -> list[bool]:
        with self._changed:
            done = []
            for run_id, version in marks:
                old = self._runs.get(run_id)
                done.append(old is not None and old.version == version)
                if done[-1]:
                    del self._runs[run_id]
                    if until is not None:
                        self._gone[run_id] = until
            return done

    def remembered(self, ids: Sequence[str], now: int) -> set[str]:
        with self._changed:
            return {run_id for run_id in ids if self._gone.get(run_id, 0) > now}

    def find(self, want: Want, order: Order, limit: int, skip: int = 0) -> list[RunRecord]:
        with self._changed:
            found = sorted((each for each in self._runs.values() if matches(want, each)), key=ORDERS[order])
            if order == "newest":
                found.reverse()
            return found[skip : skip + limit]

    def count(self, want: Want, by: Literal["queue", "lane", "gate", ""] = "") -> Counter[str]:
        with self._changed:
            found = [each.row for each in self._runs.values() if matches(want, each)]
        return Counter(getattr(row, by) if by else "" for row in found)

    def holders(self, keys: Sequence[str]) -> dict[str, str]:
        with self._changed:
            return {key: holder for key in keys if (holder := self._holder(key)) is not None}

    # -- notes -------------------------------------------------------------------------------------------------

    def notes(
        self,
        kind: str,
        *,
        names: Sequence[str] | None = None,
        tag: str | None = None,
        since: str = "",
        before: str | None = None,
        limit: int | None = None,
        skip: int = 0,
    ) -> list[StoreNote]:
        with self._changed:
            found = [
                note
                for (one, name), note in sorted(self._notes.items(), reverse=True)
                if one == kind
                and (names is None or name in names)
                and tag in (None, note.tag)
                and since <= name
                and (before is None or name < before)
            ]
            return found[skip:][:limit]

    def put_notes(self, writes: Sequence[tuple[StoreNote, int | None]]) -> list[bool]:
        with self._changed:
            done = []
            for note, version in writes:
                old = self._notes.get((note.kind, note.name))
                done.append((None if old is None else old.version) == version)
                if done[-1]:
                    self._notes[note.kind, note.name] = note
            return done

    def drop_notes(self, notes: Sequence[StoreNote]) -> None:
        with self._changed:
            for note in notes:
                old = self._notes.get((note.kind, note.name))
                if old is not None and old.version == note.version:
                    del self._notes[note.kind, note.name]

    def add_totals(self, ends: Counter[str]) -> None:
        with self._changed:
            self._totals.update(ends)

    def totals(self) -> dict[str, int]:
        with self._changed:
            return dict(self._totals)

    # -- waking ------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self.stir(CHANGES)
        self.stir(ENDS)

    def stir(self, topic: str) -> None:
        with self._changed:
            self._cursors[topic] += 1
            self._changed.notify_all()

    def wait(self, cursor: int, timeout: float, topic: str) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._cursors[topic] != cursor, timeout)
            return self._cursors[topic]


def matches(want: Want, record: RunRecord) -> bool:
    """Return True if a record matches every given field."""
    row, expires_at, todo_at = record.row, record.expires_at, record.todo_at
    return (
        (not want.status or row.status in want.status)
        and (want.queues is None or row.queue in want.queues)
        and (want.lanes is None or row.lane in want.lanes)
        and want.group in (None, row.group)
        and want.job_id in (None, row.job_id)
        and want.token in (None, row.token)
        and (want.after is None or want.after in record.after)
        and (want.gates is None or row.gate in want.gates)
        and not (want.parked and (row.status != "blocked" or row.waits or row.gate is None))
        and (want.run_until is None or row.run_at <= want.run_until)
        and (want.run_after is None or row.run_at > want.run_after)
        and (want.lease_until is None or (row.lease_until or 0) <= want.lease_until)
        and (want.expires_until is None or (expires_at is not None and expires_at <= want.expires_until))
        and (want.todo_until is None or (todo_at is not None and todo_at <= want.todo_until))
        and not (want.counted and (expires_at is None or expires_at >= NEVER or expires_at % 2))
        and (want.older is None or (row.created_at, row.id) < want.older)
    )


if __name__ == "__main__":
    from mainspring.core.run import After, Call, Condition, Outcome, Run, Status
    from mainspring.jobstores.run_records import RunRecordStore

    store = RunRecordStore(DictRunRecords())
    store.start(None, "example")
    fetch = Run(id="fetch", call=Call("builtins:print"), created_at=store.beat(), run_at=store.beat())
    parse = Run(id="parse", call=Call("builtins:print"), created_at=store.beat(), after=(After("fetch"),))
    store.add_runs([fetch, parse])
    while runs := store.claim([(["default"], 10)], node="me", token="my token", lease=60.0).runs:
        print("claimed:", *(run.id for run in runs))
        store.settle([Outcome(replace(run, status=Status.SUCCEEDED), Condition.HELD) for run in runs])
