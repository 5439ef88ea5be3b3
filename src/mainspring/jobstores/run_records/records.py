"""Run records as a back end sees them, and the primitives that it has to offer."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Status
from mainspring.jobstores.health import Health
from mainspring.jobstores.records.rows import FINAL_VALUES, MOST_EDGES, RunRow
from mainspring.jobstores.values import RunStanding

__all__ = [
    "AGAIN",
    "LINKED",
    "NEVER",
    "NEW",
    "TODO_SECONDS",
    "Order",
    "RunRecord",
    "RunRecords",
    "StoreNote",
    "Want",
    "is_counted",
    "made",
    "new_version",
]

NEVER: Final = 2**62
"""The instant at which a record that is kept for ever expires."""
TODO_SECONDS: Final = 15
"""Other nodes finish what a node has begun and not finished after this many seconds."""
LINKED, NEW, AGAIN = 0, 1, 2
"""A record that its predecessors know of; one that was added, and one that was sent back, and they may not yet."""

Order = Literal["urgent", "run_at", "oldest", "lease", "expires", "newest"]
"""By priority, then run time; run time; priority, then age; end of the lease; expiry; creation, newest first."""


class RunRecord(msgspec.Struct, gc=False):
    """A run, and what the store needs to finish each change of it if a node dies in between.

    `waits` and `followed` of the row are numbers for readers: `open` and `successors` are what counts.
    """

    row: RunRow
    version: int
    expires_at: int | None = None  # set while it is finished; an odd number is an explicit retention
    after: dict[str, int] = {}  # the runs that it comes after, and the mask of each
    open: tuple[str, ...] = ()  # those of them whose ends it waits for
    mark: int = 0  # names the edges to this run; a run that is sent back gets new ones
    link: int = LINKED
    successors: dict[str, int] = {}  # the runs that come after it, and the mark of each
    unreleased: bool = False  # it has ended, and its successors may not know yet
    then: list[RunRow] = []  # runs to add with its last outcome, until they are stored
    todo_at: int | None = None  # when others may finish what is left to do: link, release, add


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the records that match every given field."""

    status: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    group: str | None = None
    job_id: str | None = None
    token: str | None = None
    after: str | None = None  # it comes after the run with this id
    gates: tuple[str, ...] | None = None
    parked: bool = False  # blocked, and it waits for no run
    run_until: int | None = None
    run_after: int | None = None
    lease_until: int | None = None
    expires_until: int | None = None
    todo_until: int | None = None
    counted: bool = False  # finished, and kept by number
    older: tuple[int, str] | None = None  # (created_at, id) is less than this


class StoreNote(msgspec.Struct, gc=False):
    """A small thing to remember: a node, a gate, an act, a tally. `tag` finds several of a kind."""

    kind: str
    name: str
    version: int
    data: bytes
    tag: str = ""
    until: int = NEVER


