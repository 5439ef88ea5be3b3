"""Change run records: read them, decide, and write those that are unchanged; start over with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mainspring.codec import Codec
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.run_records.records import RunRecord, RunRecords, made

__all__ = ["RecordChanges"]

CHANGE_TRIES: Final = 100

Change = Callable[[RunRecord], RunRecord | None]
"""Returns the next record, without its new version, or None to leave the record as it is."""


class RecordChanges(RecordStore):
    """The steps that all verbs about run records are made of."""

    def __init__(self, records: RunRecords, codec: Codec | None) -> None:
        super().__init__(codec)
        self.records = records
        records.limited = set()
        self._shift = 0

    def _now(self) -> int:
        """Return the store's time."""
        return self.records.now() + self._shift

    def _change(
        self, ids: Iterable[str], change: Change, known: Iterable[RunRecord] = (), tries: int = CHANGE_TRIES
    ) -> dict[str, RunRecord]:
        """Change records; return those that were written, by id. The records in `known` were read just now."""
        found = {record.row.id: record for record in known}
        left = list(dict.fromkeys(ids))
        written: dict[str, RunRecord] = {}
        for _ in range(tries):
            if not left:
                return written
            unread = [run_id for run_id in left if run_id not in found]
            if unread:
                found |= self.records.get(unread)
            now = self._now()
            pairs = []
            for run_id in left:
                old = found.get(run_id)
                new = None if old is None else change(old)
                if old is not None and new is not None:
                    pairs.append((made(new, now), old.version))
            done = self._swap(pairs)
            written |= {new.row.id: new for (new, _), won in zip(pairs, done, strict=True) if won}
            left = [new.row.id for (new, _), won in zip(pairs, done, strict=True) if not won]
            found = {}
        if left and tries == CHANGE_TRIES:
            raise StoreUnavailable(f"other processes changed a run before each of {CHANGE_TRIES} attempts to write it")
        return written

    def _swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        """Write records; a record that already has the new version was written, even if the answer was lost.

        A driver that repeats a write meets the first one, and a connection may break before the answer comes.
        """
        if not writes:
            return []
        try:
            done = self.records.swap(writes)
        except OutcomeUnknown:
            done = [False] * len(writes)
            if self._own(writes, done) == [True] * len(writes):
                return [True] * len(writes)
            raise
        return done if all(done) else self._own(writes, done)

    def _own(self, writes: Sequence[tuple[RunRecord, int]], done: list[bool]) -> list[bool]:
        lost = [new.row.id for (new, _), won in zip(writes, done, strict=True) if not won]
        found = self.records.get(lost)
        return [
            won or ((stored := found.get(new.row.id)) is not None and stored.version == new.version)
            for (new, _), won in zip(writes, done, strict=True)
        ]
