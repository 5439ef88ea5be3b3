"""Turn rows into arguments of the Lua scripts, and replies into rows; see lib/runs.lua and lib/jobs.lua."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import msgspec

from mainspring.core.lanes import queue_of
from mainspring.core.run import Status
from mainspring.jobstores.records.rows import FINAL_VALUES, LATEST_INSTANT, JobRow, RunRow, SettleRow

__all__ = [
    "NO_CLAIM",
    "Claim",
    "age",
    "checksum",
    "earliest",
    "instant",
    "is_plain",
    "job_rows",
    "new_run",
    "or_false",
    "outcome",
    "raw",
    "restored_outbox",
    "run_row",
    "run_rows",
    "texts",
    "times_text",
    "version_text",
]

log = logging.getLogger("mainspring.jobstores.redis")

LONGEST_VALUE: Final = 64
"""The hash of a run holds a state of at most this many bytes; see lib/runs.lua."""
_PENDING: Final = Status.PENDING.value
_RUNNING: Final = Status.RUNNING.value
_SHORT: Final = tuple(b"\xd9%c" % size for size in range(0x100))
_NONE: Final = "-" * 18
_NO_TIME: Final = _NONE.encode()
_STATE_SIZE: Final = 77
_ZERO: Final = 10**17
"""Add this to a time, so that texts sort like times: the sum is not negative for any datetime."""
_END: Final = 10**18
_AGE_CHARS: Final = 18
_TEXTS_KNOWN: Final = 1000
Claim = tuple[str | None, str | None, int | None]
"""The token and the node of a claim, and until when its runs are leased."""
NO_CLAIM: Final[Claim] = (None, None, None)

_packed = msgspec.msgpack.Encoder().encode
_run_row = msgspec.msgpack.Decoder(RunRow).decode


def raw(value: bytes) -> msgspec.Raw:
    """Return bytes as a script's argument: the server's MessagePack has text of any bytes, but no binary data."""
    size = len(value)
    return msgspec.Raw((_SHORT[size] if size < 0x100 else b"\xdb" + size.to_bytes(4)) + value)


def or_false(value: Any) -> Any:
    """Return a value as a script's argument, where False stands for none."""
    return False if value is None else value


def earliest(times: Iterable[int | bytes | None]) -> int | None:
    """Return the earliest time; None if there is none."""
    return min((int(at) for at in times if at is not None), default=None)


# -- runs ------------------------------------------------------------------------------------------------------------


def new_run(row: RunRow) -> list[Any]:
    """Return a new run in the form of lib/runs.lua."""
    pending = row.status == _PENDING or bool(row.after)
    numbers = _numbers(row)
    plain = [
        row.id,
        raw(row.call),
        row.status,
        row.lane,
        numbers[:_AGE_CHARS],
        numbers,
        _urgency(row) if pending else "",
        row.run_at,
    ]
    if not pending or not _is_bare(row):
        incarnation = _incarnation(row)
        more: dict[str, Any] = {"fields": _fields(row, incarnation), "keep": row.keep, "state": raw(row.state)}
        if row.job_id is not None:
            more["sum"], more["job"] = checksum(row.job_id), row.job_id
            if incarnation is not None:
                more["incarnation"] = incarnation
        if row.live:
            more["live"] = raw(row.live)
        if row.after:
            more["after"] = _after(row)
        if row.token is not None:
            more["token"] = row.token
        if row.group is not None:
            more["group"] = row.group
        if row.unique is not None:
            more["unique"] = row.unique
        if row.gate is not None:
            more["gate"] = row.gate
        plain.append(more)
    return plain


def _after(row: RunRow) -> list[Any]:
    """Return the runs that a run comes after, each followed by its mask."""
    return [part for edge in row.after for part in (edge.id, edge.on)]


def _numbers(row: RunRow) -> str:
    end = "" if row.finished_at is None else f" {row.finished_at}"
    return f"{age(row.created_at)} {row.run_at} {row.priority}{end}"


def _attempts(row: RunRow) -> str:
    # A new run that is running already keeps the time of its claim. In this store, claim.lua writes both values.
    return str(row.attempt) if row.claimed_at is None else f"{row.attempt} {row.claimed_at}"


def _is_bare(row: RunRow) -> bool:
    """Return True if a pending run has only the values that every run has."""
    return (
        not (row.state or row.attempt or row.after)
        and row.job_id is row.group is row.unique is row.token is row.gate is None
        and row.live is None
    )


def _fields(row: RunRow, incarnation: str | None) -> list[Any]:
    """Return the fields that few new runs have, as names and values in turn."""
    fields: list[Any] = ["a", _attempts(row)]
    if row.token is not None:
        fields += ("k", row.token)
    if row.node is not None:
        fields += ("h", row.node)
    if row.job_id is not None:
        fields += ("job", row.job_id)
    if incarnation is not None:
        fields += ("incarnation", incarnation)
    common = len(fields)
    if row.group is not None:
        fields += ("group", row.group)
    if row.unique is not None:
        fields += ("unique", row.unique)
    if row.cancelling:
        fields += ("cancelling", "1")
    if row.gate is not None:
        fields += ("g", row.gate)
    if row.gate_spec is not None:
        fields += ("n", row.gate_spec)
    if row.after or len(fields) > common:
        fields += ("more", "1")
    elif row.job_id is not None:
        fields += ("more", "j")
    return fields


def _incarnation(row: RunRow) -> str | None:
    """Return the incarnation of the job that counts a run as unfinished, in the form of a job's state."""
    job, _, incarnation = (row.owner or "").rpartition("@")
    return incarnation.zfill(16) if incarnation and job == row.job_id else None


