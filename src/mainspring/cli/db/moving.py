"""Move jobs and waiting runs from one store to another while nodes work on both, so that a kill loses or doubles none.

A run takes three steps. (1) A copy is added to the target, held: it is due in the year 2200. (2) The run at the source
is cancelled as moved, unless somebody has claimed it meanwhile; then it stays and the copy is dropped. (3) The copy
gets its own time. Until step 2 only the source can start the run, after step 3 only the target; in between neither can.
Whoever moves again finds the held copies and, from the record at the source, takes the step that is missing.

The hook of a run is moved with it, since it comes after it. Other runs that come after a run, or before one, stay with
it: an edge does not lead into another store.

A job takes three steps, too. (1) The source holds it, in the write that compares its version. (2) It is added to the
target. (3) It is removed from the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from mainspring.core import transitions
from mainspring.core.instants import to_us
from mainspring.core.job import Job
from mainspring.core.run import Condition, Outcome, Run, Status
from mainspring.core.waiting.followups import hook_id, with_hooks
from mainspring.errors import ConflictingIdError, VersionConflict
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import pages

__all__ = ["MOVED", "Movable", "Mover"]

HELD_AT: Final = to_us(datetime(2200, 1, 1, tzinfo=UTC))
"""When something is due that is held until it has been moved."""
MOVED: Final = "moved to another store"
"""The reason of a run that was cancelled here because it waits elsewhere."""
TIED: Final = "runs that come after others or before them"
MOVED_AT_ONCE: Final = 200
KEPT_SECONDS: Final = 7 * 86_400.0
"""How long the source remembers which runs were moved, so that a move that was killed can go on."""
_WAITING: Final = RunQuery(status=(Status.PENDING,))


@dataclass
class Movable:
    """What a source holds that can be moved, and what stays: why, and how many."""

    jobs: list[Job] = field(default_factory=list)
    runs: int = 0
    stays: dict[str, int] = field(default_factory=dict)

    def leave(self, why: str, number: int = 1) -> None:
        """Count what stays."""
        if number:
            self.stays[why] = self.stays.get(why, 0) + number


class Mover:
    """Moves what waits from a source to a target."""

    def __init__(self, source: JobStore, target: JobStore) -> None:
        self._source, self._target = source, target

    def look(self) -> Movable:
        """Return what can be moved and what stays; change nothing."""
        found = Movable()
        jobs, unreadable = self._source.examine_jobs()
        for job in jobs:
            if job.executor == "queue":
                found.jobs.append(job)
            else:
                found.leave("jobs for an executor of a scheduler")
        found.leave("jobs that cannot be read here", len(unreadable))
        hooks = 0
        for page in pages(self._source, _WAITING):
            for run in page:
                why = _stays(run)
                if why:
                    found.leave(why)
                else:
                    found.runs += 1
                    hooks += run.followed
        blocked = self._source.stats(RunQuery(status=(Status.BLOCKED,))).matching
        found.leave(TIED, max(0, blocked - hooks))
        found.leave("runs that run", self._source.stats(RunQuery(status=(Status.RUNNING,))).matching)
        return found

    # -- jobs --------------------------------------------------------------------------------------------------

    def taken(self, jobs: Iterable[Job]) -> list[str]:
        """Return the ids of jobs that the target has, but for those that an earlier move was about to remove here."""
        there = {job.id for job in self._target.examine_jobs()[0]}
        return [job.id for job in jobs if job.id in there and job.at != HELD_AT]

    def move_job(self, job: Job) -> bool:
        """Move a job; False if it is gone by now."""
        held = self._hold(job)
        if held is None:
            return False
        copy = held.copy()
        copy.at, copy.version, copy.incarnation = held.nominal, 0, 0
        copy.call = replace(held.call, frame=None)  # to be signed by the target
        copy.timed = True
        try:
            self._target.add_job(copy)
        except ConflictingIdError:  # an earlier move has come to here, or somebody has taken the id since
            there = self._target.lookup_job(job.id)
            if there is None or (there.trigger, there.args, there.name) != (held.trigger, held.args, held.name):
                raise
        self._source.remove_jobs([job.id])
        return True

    def _hold(self, job: Job) -> Job | None:
        """Have a job come due at no time, its own time kept as the nominal one; None if it is gone."""
        while True:
            known = self._source.lookup_job(job.id)
            if known is None or known.at == HELD_AT:
                return known
            held = known.copy()
            held.at, held.nominal = HELD_AT, known.nominal if known.at is not None else None
            try:
                self._source.update_job(held)
            except VersionConflict:  # it has just fired, or somebody changed it
                continue
            return held

    # -- runs --------------------------------------------------------------------------------------------------

    def finish(self) -> int:
        """Take the steps that an earlier move was killed before; return how many runs that moved."""
        moved = 0
        for page in pages(self._target, _WAITING):
            held = [run.id for run in page if _is_held(run)]
            for start in range(0, len(held), MOVED_AT_ONCE):
                moved += self._decide(held[start : start + MOVED_AT_ONCE])
        return moved

    def move_runs(self) -> Iterator[int]:
        """Move the runs that wait, page by page; yield how many each page had."""
        while True:
            moved = 0
            for page in pages(self._source, _WAITING, size=MOVED_AT_ONCE):
                chosen = [run for run in page if not _stays(run)]
                if chosen:
                    done = self._move(chosen)
                    moved += done
                    yield done
            if not moved:  # nobody has enqueued any meanwhile, and none is left that could be moved
                return

    def _move(self, runs: Sequence[Run]) -> int:
        copies = with_hooks(_copy(run) for run in runs)
        ids = self._target.add_runs(copies)
        # Under another id it is a run that waits there already, by its unique key: ours stays here.
        stored = [copy for copy, run_id in zip(copies, ids, strict=True) if copy.id == run_id]
        return self._decide([copy.id for copy in stored if not copy.after])

    def _decide(self, run_ids: Sequence[str]) -> int:
        """End runs at the source that still wait there, and let the copies go that take their place; return how many.

        A copy that is not held there, because the target knows its id already, takes nobody's place.
        """
        held = {run.id: run for run in self._target.get_runs(run_ids) if run is not None and _is_held(run)}
        ids, now = list(held), self._source.beat()
        waiting = [run for run in self._read(ids).values() if run.status is Status.PENDING]
        if waiting:
            self._source.settle(_all_moved(self._source, waiting, now))
        ended = {run_id: run for run_id, run in self._read(ids).items() if _has_moved(run)}
        let_go = [_let_go(held[run_id], run) for run_id, run in ended.items()]
        if let_go:
            self._target.settle(let_go)
        self._drop([run for run_id, run in held.items() if run_id not in ended], now)
        return len(let_go)

    def _read(self, run_ids: Sequence[str]) -> dict[str, Run]:
        return {run.id: run for run in self._source.get_runs(run_ids) if run is not None}

    def _drop(self, copies: Sequence[Run], now: int) -> None:
        """Delete copies of runs that have started at the source."""
        if copies:
            ended = _all_moved(self._target, copies, now)
            self._target.settle(ended)
            self._target.delete_runs([outcome.run.id for outcome in ended])


def _stays(run: Run) -> str:
    """Say why a run that waits is not moved; empty if it is."""
    if run.queue.startswith("."):
        return "runs for an executor of a scheduler"
    if run.after or run.followed > (0 if run.policy.hook is None else 1):
        return TIED
    return "runs that cannot be read here" if run.call.name == "?" and not run.call.func else ""


def _copy(run: Run) -> Run:
    return replace(run, call=replace(run.call, frame=None), run_at=HELD_AT, start_by=None, token=None, moved=False)


def _is_held(run: Run) -> bool:
    return run.status is Status.PENDING and run.run_at == HELD_AT


def _let_go(copy: Run, original: Run) -> Outcome:
    return Outcome(replace(copy, run_at=original.run_at, start_by=original.start_by), Condition.WAITING)


def _moved(run: Run, now: int) -> Outcome:
    """Return the outcome that ends a run because it waits elsewhere: nothing follows from that here.

    However short its retention, the record is kept for a week: it tells a move that goes on what has happened.
    """
    ended = transitions.cancel(replace(run, policy=replace(run.policy, retention=KEPT_SECONDS)), now).run
    return Outcome(replace(ended, reason=MOVED), Condition.WAITING)


def _all_moved(store: JobStore, runs: Sequence[Run], now: int) -> list[Outcome]:
    """Return the outcomes that end runs because they wait elsewhere, each followed by that of its hook.

    The store ends a hook only if it has just ended the run: a run that has started meanwhile keeps its hook.
    """
    ids = [hook_id(run) for run in runs if run.policy.hook is not None]
    hooks = {hook.id: hook for hook in (store.get_runs(ids) if ids else ()) if hook is not None}
    outcomes = []
    for run in runs:
        outcomes.append(_moved(run, now))
        hook = hooks.get(hook_id(run))
        if hook is not None:
            ended = _moved(hook, now).run
            outcomes.append(Outcome(replace(ended, refused=run.id), Condition.REFUSED))
    return outcomes


def _has_moved(run: Run) -> bool:
    return run.status is Status.CANCELLED and run.reason == MOVED
