"""Run records, and the primitives that a back end has to implement for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Status
from mainspring.core.stored.edges import MOST_EDGES
from mainspring.jobstores.health import Health
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, new_version
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
]

NEVER: Final = 2**62
"""The `expires_at` of a record that is kept for ever."""
TODO_SECONDS: Final = 15
"""After this many seconds, other nodes finish a change that a node has begun and not finished."""
LINKED, NEW, AGAIN = 0, 1, 2
"""The links of a record: its predecessors know of it; or they may not yet, since it was added (NEW) or sent back."""

Order = Literal["urgent", "run_at", "oldest", "lease", "expires", "newest"]
"""In turn: by priority, then run time; run time; priority, then age; end of lease; expiry; creation, newest first."""


class RunRecord(msgspec.Struct, gc=False):
    """A run, and all that the store needs to finish a change of it if a node dies in between.

    `waits` and `followed` of the row are numbers for readers; the store decides by `open` and `successors`.
    """

    row: RunRow
    version: int
    expires_at: int | None = None  # set while it is finished; an odd number means that the user chose the retention
    after: dict[str, int] = {}  # the runs that it comes after, and the mask of each
    open: tuple[str, ...] = ()  # the ids in `after` whose ends it waits for
    mark: int = 0  # names the edges to this run; a run that is sent back gets new ones
    link: int = LINKED
    successors: dict[str, int] = {}  # the runs that come after it, and the mark of each
    unreleased: bool = False  # it has ended, and its successors may not know yet
    then: list[RunRow] = []  # runs to add with its last outcome, until they are stored
    todo_at: int | None = None  # when other nodes may do the steps that are left: link, release, add


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A query for the records that match every given field."""

    status: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    group: str | None = None
    job_id: str | None = None
    token: str | None = None
    after: str | None = None  # the id of a predecessor
    gates: tuple[str, ...] | None = None
    parked: bool = False  # blocked by its gate, not by another run
    run_until: int | None = None
    run_after: int | None = None
    lease_until: int | None = None
    expires_until: int | None = None
    todo_until: int | None = None
    counted: bool = False  # finished, and kept by number
    older: tuple[int, str] | None = None  # (created_at, id) is less than this


class StoreNote(msgspec.Struct, gc=False):
    """A small record that is not a run: a node, a gate, an act, a tally. `tag` selects some notes of a kind."""

    kind: str
    name: str
    version: int
    data: bytes
    tag: str = ""
    until: int = NEVER


class RunRecords(ABC):
    """The primitives of a store of runs. Each element of a batch is an atomic step by itself; the batch is not.

    A read sees every write that was acknowledged before the read began. Any thread may call any method.
    """

    remote: ClassVar[bool] = False
    tells_topics: ClassVar[bool] = False
    """True if the cursor of CHANGES moves by `RUNS_STEP` for each change: every change here concerns only runs."""
    volatile: ClassVar[bool] = False
    limited: set[str]
    """The queues with a limit that this process serves. The end of one of their runs makes room, so it is a change."""

    def start(self) -> None:  # noqa: B027 - a store may have nothing to open
        """Open connections."""

    def shutdown(self) -> None:  # noqa: B027 - or to release
        """Release what `start` opened, and let callers of `wait` return."""

    @abstractmethod
    def now(self) -> int:
        """Return the server's time, in microseconds."""

    def health(self) -> Health:
        """Judge by the server's settings whether acknowledged writes survive; change nothing."""
        if self.volatile:
            return Health(durable=False, reasons=("everything is in the memory of this process and ends with it",))
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    # -- runs --------------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, records: Sequence[RunRecord]) -> list[bool]:
        """Store each record whose id and unique key no stored record has; return for each whether it was stored."""

    @abstractmethod
    def get(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        """Read records by id."""

    @abstractmethod
    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        """Replace each stored record that has the given version; return for each whether it was written.

        Do not write a record whose unique key another stored record has. The new record carries its new version.
        """

    @abstractmethod
    def remove(self, marks: Sequence[tuple[str, int]], until: int | None) -> list[bool]:
        """Delete each record that has the given version; remember its id until `until` (None: do not remember it)."""

    @abstractmethod
    def remembered(self, ids: Sequence[str], now: int) -> set[str]:
        """Return those of the ids that `remove` still remembers."""

    @abstractmethod
    def find(self, want: Want, order: Order, limit: int, skip: int = 0) -> list[RunRecord]:
        """Read the matching records in this order, at most `limit` after the first `skip`."""

    @abstractmethod
    def count(self, want: Want, by: Literal["queue", "lane", "gate", ""] = "") -> Counter[str]:
        """Count the matching records for each value of the field `by`; without it, count all under the key ''."""

    @abstractmethod
    def holders(self, keys: Sequence[str]) -> dict[str, str]:
        """Return by unique key the id of the run that holds it."""

    def standings(self, ids: Sequence[str]) -> dict[str, RunStanding]:
        """Return the status of each run, and the run that refused it; a back end may read fewer fields for this."""
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
        """Read notes of a kind, greatest name first: these names, this tag, names from `since` to below `before`."""

    @abstractmethod
    def put_notes(self, writes: Sequence[tuple[StoreNote, int | None]]) -> list[bool]:
        """Write each note if the stored one has this version (None: if none is stored); return for each whether."""

    @abstractmethod
    def drop_notes(self, notes: Sequence[StoreNote]) -> None:
        """Delete each note whose stored version is that of the given note."""

    @abstractmethod
    def add_totals(self, ends: Counter[str]) -> None:
        """Add to the counters of runs that ever reached each final status."""

    @abstractmethod
    def totals(self) -> dict[str, int]:
        """Return the counters of `add_totals` by final status."""

    # -- waking ------------------------------------------------------------------------------------------------

    @abstractmethod
    def stir(self, topic: str) -> None:
        """Wake the waiters for this topic, CHANGES or ENDS, at least in this process."""

    @abstractmethod
    def wait(self, cursor: int, timeout: float, topic: str) -> int:
        """Sleep until this topic was stirred since `cursor`, or for `timeout` seconds; return its new cursor.

        A back end whose server reports changes stirs ENDS for each run that reaches a final status. It stirs CHANGES
        for each run that can be claimed or should be stopped, and for each end in a queue of `limited`.
        """


def made(record: RunRecord, now: int) -> RunRecord:
    """Return a record with a new version, and with the values that derive from its other fields."""
    row, final = record.row, record.row.status in FINAL_VALUES
    expires_at = record.expires_at if final else None
    if final and expires_at is None:
        # Make `now` even, so that the sum is odd exactly if `keep` is odd: pruning by number skips odd ones.
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
    """Return True if `keep_runs` counts this finished run: the user chose no retention for it."""
    return record.expires_at is not None and record.expires_at < NEVER and record.expires_at % 2 == 0