def checksum(job_id: str) -> str:
    """Return the score of a job's runs in their index."""
    return str(crc32(job_id.encode()))


def is_plain(row: RunRow) -> bool:
    """Return True if add_run.lua can add this run."""
    return (
        row.status == _PENDING
        and row.job_id is row.group is row.unique is row.gate is None
        and row.live is None
        and not row.after
        and len(row.state) <= LONGEST_VALUE
    )


def outcome(step: SettleRow, here: Sequence[RunRow] = (), away: Sequence[RunRow] = ()) -> list[Any]:
    """Return an outcome in the form of settle.lua, with its follow-ups for this shard and for others."""
    row = step.run
    unfinished = row.status not in FINAL_VALUES
    plain: list[Any] = [
        row.id,
        step.condition._value_,
        False if row.token is None else row.token,
        row.status,
        row.lane,
        _numbers(row),
        row.keep,
        raw(row.state),
    ]
    if unfinished or row.live or row.unique or row.cancelling or step.then or row.refused:
        more: dict[str, Any] = {
            "unique": row.unique,
            "cancelling": "1" if row.cancelling else None,
            "live": raw(row.live) if row.live else None,
            "followers": [new_run(run) for run in here],
            "away": [[run.id, raw(_packed(run))] for run in away],
            "after": _after(row) if unfinished else None,
            "by": row.refused,
        }
        more = {name: value for name, value in more.items() if value}
        if unfinished or row.refused:  # a refused run that was claimed is not charged a start
            more |= {"attempts": _attempts(row), "node": row.node or ""}
        if unfinished:
            more |= {
                "urgency": _urgency(row),
                "run_at": row.run_at,
                "until": row.lease_until or 0,
            }
        plain.append(more)
    return plain


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


def restored_outbox(reply: Iterable[bytes | None]) -> list[RunRow]:
    """Build rows from the reply of take_outbox.lua."""
    return [_run_row(run) for run in reply if run is not None]


def run_rows(reply: Sequence[Sequence[Any]], claim: Claim = NO_CLAIM) -> list[RunRow]:
    """Build rows from the reply of lib/read.lua; `claim` has the values that all runs claimed just now share."""
    ids, found, calls, leases, states, lives = reply
    rows = []
    for number, (run_id, fields, call) in enumerate(zip(ids, found, calls, strict=True)):
        if fields is None:
            continue
        row = run_row(run_id, fields, call or b"", claim)
        if leases and leases[number] is not None:
            row.lease_until = _lease(leases[number])
        if states and states[number] is not None:
            row.state = states[number]
        if lives:
            row.live = lives[number]
        rows.append(row)
    return rows


@lru_cache(_TEXTS_KNOWN)
def _lane(text: bytes) -> tuple[str, str]:
    """Return a lane and its queue; cached, because the runs of a claim share a few lanes."""
    lane = text.decode()
    return lane, queue_of(lane)


@lru_cache(_TEXTS_KNOWN)
def _attempts_of(text: bytes) -> tuple[int, int | None]:
    """Return the number of attempts and the time of the last claim; cached, because most runs of a claim share them."""
    attempt, *claimed = map(int, text.split())
    return attempt, claimed[0] if claimed else None


def run_row(run_id: bytes, fields: Sequence[Any], call: bytes = b"", claim: Claim = NO_CLAIM) -> RunRow:
    """Build a row from the fields of a run; altered fields give a row that is not whole."""
    try:
        text, attempts, numbers, *more = fields
        lane, queue = _lane(text)
        created, run_at, priority, *end = numbers.split()
        attempt, claimed_at = _attempts_of(attempts) if attempts else (0, None)
        token, node, until = claim
        # Positional arguments are quicker, and this happens for every run.
        row = RunRow(
            run_id.decode(), call, b"", queue, _RUNNING, int(run_at), int(created) - _ZERO, 0, lane, int(priority),
            attempt, token, node, until, claimed_at, int(end[0]) if end else None,
        )  # fmt: skip
        if more:
            _add_more(row, more)
        return row
    except (ValueError, TypeError, AttributeError) as error:
        name = run_id.decode("utf-8", "surrogateescape")  # so that the run can be found again
        return RunRow(id=name, call=call, state=b"", queue="", status=f"{error}", run_at=0, created_at=0, keep=0)


def _add_more(row: RunRow, fields: Sequence[Any]) -> None:
    """Add the fields that few runs have, and those that the reply has unless the run was claimed just now."""
    state, more, job, incarnation, group, unique, cancelling, waits, followed, refused, gate, gate_spec, *others = (
        fields
    )
    row.state = state or b""
    if more:
        row.job_id, row.group, row.unique = _text(job), _text(group), _text(unique) or None
        row.owner = f"{row.job_id}@{int(incarnation)}" if incarnation else None
        row.cancelling = bool(cancelling)
        row.waits, row.followed, row.refused = int(waits or 0), int(followed or 0), _text(refused) or None
        row.gate, row.gate_spec = _text(gate), _text(gate_spec)
    if others:
        status, token, node = others
        row.status, row.token, row.node = status.decode(), _text(token), _text(node) or None
        if row.status != _RUNNING:
            row.claimed_at = None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _lease(score: bytes) -> int | None:
    """Return the end of a lease; None if it was altered."""
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
    """Build rows from the reply of lib/jobs.lua; skip missing jobs. An altered job gives a row that is not whole."""
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