class RunRecords(ABC):
    """The primitives of a store that holds runs. Each element of a batch is one atomic step of its own.

    A read sees every write that was acknowledged before it began. Methods may be called from any thread.
    """

    remote: ClassVar[bool] = False
    tells_topics: ClassVar[bool] = False
    """True if the cursor of CHANGES moves by `RUNS_STEP` for each change: all of them concern runs alone."""
    volatile: ClassVar[bool] = False
    limited: set[str]
    """The queues with a limit that this process serves. An end of one of their runs makes room: it is a change, too."""

    def start(self) -> None:  # noqa: B027 - a store may have nothing to open
        """Open connections."""

    def shutdown(self) -> None:  # noqa: B027 - or to release
        """Release what `start` opened, and let callers of `wait` return."""

    @abstractmethod
    def now(self) -> int:
        """Return the server's time, in microseconds."""

    def health(self) -> Health:
        """Return which acknowledged writes survive, by the settings of the server; change nothing."""
        if self.volatile:
            return Health(durable=False, reasons=("everything is in the memory of this process and ends with it",))
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    # -- runs --------------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, records: Sequence[RunRecord]) -> list[bool]:
        """Store each record whose id and unique key no stored record has; return which were stored."""

    @abstractmethod
    def get(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        """Read records by id."""

    @abstractmethod
    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        """Write each record if the stored one has this version; return which were written.

        Do not write a record whose unique key another one has. The record contains its new version.
        """

    @abstractmethod
    def remove(self, marks: Sequence[tuple[str, int]], until: int | None) -> list[bool]:
        """Delete each record that has this version; remember its id until then (None: do not)."""

    @abstractmethod
    def remembered(self, ids: Sequence[str], now: int) -> set[str]:
        """Return which of these ids belonged to deleted runs and are remembered."""

    @abstractmethod
    def find(self, want: Want, order: Order, limit: int, skip: int = 0) -> list[RunRecord]:
        """Read the records that match."""

    @abstractmethod
    def count(self, want: Want, by: Literal["queue", "lane", "gate", ""] = "") -> Counter[str]:
        """Count the records that match: by a field, or under the empty text."""

    @abstractmethod
    def holders(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the ids of the runs that have these unique keys, by key."""

    def standings(self, ids: Sequence[str]) -> dict[str, RunStanding]:
        """Return the status of runs, and who has refused them; a back end may read less for it."""
        found = self.get(ids)
        return {run_id: RunStanding(Status(each.row.status), each.row.refused) for run_id, each in found.items()}

    # -- notes -------------------------------------------------------------------------------------------------

    @abstractmethod
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
        """Read notes of a kind, greatest name first: by name, by tag, or from `since` on and below `before`."""

    @abstractmethod
    def put_notes(self, writes: Sequence[tuple[StoreNote, int | None]]) -> list[bool]:
        """Write each note if the stored one has this version (None: if there is none); return which were written."""

    @abstractmethod
    def drop_notes(self, notes: Sequence[StoreNote]) -> None:
        """Delete each note that has the version given."""

    @abstractmethod
    def add_totals(self, ends: Counter[str]) -> None:
        """Add to the numbers of runs that have reached each final status."""

    @abstractmethod
    def totals(self) -> dict[str, int]:
        """Return these numbers."""

    # -- waking ------------------------------------------------------------------------------------------------

    @abstractmethod
    def stir(self, topic: str) -> None:
        """Wake the waiters for this topic, CHANGES or ENDS, at least in this process."""

    @abstractmethod
    def wait(self, cursor: int, timeout: float, topic: str) -> int:
        """Sleep until this topic was stirred since `cursor`, or for `timeout` seconds; return its new cursor.

        A server that tells of changes stirs ENDS for each run that has reached a final status, and CHANGES for each
        that can be claimed or should be stopped, and for each end in a queue in `limited`.
        """


def new_version() -> int:
    """Return a version that no record has ever had, small enough for a store of floating point numbers."""
    return secrets.randbits(53) or 1


def made(record: RunRecord, now: int) -> RunRecord:
    """Return a record with a new version, and with the values that follow from its others."""
    row, final = record.row, record.row.status in FINAL_VALUES
    expires_at = record.expires_at if final else None
    if final and expires_at is None:
        # Make it even, so that the sum is odd if `keep` is: pruning by number skips those.
        expires_at = NEVER if row.status == Status.BROKEN.value else min((now & -2) + row.keep, NEVER - 1)
    row = replace(
        row,
        after=(),
        unique=None if final else row.unique,
        waits=len(record.open),
        followed=min(len(record.successors), MOST_EDGES),
    )
    busy = record.link != LINKED or record.unreleased or record.then
    todo_at = (record.todo_at or now + TODO_SECONDS * SECOND) if busy else None
    return replace(record, row=row, version=new_version(), expires_at=expires_at, todo_at=todo_at)


def is_counted(record: RunRecord) -> bool:
    """Return True if a finished run is kept by number."""
    return record.expires_at is not None and record.expires_at < NEVER and record.expires_at % 2 == 0
