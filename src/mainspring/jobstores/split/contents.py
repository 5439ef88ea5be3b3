"""The contents of job records, which are opaque to their store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.errors import ConflictingIdError, StoreUnavailable
from mainspring.jobstores.records.rows import JobRow, RunRow, new_version
from mainspring.jobstores.split.records import JobRecord

__all__ = [
    "OpenFiring",
    "RecordState",
    "StoredJob",
    "added",
    "insist",
    "job_key",
    "kept_in",
    "refuse_twins",
    "written",
]

T = TypeVar("T")
WRITE_TRIES: Final = 100


class OpenFiring(msgspec.Struct, gc=False, array_like=True):
    """The open firing: runs that the job has fired and that may not be in the other store yet."""

    mark: int
    since: int
    until: int  # from this time on, other schedulers may assume that its scheduler is gone
    runs: list[RunRow]
    missed: list[RunRow]


class RecordState(msgspec.Struct, gc=False, array_like=True):
    """The contents of a record. A job that is `gone` stays only until its open firing is finished."""

    frame: bytes
    at: int | None = None
    nominal: int | None = None
    incarnation: int = 0
    miss: str | None = None
    fired: OpenFiring | None = None
    gone: bool = False
    reason: str = ""
    set_aside_at: int = 0


class StoredJob(msgspec.Struct, gc=False):
    """A record and its contents."""

    record: JobRecord
    state: RecordState

    @property
    def key(self) -> str:
        """The key of the record."""
        return self.record.key

    @property
    def version(self) -> int:
        """The version of the record."""
        return self.record.version

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.key.partition(":")[2]

    @property
    def row(self) -> JobRow:
        """The job as its row."""
        state = self.state
        return JobRow(self.id, state.at, state.nominal, state.frame, self.version, state.incarnation, miss=state.miss)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(RecordState).decode


def job_key(job_id: str) -> str:
    """Return the key under which a job is kept."""
    return f"job:{job_id}"


def kept_in(record: JobRecord) -> StoredJob:
    """Read the contents of a record."""
    try:
        state = _decode(record.data)
    except msgspec.DecodeError:  # use the bytes as the frame: the job then cannot be restored and is set aside
        state = RecordState(record.data, record.wake)
    return StoredJob(record, state)


def written(key: str, state: RecordState, version: int | None = None) -> StoredJob:
    """Return a job in the form to write; it wakes when it is due, or when others may finish its open firing."""
    times = [] if state.at is None or state.gone else [state.at]
    if state.fired is not None:
        times.append(state.fired.until)
    version = new_version() if version is None else version
    return StoredJob(JobRecord(key, version, min(times, default=None), _encode(state)), state)


def added(row: JobRow, old: StoredJob | None) -> StoredJob:
    """Return a job in the form to add, or to write in place of `old`; an open firing of `old` stays open."""
    if old is not None and not old.state.gone:
        return written(old.key, replace(old.state, frame=row.frame, at=row.at, nominal=row.nominal))
    version = new_version()
    fired = None if old is None else old.state.fired
    state = RecordState(row.frame, row.at, row.nominal, incarnation=version, fired=fired)
    return written(job_key(row.id), state, version)


def refuse_twins(rows: Sequence[JobRow]) -> None:
    """Raise ConflictingIdError if two jobs of a batch have the same id."""
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise ConflictingIdError(row.id)
        seen.add(row.id)


def insist(attempt: Callable[[], T | None]) -> T:
    """Repeat a read-and-write step until no other writer comes in between."""
    for _ in range(WRITE_TRIES):
        done = attempt()
        if done:
            return done
    raise StoreUnavailable(f"other processes changed the job before each of {WRITE_TRIES} attempts to write it")
