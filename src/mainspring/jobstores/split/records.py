"""The contract of a store that holds only jobs: a few primitives over opaque records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Literal

import msgspec

from mainspring.core.showing.redaction import without_password
from mainspring.errors import MainspringError, OutcomeUnknown, RecordTooLarge, StoreUnavailable, TooManyJobs
from mainspring.jobstores.health import Health

__all__ = ["JobRecord", "JobRecords", "is_due", "wake_of", "wake_text"]

_WAKE_ZERO: Final = 2**62
"""Added to a wake time to write it: instants before 1970 are negative, and must sort before the others."""
_WAKE_DIGITS: Final = 20


class JobRecord(msgspec.Struct, gc=False):
    """A record as its store sees it: `version` is compared, `wake` sorts it (None: never due), `data` is opaque.

    `stamp` belongs to the store: the server's name for this state of the record, such as a revision.
    """

    key: str
    version: int
    wake: int | None
    data: bytes
    stamp: Any = None


class JobRecords(ABC):
    """The primitives of a store that holds only jobs.

    Methods may be called from any thread, before `start` (connect on the first use) and after a fork.
    """

    watches: ClassVar[bool] = False
    """Whether `wait` notices changes by other processes; if not, the loops see them within seconds."""
    server: ClassVar[str] = ""
    """The name of the server in messages; by default that of the class."""
    max_bytes: ClassVar[int | None] = None
    """The most bytes of `data`; a fire keeps the job and the runs it fires in one record for a moment."""
    max_jobs: ClassVar[int | None] = None
    """The most records; adding more raises TooManyJobs."""
    unsure: ClassVar[tuple[type[BaseException], ...]] = ()
    """Errors of the driver after which the server may have carried out the request."""
    refused: ClassVar[tuple[type[BaseException], ...]] = ()
    """Errors of the driver that mean that the server did not carry out the request."""

    @property
    def place(self) -> str:
        """The name of the server, for messages; without a password."""
        return self.server or type(self).__name__

    def start(self) -> None:  # noqa: B027 - a store may have nothing to open
        """Open connections; raise ConfigurationError if the server cannot be used."""

    def shutdown(self) -> None:  # noqa: B027 - or to release
        """Release what `start` or the first use opened, and let callers of `wait` return."""

    @abstractmethod
    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        """Read records; None for a key that has none."""

    @abstractmethod
    def all(self) -> list[JobRecord]:
        """Read all records, in any order."""

    @abstractmethod
    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        """Read up to `limit` records whose `wake` is not after `until`, earliest first, and the `wake` of the next.

        If you read the timetable and the records separately, leave out a record that was moved in between: see
        `is_due`.
        """

    @abstractmethod
    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        """Write each record if the stored one is still the one that was seen (None: there is none); return which were.

        Each write is a separate atomic step; no two writes of a call have the same key. The record contains its new
        version. The seen record is one that this object has read or written, with its `stamp`: a store that uses stamps
        sets them on each record that it reads, and here on each that it writes.
        """

    @abstractmethod
    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        """Delete each record if the stored one is still the one that was seen; return which were deleted."""

    def count(self) -> int:
        """Return the number of records; asked only if there is a `max_jobs`."""
        return len(self.all())

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until a record has changed since `cursor`, or for `timeout` seconds; return the new cursor."""
        raise NotImplementedError

    def health(self) -> Health:
        """Return which acknowledged writes survive, by the settings of the server; change nothing."""
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    def check_size(self, record: JobRecord, job_id: str) -> None:
        """Raise RecordTooLarge if this record is too large to be written."""
        if self.max_bytes is not None and len(record.data) > self.max_bytes:
            raise RecordTooLarge(job_id, len(record.data), self.max_bytes, self.place)

    def check_room(self, new: Sequence[JobRecord]) -> None:
        """Raise TooManyJobs if the server should not hold these new records besides those it has."""
        if self.max_jobs is not None and new and (number := self.count() + len(new)) > self.max_jobs:
            raise TooManyJobs(number, self.max_jobs, self.place)

    @contextmanager
    def asked(self, what: Literal["read", "write"]) -> Iterator[None]:
        """Turn the driver's errors, `unsure` and `refused`, into mainspring's; a write without a reply may be done."""
        try:
            yield
        except MainspringError:  # it is one of ours already
            raise
        except self.unsure as error:
            kind = OutcomeUnknown if what == "write" else StoreUnavailable
            raise kind(f"{self.place} did not answer a {what}: {_said(error)}") from error
        except self.refused as error:
            raise StoreUnavailable(f"{self.place} refused a {what}: {_said(error)}") from error


def is_due(record: JobRecord | None, until: int) -> bool:
    """Return True if a record is there, and its own `wake` is not after `until`."""
    return record is not None and record.wake is not None and record.wake <= until


def wake_text(wake: int) -> str:
    """Return a wake time as 20 digits that sort as the numbers do, those before 1970 included."""
    return f"{wake + _WAKE_ZERO:0{_WAKE_DIGITS}d}"


def wake_of(text: str) -> int:
    """Return the wake time that the first 20 digits of a text say."""
    return int(text[:_WAKE_DIGITS]) - _WAKE_ZERO


def _said(error: BaseException) -> str:
    text = without_password(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
