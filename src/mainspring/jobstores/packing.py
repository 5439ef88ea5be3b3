"""Jobs and runs <-> rows: what is signed, what is opaque, what a back end may look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from mainspring.clock import SECOND
from mainspring.codec import Codec, EncodeError, FrameError, Reason
from mainspring.errors import CallableReferenceError, TransientJobError
from mainspring.job import POLICY_FIELDS, Job
from mainspring.jobstores.rows import BeatRow, JobRow, RunRow
from mainspring.retry import DEFAULT_POLICY, Backoff, Policy
from mainspring.run import ABSENT_LONGEST, Beat, Call, Error, Run, Status
from mainspring.task import obj_to_ref, portable_call, ref_to_obj
from mainspring.triggers import trigger_from_data

__all__ = ["Packer"]

KEEP_FOR: Final = 7 * 86400.0
"""Seconds for which a finished run is kept unless its policy says otherwise."""
LOG_LINES: Final = 1000
"""Lines of a run's log that are kept: the last ones."""
_CACHED: Final = 10_000
_SIMPLE: Final = (type(None), bool, int, float)
# Fields of a run that only the core looks at: kept together, each only where it differs from its default.
_STATE: Final = (
    "executor", "fire_time", "start_by", "started_at", "failures", "crashes", "interruptions", "result", "reason",
    "count", "last", "later",
)  # fmt: skip
_DEFAULTS: Final = dict(
    zip(Run.__struct_fields__[-len(Run.__struct_defaults__) :], Run.__struct_defaults__, strict=True)
)


