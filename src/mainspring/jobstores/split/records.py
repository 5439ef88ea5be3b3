"""Job records as a store of jobs sees them, and their contents."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.errors import ConflictingIdError, StoreUnavailable
from mainspring.jobstores.records.rows import JobRow, RunRow

__all__ = [
    "JobRecord",
    "JobRecords",
    "OpenFiring",
    "RecordState",
    "StoredJob",
    "added",
    "insist",
    "job_key",
    "kept_in",
    "new_version",
    "record_of",
    "refuse_twins",
]

T = TypeVar("T")
WRITE_TRIES: Final = 100


class JobRecord(msgspec.Struct, gc=False):
    """A record as its store sees it: `version` is compared, `wake` sorts it (None: never due), `data` is opaque."""

    key: str
    version: int
    wake: int | None
    data: bytes


class JobRecords(ABC):
    """The primitives of a store that holds only jobs. Methods may be called from any thread."""

    watches: ClassVar[bool] = False
    """Whether `wait` notices changes by other processes; if not, they are seen within seconds."""

    def start(self) -> None:  # noqa: B027 - a store may have nothing to open
        """Open connections."""

    def shutdown(self) -> None:  # noqa: B027 - or to release
        """Release what `start` opened, and let callers of `wait` return."""

    @abstractmethod
    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        """Read records; None for a key that has none."""

    @abstractmethod
    def all(self) -> list[JobRecord]:
        """Read all records, in any order."""

    @abstractmethod
    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        """Read up to `limit` records whose `wake` is not after `until`, earliest first, and the `wake` of the next."""

    @abstractmethod
    def put(self, writes: Sequence[tuple[JobRecord, int | None]]) -> list[bool]:
        """Write each record if the stored one has this version (None: if there is none); return which were written.

        Each write is one atomic step of its own, in the given order. The record contains its new version.
        """

    @abstractmethod
    def delete(self, marks: Sequence[tuple[str, int]]) -> list[bool]:
        """Delete each record if it has this version; return which were deleted."""

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until a record has changed since `cursor`, or for `timeout` seconds; return the new cursor."""
        raise NotImplementedError


class OpenFiring(msgspec.Struct, gc=False, array_like=True):
    """The open firing: runs that were decided and may not be in the other store yet."""

    mark: int
    since: int
    until: int  # from then on, others may assume that its scheduler is gone
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

    key: str
    version: int
    state: RecordState

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


def new_version() -> int:
    """Return a version that no record has ever had."""
    # 53 bits, because some stores keep numbers as floating point.
    return secrets.randbits(53) or 1


def job_key(job_id: str) -> str:
    """Return the key under which a job is kept."""
    return f"job:{job_id}"


def kept_in(record: JobRecord) -> StoredJob:
    """Read the contents of a record."""
    try:
        state = _decode(record.data)
    except msgspec.DecodeError:  # it cannot be restored as a frame either, and is set aside like any other
        state = RecordState(record.data, record.wake)
    return StoredJob(record.key, record.version, state)


def record_of(kept: StoredJob) -> JobRecord:
    """Return a record that wakes when the job is due, or when others may finish its open firing."""
    state = kept.state
    times = [] if state.at is None or state.gone else [state.at]
    if state.fired is not None:
        times.append(state.fired.until)
    return JobRecord(kept.key, kept.version, min(times, default=None), _encode(state))


def added(row: JobRow, old: StoredJob | None) -> StoredJob:
    """Return a job as it is added, or as it replaces another; an earlier open firing stays open."""
    state, version = RecordState(row.frame, row.at, row.nominal), new_version()
    if old is None:
        return StoredJob(job_key(row.id), version, replace(state, incarnation=version))
    if old.state.gone:
        return StoredJob(old.key, version, replace(state, incarnation=version, fired=old.state.fired))
    kept = replace(old.state, frame=row.frame, at=row.at, nominal=row.nominal)
    return StoredJob(old.key, version, kept)


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
