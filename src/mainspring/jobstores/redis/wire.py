"""Rows in the form of the Lua scripts' arguments and replies; lib_heads.lua describes the head of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final
from zlib import crc32

import msgspec

from mainspring.core.run import Status
from mainspring.jobstores.records.rows import LATEST_INSTANT, JobRow, RunRow, SettleRow

__all__ = [
    "STATUS_NUMBERS",
    "age",
    "checksum",
    "head_row",
    "instant",
    "is_plain",
    "job_rows",
    "new_run",
    "outbox_run",
    "outcome",
    "plain_run",
    "raw",
    "restored_outbox",
    "run_rows",
    "texts",
    "times_text",
    "version_text",
]

log = logging.getLogger("mainspring.jobstores.redis")

STATUS_NUMBERS: Final = {status.value: number for number, status in enumerate(Status)}
"""The statuses in heads, in the order of lib_heads.lua."""
_RUNNING: Final = STATUS_NUMBERS[Status.RUNNING]
_STATUS_NAMES: Final = tuple(status.value for status in Status)
INLINE_STATE_BYTES: Final = 1000
"""Keep a state of up to this many bytes in the head; scripts that read only heads would read a bigger one, too."""
_MAGIC: Final = b"\xdc\x00\x14"
_UINT: Final = 0xCE
_BOOL: Final = (0xC2, 0xC3)
_START: Final = Struct(">BBIBB")  # status, attempt, cancelling, whether the state is elsewhere
_FIXED: Final = Struct(">3sBBIBBBIBI")  # everything before the blocks
_FIRST: Final = _FIXED.size + 1  # Lua counts from one
_SHORT: Final = tuple(b"\xd9%c" % size for size in range(0x100))
_NONE: Final = "-" * 18
_NO_TIME: Final = _NONE.encode()
_STATE_SIZE: Final = 77
_ZERO: Final = 10**17
"""Added to a time, so that texts sort like times: the result is never negative for a datetime."""
_END: Final = 10**18


class _Head(msgspec.Struct, array_like=True, gc=False):
    status: int
    attempt: int
    cancelling: bool
    big: bool
    block_b: int
    block_c: int
    owner: str | None
    job_id: str | None
    group: str | None
    created_at: str
    unique: str | None
    queue: str
    keep: int
    priority: int
    run_at: int
    finished_at: int | None
    state: bytes
    token: str | None
    node: str | None
    place: str | None


_packed = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(_Head).decode
_run_row = msgspec.msgpack.Decoder(RunRow).decode


def raw(value: bytes) -> msgspec.Raw:
    """Return bytes as a script's argument: the server's MessagePack has text of any bytes, but no binary data."""
    size = len(value)
    return msgspec.Raw((_SHORT[size] if size < 0x100 else b"\xdb" + size.to_bytes(4)) + value)


# -- runs ------------------------------------------------------------------------------------------------------------


def new_run(row: RunRow) -> list[Any]:
    """Return a new run in the form of lib_insert.lua."""
    big = len(row.state) > INLINE_STATE_BYTES
    # msgspec writes a short array as one byte and its items.
    created = age(row.created_at)
    first = _packed((row.owner, row.job_id, row.group, created))[1:]
    second = _block(row, big)
    at = _FIRST + len(first)
    status = STATUS_NUMBERS[row.status]
    fixed = _FIXED.pack(
        _MAGIC, status, _UINT, row.attempt, _BOOL[row.cancelling], _BOOL[big], _UINT, at, _UINT, at + len(second)
    )
    claimant = b"\xc0\xc0" if row.token is row.node is None else _packed(row.token) + _packed(row.node)
    head = fixed + first + second + claimant
    return [
        row.id,
        raw(head),
        raw(row.call),
        row.queue,
        created,
        _or_false(row.owner),
        _or_false(row.job_id),
        _or_false(row.group),
        _or_false(row.unique),
        _or_false(row.token),
        row.keep,
        "" if status else _urgency(row),  # only pending runs have one
        row.run_at,
        raw(row.state) if big else "",
        raw(row.live) if row.live else "",
        row.job_id is not None and checksum(row.job_id),
    ]


def checksum(job_id: str) -> str:
    """Return the score of a job's runs in their index."""
    return str(crc32(job_id.encode()))


def is_plain(row: RunRow) -> bool:
    """Return True if add_run.lua can add this run."""
    return (
        row.status == Status.PENDING
        and row.job_id is row.group is row.unique is None
        and row.live is None
        and len(row.state) <= INLINE_STATE_BYTES
    )


def plain_run(row: RunRow) -> list[Any]:
    """Return a new run in the form of add_run.lua."""
    run = new_run(row)
    return [*run[:5], run[11], run[12]]


def outcome(step: SettleRow, here: Sequence[RunRow], away: Sequence[RunRow]) -> list[Any]:
    """Return an outcome in the form of settle.lua, with its follow-ups for this shard and for others."""
    row = step.run
    big = len(row.state) > INLINE_STATE_BYTES
    plain: list[Any] = [
        row.id,
        step.condition._value_,
        raw(
            _START.pack(STATUS_NUMBERS[row.status], _UINT, row.attempt, _BOOL[row.cancelling], _BOOL[big])
            + _block(row, big)
        ),
        _or_false(row.token),
        _or_false(row.node),
    ]
    if row.finished_at is None or big or row.live is not None or step.then:
        plain.append(
            [
                _urgency(row),
                row.run_at,
                row.lease_until or 0,
                raw(row.state) if big else "",
                raw(row.live) if row.live else "",
                [new_run(run) for run in here],
                [outbox_run(run) for run in away],
            ]
        )
    return plain


