"""Turn jobs and runs into rows and back. This decides which parts are signed, opaque, or readable by a back end."""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from mainspring.codec import Codec, EncodeError, FrameError, Reason
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.lanes import executor_of
from mainspring.core.policy import Policy
from mainspring.core.run import LONGEST_ABSENCE_US, After, Beat, Call, Error, Run, Start, Status
from mainspring.core.stored.settling import LOG_LINES
from mainspring.core.validation import check_field
from mainspring.jobstores.records.calls import (
    call_from_data,
    call_to_data,
    in_call,
    overridden_from_data,
    overridden_to_data,
)
from mainspring.jobstores.records.rows import FINAL_VALUES, BeatRow, JobRow, RunRow
from mainspring.triggers import trigger_from_data

__all__ = ["RecordPacker", "origin"]

KEEP_SECONDS: Final = 7 * 86400.0
"""Keep a finished run for this many seconds unless its policy says otherwise."""
_FRAMES_CACHED: Final = 10_000
_CACHED_FRAME_BYTES: Final = 500
"""Cache frames of direct calls up to this many bytes: short calls are often repeated."""
SEARCHABLE_CHARS: Final = 255
"""Write this many characters of the names that people search for."""
_KEEP_US: Final = int(KEEP_SECONDS * SECOND)
_PLAIN_TEXT_CHARS: Final = 1000
"""Keep a text result up to this many characters as plain text."""
_SCALARS: Final = frozenset([bool, int, float])
_ATOMS: Final = _SCALARS | {type(None), str, bytes}
_STATUSES: Final = {status.value: status for status in Status}
_RUNNING: Final = Status.RUNNING.value
_SEALED: Final = FINAL_VALUES - {Status.BROKEN.value}
"""The final statuses that are sealed. `broken` is not: a node that cannot verify may have set the run aside."""


class _RunState(msgspec.Struct, array_like=True, gc=False):
    """The part of a run that only the core reads.

    `frame` holds result and errors where they need the codec: signed, compressed, of any type. Once the run has ended,
    `frame` is the seal: it is signed for the id, status and attempt, and holds the result, the errors and the reason.
    `was` is the state in which a broken run was found. `call` is the call of a moved run, signed again.
    """

    executor: str | None = None
    fire_time: int | None = None
    start_by: int | None = None
    started_at: int | None = None
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    reason: str | None = None
    count: int = 1
    last: int | None = None
    result: bool | int | float | str | None = None
    frame: bytes | None = None
    was: bytes | None = None
    key: str | None = None
    retried: int = 0
    earlier_starts: tuple[Start, ...] = ()
    copied_from: str | None = None
    call: bytes | None = None
    after: tuple[After, ...] = ()
    delay: int = 0


class _RunEnd(NamedTuple):
    """The end of a run, and the reason if it cannot be verified."""

    result: Any
    errors: tuple[Error, ...]
    reason: str | None
    unverified: str | None = None


_NO_END: Final = _RunEnd(None, (), None)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_RunState).decode
_NO_STATE: Final = _RunState()
_NO_STATE_BYTES: Final = _encode(_NO_STATE)


