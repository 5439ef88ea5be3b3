"""Make every change of a run's record that `TRANSITIONS` permits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import PROCESSES_EXECUTOR
from mainspring.core.policy import Policy, bounded, delay_after
from mainspring.core.run import (
    ERRORS_KEPT,
    LONGEST_ABSENCE_US,
    MESSAGE_CHARS,
    MOST_CRASHES,
    TRANSITIONS,
    WAITING,
    Condition,
    Error,
    Outcome,
    Report,
    Result,
    Run,
    Status,
    describe,
    kept_starts,
)
from mainspring.core.waiting.followups import hook_of
from mainspring.core.waiting.refusals import reason_after
from mainspring.errors import Cancel, MainspringError, Retry, WorkerDied

__all__ = [
    "cancel",
    "change",
    "conclude",
    "drop",
    "failures",
    "recover",
    "retry",
    "send_back",
    "send_back_one",
    "shortened",
    "signal",
    "stop",
    "unkeyed",
]

_RETURNED: Final = Result.RETURNED
_SUCCEEDED: Final = Status.SUCCEEDED
_HELD: Final = Condition.HELD


def conclude(report: Report, now: int, noise: float, *, retry: bool = True) -> Outcome:
    """Turn an executor's report into the outcome of its run; without `retry`, a failure is final."""
    run = report.run
    result = report.result
    if result is _RETURNED:  # first, since almost all runs return
        done = replace(
            run,
            status=_SUCCEEDED,
            result=report.value,
            started_at=report.started_at,
            finished_at=report.finished_at,
            lease_until=None,
            unique=None,
        )
        return Outcome(done, _HELD)
    if result is Result.UNSTARTED:
        return Outcome(_waiting(run, run_at=run.run_at, attempt=max(0, run.attempt - 1)), Condition.HELD)
    if result is Result.ABSENT:
        # Wait half the run's age: nodes that lack the code try less and less often, but within a minute of a deploy.
        wait = min(LONGEST_ABSENCE_US, max(SECOND, (now - run.created_at) // 2))
        return Outcome(_waiting(run, run_at=now + wait, attempt=max(0, run.attempt - 1)), Condition.HELD)
    if result is Result.BUSY:
        return Outcome(_waiting(run, run_at=now + SECOND, attempt=max(0, run.attempt - 1)), Condition.HELD)
    if result is Result.REFUSED:
        return drop(run, reason_after(None, run.refused or "another run"), now)
    if result is Result.LATE:
        return _end(report, Status.MISSED, now, reason="late")
    if result is Result.CANCELLED or isinstance(report.exception, Cancel):
        return _end(report, Status.CANCELLED, now, reason=_text(report.exception))
    if result is Result.INTERRUPTED:
        return _lost(run, now, Condition.HELD, "interrupted")
    if isinstance(report.exception, WorkerDied) and not run.queue.startswith("."):
        return _crashed(report, now)
    return _failed(report, now, noise, retry)


def _failed(report: Report, now: int, noise: float, retry: bool) -> Outcome:
    run, exception = report.run, report.exception
    if isinstance(exception, Retry) and not exception.counted:
        run_at = now + int(bounded(exception.delay or 0) * SECOND)
        starts = run.after_start("retry", report.finished_at or now, run_at, report.started_at)
        return Outcome(_waiting(run, run_at=run_at, start_by=None, earlier_starts=starts), Condition.HELD)
    failures = run.failures + 1
    errors = run.errors if report.error is None else (*run.errors, report.error)[-ERRORS_KEPT:]
    if retry and run.policy.wants_retry(failures, exception):
        asked = exception.delay if isinstance(exception, Retry) else None
        wait = delay_after(run.policy.backoff, failures, noise) if asked is None else bounded(asked)
        run_at = now + int(wait * SECOND)
        starts = run.after_start("raised", report.finished_at or now, run_at, report.started_at)
        changes = {"failures": failures, "errors": errors, "start_by": None, "earlier_starts": starts}
        return Outcome(_waiting(run, run_at=run_at, **changes), Condition.HELD)
    return _end(report, Status.FAILED, now, failures=failures, errors=errors)


def _crashed(report: Report, now: int) -> Outcome:
    """Count a crash, which is not a failure: the run starts again, isolated, until it has crashed too often."""
    run, error = report.run, report.error
    crashes = run.crashes + 1
    errors = run.errors if error is None else (*run.errors, error)[-ERRORS_KEPT:]
    if run.policy.delivery == "at_most_once":
        return _end(report, Status.FAILED, now, crashes=crashes, errors=errors, reason="lost")
    if crashes > MOST_CRASHES:
        reason = f"crashed the process that executed it {crashes} times"
        return _end(report, Status.BROKEN, now, crashes=crashes, errors=errors, reason=reason)
    starts = run.after_start("crashed", report.finished_at or now, now, report.started_at)
    alone = {"crashes": crashes, "executor": PROCESSES_EXECUTOR}
    again = _waiting(run, run_at=now, errors=errors, earlier_starts=starts, **alone)
    return Outcome(again, Condition.HELD)


def recover(run: Run, now: int) -> Outcome:
    """Return the outcome of a run whose node is gone: it waits again if its policy allows and nobody cancelled it."""
    if run.cancelling:
        return _cancelled(run, now, Condition.EXPIRED)
    return _lost(run, now, Condition.EXPIRED, "lost")


def _lost(run: Run, now: int, condition: Condition, how: str) -> Outcome:
    if run.policy.delivery != "at_most_once":
        starts = run.after_start(how, now, now)
        again = _waiting(run, run_at=now, interruptions=run.interruptions + 1, earlier_starts=starts)
        return Outcome(again, condition)
    lost = Error(type="NodeLost", message=f"node {run.node} is gone", traceback="", at=now, attempt=run.attempt)
    ended = replace(
        run,
        status=Status.FAILED,
        reason="lost",
        errors=(*run.errors, lost)[-ERRORS_KEPT:],
        finished_at=now,
        lease_until=None,
        **_freed(run),
    )
    return Outcome(ended, condition)


def cancel(run: Run, now: int, reason: str | None = None) -> Outcome:
    """Return the outcome that cancels a waiting run."""
    return _cancelled(run if reason is None else replace(run, reason=reason), now, Condition.WAITING)


def drop(run: Run, reason: str, now: int) -> Outcome:
    """Return the outcome that cancels a run because the end of its predecessor `run.refused` does not let it start.

    If a node has claimed the run meanwhile, that claim does not count as a start.
    """
    condition = Condition.HELD if run.status is Status.RUNNING else Condition.REFUSED
    if condition is Condition.HELD:
        run = replace(run, attempt=max(0, run.attempt - 1), started_at=None, node=None)
    return _cancelled(replace(run, reason=reason), now, condition)


def signal(run: Run, value: Any, now: int) -> Outcome:
    """Return the outcome that ends the run of a signal, with the value that the sender gave."""
    ended = replace(run, status=Status.SUCCEEDED, result=value, finished_at=now, lease_until=None, unique=None)
    return Outcome(ended, Condition.WAITING)


def stop(refused: Outcome, now: int) -> Outcome:
    """Return the outcome to try next if a store refuses to let a run wait again: a person may have cancelled it."""
    return _cancelled(refused.run, now, refused.condition)


def _cancelled(run: Run, now: int, condition: Condition) -> Outcome:
    ended = replace(
        run, status=Status.CANCELLED, policy=_kept(run.policy), finished_at=now, lease_until=None, **_freed(run)
    )
    return Outcome(ended, condition)


def change(run: Run, **changes: Any) -> Outcome:
    """Return the outcome that changes the `queue`, `run_at` or `priority` of a waiting run."""
    if run.status not in WAITING:
        raise ValueError(f"run {run.id!r} is {run.status}; only a run that waits can be changed")
    if changes.get("queue", run.queue) != run.queue:
        changes |= {"moved": True, "call": replace(run.call, frame=None)}
    if "run_at" in changes:
        changes["start_by"] = None  # a person who postpones a run wants it to run
    return Outcome(replace(run, **changes), Condition.WAITING)


def shortened(outcome: Outcome) -> Iterator[Outcome]:
    """Yield shorter and shorter forms of an outcome that is too large to store; the run ends the same way in each."""
    brief = replace(outcome.run, errors=outcome.run.errors[-1:], log=())
    yield replace(outcome, run=brief)
    yield replace(outcome, run=replace(brief, progress=None, data=None))


def failures(report: Report, outcome: Outcome, problem: Exception, now: int) -> Iterator[tuple[Report, Outcome]]:
    """Yield failed outcomes for a run whose real outcome cannot be stored: first a full one, then a shorter one."""
    run = report.run
    if isinstance(problem, MainspringError):  # it names the value, and our frames would look like the place that failed
        problem = problem.with_traceback(None)
    error = describe(problem, report.finished_at or now, run.attempt)
    bare = replace(run, errors=(), progress=None, data=None, log=(), policy=replace(run.policy, retention=None))
    for form in (run, bare):
        failed = replace(report, run=form, result=Result.RAISED, value=None, exception=problem, error=error)
        end = conclude(failed, now, 0.0, retry=False)
        yield failed, Outcome(end.run, outcome.condition)


def retry(run: Run, now: int, at: int | None = None) -> Outcome:
    """Return the outcome that sends back a failed, cancelled or broken run, with its unique key and a new hook.

    The run may start at `at`, or at once. If it comes after other runs, it is blocked, and the store decides by their
    statuses whether it may start.
    """
    allowed = list(dict.fromkeys(step.before for step in TRANSITIONS if step.condition is Condition.FINISHED))
    if run.status not in allowed:
        words = ", ".join(str(status) for status in allowed)
        raise ValueError(f"run {run.id!r} is {run.status}; only a run that is {words} can be sent back to pending")
    run_at = now if at is None else max(now, at)
    again = replace(
        _waiting(run, run_at=run_at),
        status=Status.BLOCKED if run.after else Status.PENDING,
        executor=_executor_again(run),
        failures=0,
        crashes=0,
        finished_at=None,
        reason=None,
        start_by=None,
        refused=None,
        unique=run.key,
        retried=run.retried + 1,
        unverified=None,
        earlier_starts=kept_starts(tuple(replace(start, run_at=start.run_at or run_at) for start in run.starts)),
    )
    hook = hook_of(replace(again, created_at=now))
    return Outcome(again, Condition.FINISHED, () if hook is None else (hook,))


def _executor_again(run: Run) -> str | None:
    """Return the executor of a run that is sent back: its crashes no longer count, so it need not be isolated."""
    return None if run.crashes and run.policy.isolation is None and not run.queue.startswith(".") else run.executor


def send_back(run: Run, refused: Iterable[Run], now: int, at: int | None = None) -> list[Outcome]:
    """Return the outcomes that send back a run, then the runs that it has refused, in their order."""
    return [retry(run, now, at), *(send_back_one(each, now) for each in refused)]


def send_back_one(run: Run, now: int) -> Outcome:
    """Return the outcome that sends back one run: as `retry` does, or, if it was refused and still waits, as blocked.

    The hook of a run that still waits comes after it, so the run gets no new hook.
    """
    # The delay starts again when the run is released; the time of the refusal does not matter.
    run_at = -run.delay if run.delay and run.refused is not None else run.run_at
    if run.status in WAITING:
        return Outcome(replace(run, status=Status.BLOCKED, refused=None, run_at=run_at), Condition.WAITING)
    again = retry(run, now)
    return replace(again, run=replace(again.run, run_at=run_at)) if run_at < 0 else again


def unkeyed(again: Outcome) -> Outcome:
    """Return the outcome to try next if a store refuses a retry: another run may have the unique key by now."""
    return replace(again, run=replace(again.run, unique=None))


def _waiting(run: Run, **changes: Any) -> Run:
    # Keep the token: it distinguishes a pending record that was claimed meanwhile from one that was not.
    return replace(
        run, status=Status.PENDING, node=None, lease_until=None, cancelling=False, started_at=None, **changes
    )


def _end(report: Report, status: Status, now: int, **changes: Any) -> Outcome:
    run = report.run
    ended = replace(
        run,
        status=status,
        policy=_kept(run.policy),
        started_at=report.started_at or None,
        finished_at=report.finished_at or now,
        lease_until=None,
        **_freed(run),
        **changes,
    )
    return Outcome(ended, Condition.HELD)


def _text(exception: BaseException | None) -> str | None:
    """Return the text of an exception, cut at the limit."""
    return (str(exception) if exception is not None else "")[:MESSAGE_CHARS] or None


def _freed(run: Run) -> dict[str, Any]:
    """Return the changes that free a run's unique key and keep a copy of it, in case the run is sent back."""
    return {"unique": None, "key": run.unique or run.key}


def _kept(policy: Policy) -> Policy:
    """Return the policy of a run that did not succeed: `retention=0` drops only successes."""
    return policy if policy.retention != 0 else replace(policy, retention=None)