def _block(row: RunRow, big: bool) -> bytes:
    state = b"" if big else row.state
    return _packed((row.unique, row.queue, row.keep, row.priority, row.run_at, row.finished_at, state))[1:]


def _urgency(row: RunRow) -> str:
    # Digits of a fixed width, so that texts sort like (-priority, run time).
    priority = row.priority
    first = "500000" if priority == 0 else f"{500_000 - max(-499_999, min(499_999, priority)):06d}"
    return first + age(row.run_at)


def age(at: int) -> str:
    """Return a time as text for heads, places and indexes."""
    number = at + _ZERO
    if not 0 <= number < _END:
        raise _no_time(at)
    return str(number) if number >= _ZERO else str(number).zfill(18)


def instant(text: bytes | None) -> int | None:
    """Return the time in a text from heads, places or indexes."""
    return int(text) - _ZERO if text is not None and text.isdigit() else None


def _no_time(at: int) -> ValueError:
    return ValueError(
        f"{at} microseconds since 1970 is not a time that can be stored: it is not in the years 1 to 9999"
    )


def outbox_run(row: RunRow) -> list[Any]:
    """Return a follow-up for another shard in the form of the outbox."""
    return [row.id, raw(_packed(row))]


def restored_outbox(reply: Iterable[bytes | None]) -> list[RunRow]:
    """Build rows from the reply of take_outbox.lua."""
    return [_run_row(run) for run in reply if run is not None]


def run_rows(reply: Sequence[Sequence[Any]], until: int | None = None) -> list[RunRow]:
    """Build rows from the reply of lib_read.lua; if `until` is given, all are leased until then."""
    ids, heads, calls, leases, states, lives = reply
    rows = []
    for number, (run_id, head, call) in enumerate(zip(ids, heads, calls, strict=True)):
        if head is None:
            continue
        row = head_row(run_id, head, call or b"")
        if states and head[10:11] == b"\xc3":
            row.state = states[number] or b""
        row.live = lives[number] if lives else None
        row.lease_until = until if not leases or leases[number] is None else _lease(leases[number])
        rows.append(row)
    return rows


def head_row(run_id: bytes, head: bytes, call: bytes = b"") -> RunRow:
    """Build a row from a head; an altered head gives a row that is not whole."""
    try:
        known = _head(head)
        return RunRow(
            id=run_id.decode(),
            call=call,
            state=known.state,
            owner=known.owner,
            job_id=known.job_id,
            queue=known.queue,
            status=_STATUS_NAMES[known.status],
            priority=known.priority,
            run_at=known.run_at,
            created_at=int(known.created_at) - _ZERO,
            finished_at=known.finished_at,
            keep=known.keep,
            token=known.token,
            node=known.node,
            claimed_at=int(known.place) if known.place is not None and known.status == _RUNNING else None,
            attempt=known.attempt,
            cancelling=known.cancelling,
            unique=known.unique,
            group=known.group,
        )
    except (ValueError, IndexError) as error:
        name = run_id.decode("utf-8", "surrogateescape")  # so that the run can be found again
        return RunRow(id=name, call=call, state=head, queue="", status=f"{error}", run_at=0, created_at=0, keep=0)


def _lease(score: bytes) -> int | None:
    """Return until when a run is leased; None if that was altered."""
    until = float(score)
    return int(until) if abs(until) < _END else None


def texts(values: Iterable[bytes]) -> list[str]:
    """Decode ids."""
    return [value.decode() for value in values]


# -- jobs ------------------------------------------------------------------------------------------------------------


def version_text(version: int) -> str:
    """Return a version in the form of a job's state."""
    return str(version).zfill(16)


def times_text(at: int | None, nominal: int | None) -> str:
    """Return a job's times in the form of its state."""
    return _time_text(at) + _time_text(nominal)


def _time_text(at: int | None) -> str:
    if at is None:
        return _NONE
    if not -_ZERO < at < _END:
        raise _no_time(at)
    return str(at).zfill(18)


def job_rows(reply: Sequence[Sequence[Any]]) -> list[JobRow]:
    """Build rows from the reply of lib_jobs.lua without missing jobs; an altered job gives a row that is not whole."""
    rows = []
    for job_id, frame, state in zip(*reply, strict=True):
        if state is not None:
            try:
                rows.append(_job_row(job_id.decode(), frame or b"", state))
            except ValueError:
                rows.append(JobRow(job_id.decode("utf-8", "backslashreplace"), LATEST_INSTANT + 1, None, frame or b""))
    return rows


def _job_row(job_id: str, frame: bytes, state: bytes) -> JobRow:
    if len(state) < _STATE_SIZE:
        raise ValueError(f"it has {len(state)} bytes of at least {_STATE_SIZE}")
    at, nominal = state[32:50], state[50:68]
    return JobRow(
        job_id,
        None if at == _NO_TIME else int(at),
        None if nominal == _NO_TIME else int(nominal),
        frame,
        int(state[:16]),
        int(state[16:32]),
        int(state[68:77]),
        state[77:].decode() or None,
    )


def _or_false(value: Any) -> Any:
    return False if value is None else value
