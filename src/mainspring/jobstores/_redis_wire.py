"""Rows as the Lua scripts take and give them: plain values as MessagePack, opaque bytes beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mainspring.jobstores.rows import JobRow, RunRow

__all__ = ["Bytes", "head", "job_rows", "outbox_rows", "run_rows", "text", "texts"]

log = logging.getLogger("mainspring.jobstores.redis")


class _Head(msgspec.Struct, array_like=True, gc=False):
    """What a script looks at in a run, in the order of lib_runs.lua; absent values are False.

    Scripts pack text and bytes alike, so bytes are never part of it.
    """

    status: str
    token: str | bool
    node: str | bool
    attempt: int
    cancelling: bool
    queue: str
    priority: int
    run_at: int
    created_at: int
    finished_at: int | bool
    keep: int
    owner: str | bool
    job_id: str | bool
    unique: str | bool
    group: str | bool
    place: str


class _JobState(msgspec.Struct, array_like=True, gc=False):
    """What a script looks at in a job, in the order of lib_jobs.lua."""

    version: int
    incarnation: str
    at: int | bool
    nominal: int | bool
    miss: str | bool


_head = msgspec.msgpack.Decoder(_Head).decode
_job_state = msgspec.msgpack.Decoder(_JobState).decode


class Bytes:
    """The bytes of one script call; what is put in is known to the script by its number among ARGV."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def run(self, row: RunRow) -> list[Any]:
        """Put a run's bytes in; return the rest of it."""
        values = self.values
        number = len(values) + 2  # ARGV counts from one, and the first is the plain arguments
        values += (row.call, row.state, row.live or b"")
        return [row.id, number, head(row)]


def head(row: RunRow) -> list[Any]:
    """Return what scripts look at in a run."""
    return [
        row.status,
        _or_false(row.token),
        _or_false(row.node),
        row.attempt,
        row.cancelling,
        row.queue,
        row.priority,
        row.run_at,
        row.created_at,
        _or_false(row.finished_at),
        row.keep,
        _or_false(row.owner),
        _or_false(row.job_id),
        _or_false(row.unique),
        _or_false(row.group),
        "",
    ]


def run_rows(reply: Sequence[Sequence[Any]]) -> list[RunRow]:
    """Make rows of the arrays that lib_read.lua answers; what is not there is left out."""
    rows = []
    for run_id, packed, lease, call, state, live in zip(*reply, strict=True):
        if packed is not None:
            try:
                rows.append(_run_row(text(run_id), _head(packed), lease, call, state, live))
            except ValueError as error:
                log.error("the record of run %r is damaged and passed over: %s", run_id, error)
    return rows


def outbox_rows(reply: Sequence[Sequence[Any]]) -> list[RunRow]:
    """Make rows of what take_outbox.lua answers."""
    return [
        _run_row(text(run_id), _head(packed), None, call, state, live or None)
        for run_id, packed, call, state, live in zip(*reply, strict=True)
    ]


def _run_row(
    run_id: str, head: _Head, lease: bytes | None, call: bytes | None, state: bytes | None, live: bytes | None
) -> RunRow:
    # A `bool` in one of these is always False: absent.
    return RunRow(
        id=run_id,
        call=call or b"",
        state=state or b"",
        live=live,
        owner=_or_none(head.owner),
        job_id=_or_none(head.job_id),
        queue=head.queue,
        status=head.status,
        priority=head.priority,
        run_at=head.run_at,
        created_at=head.created_at,
        finished_at=_or_none(head.finished_at),
        keep=head.keep,
        token=_or_none(head.token),
        node=_or_none(head.node),
        lease_until=None if lease is None else int(float(lease)),
        attempt=head.attempt,
        cancelling=head.cancelling,
        unique=_or_none(head.unique),
        group=_or_none(head.group),
    )


def job_rows(reply: Sequence[Sequence[Any]]) -> list[JobRow]:
    """Make rows of the arrays that lib_jobs.lua answers; what is not there is left out."""
    rows = []
    for job_id, frame, packed, count in zip(*reply, strict=True):
        if packed is not None:
            try:
                state = _job_state(packed)
            except ValueError as error:
                log.error("the record of job %r is damaged and passed over: %s", job_id, error)
                continue
            rows.append(
                JobRow(
                    text(job_id),
                    _or_none(state.at),
                    _or_none(state.nominal),
                    frame or b"",
                    state.version,
                    int(state.incarnation),
                    int(count or 0),
                    _or_none(state.miss),
                )
            )
    return rows


def texts(values: Iterable[bytes]) -> list[str]:
    """Decode ids."""
    return [value.decode() for value in values]


def text(value: bytes) -> str:
    """Decode an id."""
    return value.decode()


def _or_false(value: Any) -> Any:
    return False if value is None else value


def _or_none(value: Any) -> Any:
    return None if value is False else value