class Packer:
    """Turns jobs and runs into rows and back; restores a frame that it has seen before without decoding it again."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._jobs: dict[tuple[str, bytes], Job] = {}
        self._calls: dict[tuple[str, bytes], tuple[Call, Policy]] = {}

    # -- jobs --------------------------------------------------------------------------------------------------

    def job_row(self, job: Job) -> JobRow:
        """Pack a job; raise if its function has no name, or an argument cannot be stored."""
        data = _call_data(job.call, job.policy, job.id)
        data |= {
            "t": job.trigger.to_data(),
            "x": job.executor,
            "q": job.queue,
            "g": job.misfire_grace_time,
            "c": job.coalesce,
            "m": job.max_instances,
        }
        frame = self.codec.dumps(data, f"job:{job.id}")
        return JobRow(job.id, job.at, job.nominal, frame, job.version, job.incarnation)

    def job(self, row: JobRow) -> Job:
        """Restore a job; raise FrameError if its bytes are not what they should be."""
        known = self._jobs.get((row.id, row.frame))
        if known is None:
            known = self._decode_job(row)
            if len(self._jobs) >= _CACHED:
                self._jobs.clear()
            self._jobs[row.id, row.frame] = known
        job = known.copy()
        job.at, job.nominal = row.at, row.nominal
        job.version, job.incarnation = row.version, row.incarnation
        return job

    def _decode_job(self, row: JobRow) -> Job:
        data = self.codec.loads(row.frame, f"job:{row.id}")
        try:
            call, policy = _call(data, row.frame)
            return Job(
                row.id,
                call,
                trigger_from_data(data["t"]),
                executor=data["x"],
                queue=data["q"],
                misfire_grace_time=data["g"],
                coalesce=data["c"],
                max_instances=data["m"],
                policy=policy,
            )
        except Exception as error:
            raise _as_frame_error(error) from error

    # -- runs --------------------------------------------------------------------------------------------------

    def run_row(self, run: Run) -> RunRow:
        """Pack a run; a fired one carries its job's frame as it is."""
        frame, origin = run.call.frame, f"job:{run.job_id}"
        if frame is None:
            origin = f"run:{run.id}"
            frame = self.codec.dumps(_call_data(run.call, run.policy, run.id), origin)
        state: dict[str, Any] = {"o": origin}
        for name in _STATE:
            value = getattr(run, name)
            if value != _DEFAULTS[name]:
                state[name] = value
        if run.errors:
            state["errors"] = [msgspec.structs.astuple(error) for error in run.errors]
        return RunRow(
            id=run.id,
            call=frame,
            state=self.codec.dumps(state, f"state:{run.id}"),
            live=self._live(run.id, run.progress, run.data, run.log),
            owner=None if run.job_id is None else run.id.rpartition("@")[0],
            job_id=run.job_id,
            queue=run.queue,
            status=run.status.value,
            priority=run.priority,
            run_at=run.run_at,
            created_at=run.created_at,
            finished_at=run.finished_at,
            keep=int((KEEP_FOR if run.policy.retention is None else run.policy.retention) * SECOND),
            token=run.token,
            node=run.node,
            lease_until=run.lease_until,
            attempt=run.attempt,
            cancelling=run.cancelling,
            unique=run.unique,
            group=run.group,
        )

    def run(self, row: RunRow) -> Run:
        """Restore a run; raise FrameError if its bytes are not what they should be."""
        state = self.codec.loads(row.state, f"state:{row.id}")
        try:
            origin = state.pop("o")
            state.pop("was", None)
            errors = tuple(Error(*error) for error in state.pop("errors", ()))
            call, policy = self._restored_call(row.call, origin)
            progress, data, lines = (None, None, ()) if row.live is None else self._loaded_live(row)
            return Run(
                id=row.id, call=call, policy=policy, queue=row.queue, job_id=row.job_id, group=row.group,
                unique=row.unique, status=Status(row.status), priority=row.priority, attempt=row.attempt,
                created_at=row.created_at, run_at=row.run_at, finished_at=row.finished_at, node=row.node,
                token=row.token, lease_until=row.lease_until, cancelling=row.cancelling, errors=errors,
                progress=progress, data=data, log=lines, **state,
            )  # fmt: skip
        except Exception as error:
            raise _as_frame_error(error) from error

    def shown(self, row: RunRow) -> Run:
        """Restore a run to look at; where its bytes are damaged, say so in its reason."""
        try:
            return self.run(row)
        except FrameError as error:
            return Run(
                id=row.id, call=Call("", name="?", frame=row.call), queue=row.queue, job_id=row.job_id,
                group=row.group, status=Status(row.status), priority=row.priority, attempt=row.attempt,
                created_at=row.created_at, run_at=row.run_at, finished_at=row.finished_at, node=row.node,
                token=row.token, reason=self._broken_reason(row) or f"{error.reason}: {error}",
            )  # fmt: skip

    def broken_row(self, row: RunRow, reason: str, now: int) -> RunRow:
        """Mark a row as broken, its bytes kept with the reason."""
        state = self.codec.dumps({"o": "", "reason": reason, "was": row.state}, f"state:{row.id}")
        return msgspec.structs.replace(
            row, status=Status.BROKEN.value, state=state, finished_at=now, lease_until=None, unique=None
        )

    def given_back_row(self, row: RunRow, now: int) -> RunRow:
        """Make a claimed row wait for a node that has its code, ever longer as it gets older."""
        wait = min(ABSENT_LONGEST, max(SECOND, (now - row.created_at) // 2))
        return msgspec.structs.replace(
            row,
            status=Status.PENDING.value,
            run_at=now + wait,
            attempt=max(0, row.attempt - 1),
            lease_until=None,
            node=None,
        )

    def restored_row(self, row: RunRow) -> RunRow:
        """Give a broken row the state back that it had."""
        was = self.codec.loads(row.state, f"state:{row.id}").get("was")
        return row if was is None else msgspec.structs.replace(row, state=was)

    def _broken_reason(self, row: RunRow) -> str | None:
        try:
            reason: str | None = self.codec.loads(row.state, f"state:{row.id}").get("reason")
        except (FrameError, AttributeError):
            return None
        return reason

    def _restored_call(self, frame: bytes, origin: str) -> tuple[Call, Policy]:
        known = self._calls.get((origin, frame))
        if known is None:
            known = _call(self.codec.loads(frame, origin), frame)
            if origin.startswith("job:"):  # the frames of direct calls do not come again
                if len(self._calls) >= _CACHED:
                    self._calls.clear()
                self._calls[origin, frame] = known
        return known

    def beat_row(self, beat: Beat, stored: RunRow | None = None) -> BeatRow:
        """Pack a sign of life, its reports added to those of the stored row."""
        progress, data, lines = beat.progress, beat.data, beat.log
        if stored is not None and stored.live is not None and stored.token == beat.token:
            try:
                earlier = self._loaded_live(stored)
            except FrameError:  # what cannot be read is replaced by what the holder says now
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

    def unstorable(self, value: Any) -> Exception | None:
        """Say why a result could not be kept, or None."""
        if isinstance(value, _SIMPLE):
            return None
        try:
            self.codec.dumps({"result": value}, "")
        except EncodeError as error:
            return error
        return None


def _as_frame_error(error: Exception) -> FrameError:
    """Tell code that is missing here from bytes that are wrong everywhere."""
    if isinstance(error, FrameError):
        return error
    missing = isinstance(error, LookupError) and not isinstance(error, KeyError)
    return FrameError(Reason.MISSING_CODE if missing else Reason.BAD_DATA, f"{type(error).__name__}: {error}")


def _call_data(call: Call, policy: Policy, job_id: str) -> dict[str, Any]:
    """Return what is called and how as plain data."""
    try:
        ref, args = portable_call(call.func, call.args)
    except (CallableReferenceError, LookupError) as error:
        raise TransientJobError(job_id, str(error)) from error
    data = {"f": ref, "a": list(args), "k": dict(call.kwargs), "n": call.name}
    if policy != DEFAULT_POLICY:
        data["p"] = _policy_data(policy, job_id)
    return data


def _call(data: dict[str, Any], frame: bytes) -> tuple[Call, Policy]:
    policy = _policy(data["p"]) if "p" in data else DEFAULT_POLICY
    return Call(data["f"], tuple(data["a"]), data["k"], data["n"], frame), policy


def _policy_data(policy: Policy, job_id: str) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name in POLICY_FIELDS:
        value = getattr(policy, name)
        if value == getattr(DEFAULT_POLICY, name):
            continue
        if isinstance(value, Backoff):
            value = {"exponential": list(msgspec.structs.astuple(value))}
        elif name in ("retry_on", "give_up_on"):
            value = [_reference(kind, job_id) for kind in value]
        elif callable(value) or isinstance(value, partial):
            value = {"ref": _reference(value, job_id)}
        data[name] = value
    return data


def _reference(obj: Callable[..., Any], job_id: str) -> str:
    try:
        return obj_to_ref(obj)
    except (CallableReferenceError, LookupError) as error:
        raise TransientJobError(job_id, str(error)) from error


def _policy(data: dict[str, Any]) -> Policy:
    fields = dict(data)
    for name, value in data.items():
        if name in ("retry_on", "give_up_on"):
            fields[name] = tuple(ref_to_obj(ref) for ref in value)
        elif isinstance(value, dict) and "exponential" in value:
            fields[name] = Backoff(*value["exponential"])
        elif isinstance(value, dict) and "ref" in value:
            fields[name] = ref_to_obj(value["ref"])
    return Policy(**fields)