class RecordPacker:
    """Turns jobs and runs into rows and back; caches decoded frames."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._jobs: dict[tuple[str, bytes], tuple[Job, bool]] = {}
        self._calls: dict[tuple[str, bytes], tuple[Call, Policy, str | None]] = {}

    # -- jobs --------------------------------------------------------------------------------------------------

    def job_row(self, job: Job) -> JobRow:
        """Pack a job; raise if its function has no name, or an argument cannot be stored."""
        data = call_to_data(job.call, job.policy, job.id)
        data |= {
            "t": job.trigger.to_data(),
            "x": job.executor,
            "q": job.queue,
            "g": job.misfire_grace_time,
            "c": job.coalesce,
            "m": job.max_instances,
        }
        if job.overlap != "skip":
            data["v"] = job.overlap
        if job.late_after is not None or job.down_after is not None:
            data["h"] = [job.late_after, job.down_after]
        if job.declared is not None:
            data["d"] = job.declared
            if job.overridden:
                data["o"] = overridden_to_data(job)
        try:
            frame = self.codec.dumps(data, f"job:{job.id}")
        except EncodeError as error:
            raise in_call(error, data["f"]) from error.__cause__
        return JobRow(job.id, job.at, job.nominal, frame, job.version, job.incarnation)

    def job(self, row: JobRow) -> Job:
        """Restore a job; raise FrameError if its bytes are damaged or altered."""
        known = self._jobs.get((row.id, row.frame))
        if known is None:
            job = self._decode_job(row)
            known = job, _is_unchangeable(job.call)
            if len(self._jobs) >= _FRAMES_CACHED:
                self._jobs.clear()
            self._jobs[row.id, row.frame] = known
        job = known[0].copy()
        if not known[1]:  # decode again: do not share values that a function may change
            job.call = call_from_data(self.codec.loads(row.frame, f"job:{row.id}"), row.frame)[0]
        job.at, job.nominal = row.at, row.nominal
        job.version, job.incarnation = row.version, row.incarnation
        return job

    def _decode_job(self, row: JobRow) -> Job:
        data = self.codec.loads(row.frame, f"job:{row.id}")
        try:
            call, policy = call_from_data(data, row.frame)
            late_after, down_after = data.get("h", (None, None))
            job = Job(
                row.id,
                call,
                trigger_from_data(data["t"]),
                executor=data["x"],
                queue=data["q"],
                misfire_grace_time=data["g"],
                coalesce=data["c"],
                max_instances=data["m"],
                overlap=check_field("overlap", data.get("v", "skip")),
                late_after=late_after,
                down_after=down_after,
                policy=policy,
            )
            job.declared = data.get("d")
            if "o" in data:
                job.overridden = overridden_from_data(data["o"])
            return job
        except (Exception, SystemExit) as error:
            raise _as_frame_error(error) from error

    def unsigned_declaration(self, row: JobRow) -> str | None:
        """Return the declaration mark that an unsigned job claims to have; None if the job is signed."""
        try:
            data = Codec(max_frame=self.codec.max_frame).loads(row.frame, f"job:{row.id}")
            return str(data["d"])
        except Exception:  # signed, damaged or not declared: other code judges that
            return None

    # -- runs --------------------------------------------------------------------------------------------------

    def run_row(self, run: Run, *, fired: bool = False) -> RunRow:
        """Pack a run; the run of a job carries its job's frame unchanged.

        Keep the start of a run that is claimed as it is fired out of its state, because it may have to wait.
        """
        frame, policy, task, lane = run.call.frame, run.policy, run.call.func, run.lane
        if frame is None:
            data = call_to_data(run.call, policy, run.id)
            task = data["f"]
            if run.job_id is not None:
                data["l"] = run.queue
            try:
                frame = self.codec.dumps(data, origin(run.id, run.job_id, run.queue), inputs=run.call.inputs)
            except EncodeError as error:
                raise in_call(error, data["f"]) from error.__cause__
        reported = run.progress is not None or run.data is not None or run.log
        live = self._live(run.id, run.progress, run.data, run.log) if reported else None
        owner = run.id.rpartition("@")[0] if run.job_id is not None and run.counted else None
        keep = _KEEP_US if policy.retention is None else int(policy.retention * SECOND) | 1
        # Pass the fields by position, here and in `run`: thirty keyword arguments would take longer than signing.
        return RunRow(
            run.id, frame, self._state(run, lane, frame if run.moved else None, None if fired else run.started_at),
            run.queue, run.status._value_, run.run_at, run.created_at, keep, lane, run.priority, run.attempt, run.token,
            run.node, run.lease_until, run.started_at if fired else None, run.finished_at, live, owner, run.job_id,
            run.group, run.unique, run.cancelling, run.after, run.waits, run.followed, run.refused, run.gate,
            run.gate_spec, _searchable(task) if isinstance(task, str) else None, _searchable(run.call.name),
        )  # fmt: skip

    def _state(self, run: Run, lane: str, call: bytes | None, started_at: int | None) -> bytes:
        """Pack the state that only the core reads; return empty bytes if there is none."""
        result, errors, reason, frame = run.result, run.errors, run.reason, None
        if reason is not None and not reason.isascii():  # a lone surrogate in the user's text must not stop the settle
            reason = reason.encode("utf-8", "backslashreplace").decode()
        sealed = self.codec.signed and run.status._value_ in FINAL_VALUES  # an Enum hashes in Python
        if sealed or errors or (result is not None and not self._is_plain(result)):
            more = {"result": result, "errors": list(map(astuple, errors)) if errors else []}
            if sealed:
                more["reason"], reason = reason, None
            result, frame = None, self.codec.dumps(more, _seal_context(run.id, run.status._value_, run.attempt))
        executor = None if lane != run.queue else run.executor  # any other lane names the executor
        packed = _encode(
            _RunState(
                executor, run.fire_time, run.start_by, started_at, run.failures, run.crashes,
                run.interruptions, reason, run.count, run.last, result, frame, None, run.key, run.retried,
                run.earlier_starts, run.copied_from, call, run.after, run.delay,
            )
        )  # fmt: skip
        return b"" if packed == _NO_STATE_BYTES else packed

    def _is_plain(self, result: Any) -> bool:
        """Return True if a result needs neither a signature nor the codec's types."""
        if self.codec.signed:
            return False
        kind = type(result)
        if kind is int:
            return bool(-(2**63) <= result < 2**63)
        return kind in _SCALARS or (kind is str and len(result) <= _PLAIN_TEXT_CHARS and result.isascii())

    def run(self, row: RunRow) -> Run:
        """Restore a run; raise FrameError if its bytes are damaged or altered."""
        try:
            state = _decode(row.state) if row.state else _NO_STATE
            frame = row.call if state.call is None else state.call
            if row.job_id is None and self.codec.signed:  # signed for this run alone, so a cache would not help
                call, policy = call_from_data(self.codec.loads(frame, origin(row.id, None, row.queue)), frame)
            else:
                call, policy = self._shared_call(frame, row)
            fresh = state is _NO_STATE and row.status not in _SEALED
            outcome = _NO_END if fresh else self._outcome(row, state)
            progress, data, lines = (None, None, ()) if row.live is None else self._loaded_live(row)
            started_at = state.started_at
            if started_at is None and row.status == _RUNNING:
                started_at = row.claimed_at
            return Run(
                row.id, call, row.queue, executor_of(row.lane) or state.executor, row.job_id, row.group, row.unique,
                _STATUSES[row.status], policy, row.priority, row.attempt, state.failures, state.crashes,
                state.interruptions, row.created_at, state.fire_time, row.run_at, state.start_by, started_at,
                row.finished_at, row.node, row.token, row.lease_until, row.cancelling, outcome.result, outcome.errors,
                progress, data, lines, outcome.reason, state.count, state.last, state.after, state.delay, row.waits,
                row.followed, row.refused, row.gate, row.gate_spec, row.job_id is None or row.owner is not None,
                state.key, state.retried, state.earlier_starts, state.copied_from, state.call is not None,
                outcome.unverified,
            )  # fmt: skip
        except Exception as error:
            raise _as_frame_error(error) from error

    def _outcome(self, row: RunRow, state: _RunState) -> _RunEnd:
        """Restore the outcome of a run. For an ended run, return what is wrong with its seal instead of raising."""
        try:
            if state.frame is None:
                if self.codec.signed and (row.status in _SEALED or state.result is not None):
                    raise FrameError(Reason.UNSIGNED, "its outcome is not signed: anybody may have written it")
                return _RunEnd(state.result, (), state.reason)
            more = self.codec.loads(state.frame, _seal_context(row.id, row.status, row.attempt))
            errors = tuple(starmap(Error, more["errors"]))
            return _RunEnd(more["result"], errors, more.get("reason", state.reason))
        except Exception as error:
            if row.status not in _SEALED:
                raise
            why = _as_reason(_as_frame_error(error))
            return _RunEnd(None, (), why, why)

    def shown(self, row: RunRow) -> Run:
        """Restore a run for display; if its bytes are damaged, its reason says so."""
        try:
            return self.run(row)
        except FrameError as error:
            return Run(
                id=row.id, call=Call("", name="?", frame=row.call), queue=row.queue, job_id=row.job_id,
                group=row.group, status=Status(row.status), priority=row.priority, attempt=row.attempt,
                created_at=row.created_at, run_at=row.run_at, finished_at=row.finished_at, node=row.node,
                token=row.token, reason=_readable_state(row).reason or _as_reason(error),
                unverified=_as_reason(error) if row.status in _SEALED else None,
            )  # fmt: skip

    def broken_row(self, row: RunRow, reason: str, now: int) -> RunRow:
        """Mark a row as broken; keep its bytes with the reason."""
        before = _readable_state(row)
        key = row.unique or before.key
        kept = _RunState(
            reason=reason, was=row.state, key=key, retried=before.retried, call=before.call, after=before.after
        )
        return msgspec.structs.replace(
            row, status=Status.BROKEN.value, state=_encode(kept), finished_at=now, lease_until=None, unique=None
        )

    def given_back_row(self, row: RunRow, now: int) -> RunRow:
        """Let a claimed row wait for a node that has its code; the older it is, the longer it waits."""
        wait = min(LONGEST_ABSENCE_US, max(SECOND, (now - row.created_at) // 2))
        return msgspec.structs.replace(
            row,
            status=Status.PENDING.value,
            run_at=now + wait,
            attempt=max(0, row.attempt - 1),
            lease_until=None,
            node=None,
        )

    def _shared_call(self, frame: bytes, row: RunRow) -> tuple[Call, Policy]:
        """Restore a call that several runs may share: runs of one job, or equal calls that are not signed."""
        where = origin(row.id, row.job_id, row.queue)
        # An unsigned frame does not name its run, so equal calls have equal frames.
        key = where if self.codec.signed else "", frame
        known = self._calls.get(key)
        if known is None:
            data = self.codec.loads(frame, where)
            known = *call_from_data(data, frame), _queue(data)
            again = row.job_id is not None or len(frame) <= _CACHED_FRAME_BYTES  # long frames are rarely repeated
            if again and _is_unchangeable(known[0]):
                if len(self._calls) >= _FRAMES_CACHED:
                    self._calls.clear()
                self._calls[key] = known
        call, policy, queue = known
        if self.codec.signed and queue != row.queue:
            raise FrameError(Reason.BAD_SIGNATURE, f"signed for the queue {queue!r}, but found in {row.queue!r}")
        return call, policy

    def beat_row(self, beat: Beat, stored: RunRow | None = None) -> BeatRow:
        """Pack a heartbeat of a run; add its reports to those of the stored row."""
        progress, data, lines = beat.progress, beat.data, beat.log
        if stored is not None and stored.live is not None and stored.token == beat.token:
            try:
                earlier = self._loaded_live(stored)
            except FrameError:  # the holder's new reports replace unreadable ones
                earlier = (None, None, ())
            progress = earlier[0] if progress is None else progress
            data = earlier[1] if data is None else data
            lines = (*earlier[2], *lines)[-LOG_LINES:]
        return BeatRow(beat.run_id, beat.token, self._live(beat.run_id, progress, data, lines))

    def _live(self, run_id: str, progress: Any, data: Any, lines: tuple[str, ...]) -> bytes | None:
        if progress is None and data is None and not lines:
            return None
        return self.codec.dumps([progress, data, list(lines)], f"live:{run_id}")

    def _loaded_live(self, row: RunRow) -> tuple[Any, Any, tuple[str, ...]]:
        assert row.live is not None
        progress, data, lines = self.codec.loads(row.live, f"live:{row.id}")
        return progress, data, tuple(lines)


def _as_reason(error: FrameError) -> str:
    return f"{error.reason}: {error}"


def _seal_context(run_id: str, status: str, attempt: int) -> str:
    """Return the signing context of a run's state; once the run has ended, it includes status and attempt."""
    return f"end:{status}:{attempt}:{run_id}" if status in FINAL_VALUES else f"state:{run_id}"


def _readable_state(row: RunRow) -> _RunState:
    """Return the readable part of the state of a damaged row."""
    try:
        return _decode(row.state) if row.state else _NO_STATE
    except msgspec.MsgspecError:
        return _NO_STATE


def origin(run_id: str, job_id: str | None, queue: str) -> str:
    """Return the signing context of a run's call: its queue and id, or its job."""
    return f"run:{queue}:{run_id}" if job_id is None else f"job:{job_id}"


def _queue(data: dict[str, Any]) -> str | None:
    """Return the queue for which the call of a job is signed."""
    if "l" in data:
        return str(data["l"])
    return None if "x" not in data else str(data["q"]) if data["x"] == "queue" else f".{data['x']}"


@lru_cache(_FRAMES_CACHED)
def _searchable(text: str) -> str:
    """Return a name in a form that every database can keep."""
    if len(text) <= SEARCHABLE_CHARS and text.isascii() and "\0" not in text:
        return text
    return text[:SEARCHABLE_CHARS].replace("\0", "").encode("utf-8", "replace").decode()


def _is_unchangeable(call: Call) -> bool:
    return _ATOMS.issuperset(map(type, call.args)) and _ATOMS.issuperset(map(type, call.kwargs.values()))


def _as_frame_error(error: Exception | SystemExit) -> FrameError:
    """Return the FrameError that tells code that fails to import on this node from bytes that are wrong everywhere."""
    if isinstance(error, FrameError):
        return error
    missing = isinstance(error, LookupError | SystemExit) and not isinstance(error, KeyError)
    return FrameError(Reason.MISSING_CODE if missing else Reason.BAD_DATA, f"{type(error).__name__}: {error}")
