"""Rows: jobs and runs for a back end, with the fields that it needs and the rest as opaque bytes."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from mainspring.core.run import FINAL, After, Condition, Status
from mainspring.core.stored.edges import MOST_EDGES

__all__ = [
    "ALTERED",
    "EARLIEST_INSTANT",
    "FINAL_VALUES",
    "LATEST_INSTANT",
    "MOST_ATTEMPTS",
    "STATUS_VALUES",
    "BeatRow",
    "FireRow",
    "JobRow",
    "RunRow",
    "SettleRow",
    "gate_of",
    "job_damage",
    "mended_row",
    "new_version",
    "run_damage",
    "sound_instant",
    "unclaimed_row",
]

ALTERED: Final = "was altered"
"""The reason for setting aside a record with a value that no store writes."""
STATUS_VALUES: Final = tuple(status.value for status in Status)
"""All statuses as text."""
EARLIEST_INSTANT: Final = -62_135_596_800_000_000
"""The first instant of the year 1."""
LATEST_INSTANT: Final = 253_402_300_799_999_999
"""The last instant of the year 9999."""
MOST_ATTEMPTS: Final = 2_000_000_000
"""Treat a higher number of attempts as altered: no run reaches it, and it might not fit into a column."""
FINAL_VALUES: Final = frozenset(str(status) for status in FINAL)
"""The final statuses as text."""
_BLOCKED: Final = Status.BLOCKED.value
_BROKEN: Final = Status.BROKEN.value
_PENDING: Final = Status.PENDING.value


class JobRow(msgspec.Struct, gc=False):
    """A stored job; `frame` is opaque, `miss` an opaque text kept beside it."""

    id: str
    at: int | None
    nominal: int | None
    frame: bytes
    version: int = 0
    incarnation: int = 0
    unfinished: int = 0
    miss: str | None = None


class RunRow(msgspec.Struct, gc=False):
    """A stored run. The back end reads only the named fields; `call`, `state` and `live` are opaque.

    `owner` is `<job id>@<incarnation>` of a fired run. The run counts as an unfinished run of its job while the job
    with that id still has that incarnation. `live` holds the reports of heartbeats (None: no report yet). `keep` is how
    many microseconds to keep the finished run; an odd number is an explicit retention, which holds however many runs
    there are. `claimed_at` is the instant of the last claim, by the store's clock, and is valid only while the run is
    running. The back end uses `after` to judge a run that is added or sent back; `after` is stored inside `state`, so a
    row that was read has none. The back end owns `waits`, `followed` and `refused`. Claims and parking use the `lane`,
    a part of the queue; everything else uses the `queue`. `task` and `label` name the function and the run for people
    who search the tables. They are written only when the run is added, and no code relies on them.
    """

    id: str
    call: bytes
    state: bytes
    queue: str
    status: str
    run_at: int
    created_at: int
    keep: int
    lane: str = ""
    priority: int = 0
    attempt: int = 0
    token: str | None = None
    node: str | None = None
    lease_until: int | None = None
    claimed_at: int | None = None
    finished_at: int | None = None
    live: bytes | None = None
    owner: str | None = None
    job_id: str | None = None
    group: str | None = None
    unique: str | None = None
    cancelling: bool = False
    after: tuple[After, ...] = ()
    waits: int = 0
    followed: int = 0
    refused: str | None = None
    gate: str | None = None
    gate_spec: str | None = None
    task: str | None = None
    label: str | None = None


class FireRow(msgspec.Struct, gc=False):
    """One firing, by its job's schedule or `unscheduled`: see `JobStore.fire`."""

    job_id: str
    version: int
    next_at: int | None
    next_nominal: int | None
    miss: str | None
    runs: list[RunRow]
    missed: list[RunRow]
    unscheduled: bool = False
    frame: bytes | None = None  # the new job, if the step replaces it


class SettleRow(msgspec.Struct, gc=False):
    """One outcome: write `run` (all but `call`, `owner`, `created_at`) if `condition` holds, and add `then`.

    A `live` of None keeps the reports of heartbeats.
    """

    run: RunRow
    condition: Condition
    then: list[RunRow]


class BeatRow(msgspec.Struct, gc=False):
    """One heartbeat of a run; a `live` of None changes only the lease."""

    run_id: str
    token: str
    live: bytes | None


def gate_of(row: RunRow) -> str | None:
    """Return the gate that a run waits at or has a slot of; None if it waits for runs, is refused or has ended."""
    return None if row.waits or row.refused is not None or row.status in FINAL_VALUES else row.gate


def unclaimed_row(row: RunRow) -> RunRow:
    """Return the row of a fired run, which its step has claimed, as one that waits in its queue."""
    return msgspec.structs.replace(
        row, status=_PENDING, attempt=0, node=None, token=None, lease_until=None, claimed_at=None
    )


def new_version() -> int:
    """Return a random version, which no record has had before, small enough for a store of floating point numbers."""
    return secrets.randbits(53) or 1


def run_damage(row: RunRow) -> str | None:
    """Return a reason naming the field of a run with a value that no store writes; None if the run is whole."""
    if row.status not in STATUS_VALUES:
        return _altered_value("status", row.status)
    stuck = row.status == _BLOCKED and not row.waits and (row.gate is None or row.refused is not None)
    if stuck or not 0 <= row.waits <= MOST_EDGES:
        return _altered_value("waits", row.waits)
    if not 0 <= row.followed <= MOST_EDGES:
        return _altered_value("followed", row.followed)
    for at in (row.created_at, row.run_at, row.finished_at, row.claimed_at):
        if at is not None and not EARLIEST_INSTANT <= at <= LATEST_INSTANT:
            return _altered_value("times", at)
    return None if 0 <= row.attempt <= MOST_ATTEMPTS else _altered_value("attempt", row.attempt)


def mended_row(row: RunRow, now: int) -> RunRow:
    """Return the row of an altered run with values that stores write, to be set aside."""
    return msgspec.structs.replace(
        row,
        status=row.status if row.status in STATUS_VALUES else _BROKEN,
        created_at=sound_instant(row.created_at, now),
        run_at=sound_instant(row.run_at, now),
        attempt=min(max(row.attempt, 0), MOST_ATTEMPTS),
        claimed_at=None,
        waits=min(max(row.waits, 0), MOST_EDGES),
        followed=min(max(row.followed, 0), MOST_EDGES),
    )


def sound_instant(value: int | None, otherwise: int | None) -> Any:
    """Return an instant that a store may have written, or `otherwise`."""
    return value if value is not None and EARLIEST_INSTANT <= value <= LATEST_INSTANT else otherwise


def job_damage(row: JobRow) -> str | None:
    """Return a reason naming the field of a job with a value that no store writes; None if the job is whole."""
    for name, at in (("at", row.at), ("nominal", row.nominal)):
        if at is not None and not EARLIEST_INSTANT <= at <= LATEST_INSTANT:
            return _altered_value(name, at)
    return None


def _altered_value(name: str, value: Any) -> str:
    return f"its {name} {ALTERED}: {value!r:.200}"
