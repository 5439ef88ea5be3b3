"""The runs of the memory store. This class has no lock and no clock: the store calls it under its own lock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from mainspring.core.lanes import Want
from mainspring.core.run import FINAL, Beat, Condition, Outcome, Run, Status
from mainspring.core.stored.settling import claimed, extended, holds, is_sent_back, settled
from mainspring.core.waiting.gates import PARKED, STARTS
from mainspring.jobstores.base import Answers, ClaimedRuns, Hold
from mainspring.jobstores.memory.indexes import Entry, Record, next_run_at, take_runs
from mainspring.jobstores.memory.run_index import RunIndex

__all__ = ["RunTable"]

# Reading a member off its class takes three times as long in the hot loops.
_BLOCKED, _PENDING, _RUNNING = Status.BLOCKED, Status.PENDING, Status.RUNNING
_HELD = Condition.HELD


class _Settling(msgspec.Struct):
    """The work that one call of `settle` has left once all its outcomes are written."""

    ended: dict[str, Status] = {}  # runs with successors that have ended
    back: list[Record] = []  # runs that were sent back behind their predecessors
    then: list[tuple[Record, Run]] = []  # runs to add, each with the run that it follows


class RunTable(RunIndex):
    """The verbs about runs."""

    def add(self, runs: Sequence[Run], now: int) -> Answers[str | None]:
        """Add enqueued runs; return the id under which each is stored, or None if it is not stored."""
        if successors := [run for run in runs if run.after]:
            self._edges.check(successors)
        self._refused = []
        return Answers([self._add(run, now) for run in runs], self._refused)

    def _add(self, run: Run, now: int) -> str | None:
        owner = None if run.job_id is None else self._owner(run)
        if self.insert(run, owner, now) or (run.unique is None and not run.after):
            return run.id
        if run.id in self._records or self._history.remembers(run.id, now):
            return run.id
        return None if run.unique is None else self._unique.get(run.unique)

    def record_missed(self, run: Run, owner: Entry, now: int) -> None:
        """Add the record of missed fires, or replace it by a longer one."""
        record = self._records.get(run.id)
        if record is None:
            self._put(Record(run, owner), now)
        else:
            self._history.discard(record)
            record.run = run
            self._history.add(record, next(self._numbers), now)
        self._drop_oldest(now)

    def claim(self, wants: Sequence[Want], node: str, token: str, now: int, until: int) -> ClaimedRuns:
        """Lease due runs of some lanes, for each want up to its limit; if this token holds runs, return those."""
        lanes = [[self._lanes[name] for name in dict.fromkeys(names) if name in self._lanes] for names, _ in wants]
        held = self._held.get(token)
        if held is None:
            held = {}
            for some, (_, limit) in zip(lanes, wants, strict=True):
                for record in take_runs(some, now, limit, lambda record: self._admit(record, now)):
                    self._lease(record, node, token, now, until)
                    held[record.run.id] = record
            if held:
                self._held[token] = held
        runs = [record.run for record in held.values()]
        return ClaimedRuns(now, runs, next_run_at([lane for some in lanes for lane in some], now))

    def _lease(self, record: Record, node: str, token: str, now: int, until: int) -> None:
        """Lease a run that was taken out of its lane."""
        run = record.run
        record.run = claimed(run, node, token, now, until)
        if run.unique is not None and record.run.unique is None:
            del self._unique[run.unique]

    def _admit(self, record: Record, now: int) -> bool:
        """Let a run pass its gate; otherwise park it, or postpone it if the rate of the gate does not allow it yet."""
        run = record.run
        if run.refused is not None:
            return True
        verdict = self._gates.judge(run, now)
        if verdict == STARTS:
            return True
        record.run = replace(run, status=_BLOCKED) if verdict == PARKED else replace(run, run_at=verdict)
        self._put(record, now)
        return False

    def extend(self, beat: Beat, until: int) -> Hold:
        """Renew a lease and keep its holder's reports."""
        record = self._held.get(beat.token, {}).get(beat.run_id)
        if record is None:
            return Hold.LOST
        record.run = run = extended(record.run, beat, until)
        return Hold.CANCEL if run.cancelling else Hold.HELD

    def settle(self, outcomes: Sequence[Outcome], now: int) -> Answers[bool]:
        """Write the next record of each run whose condition holds, then judge the successors, then add `then`."""
        for outcome in outcomes:
            if outcome.then:
                self._edges.check([run for each in outcomes for run in each.then])
                break
        self._refused = []
        call = _Settling()
        answers = []
        for outcome in outcomes:
            answers.append(self._settle(outcome, now, call))
        if call.ended:
            for record, run in self._edges.judge_ends(call.ended, now):
                if run.refused is not None:
                    self._refused.append(run.id)
                self._write(record, run, now)
        for record in call.back:
            self._judge_again(record, now)
        for record, run in call.then:
            self.insert(run, record.owner if run.job_id == record.run.job_id else self._owner(run), now)
        while self._gates.freed:
            self._let_in(*self._gates.freed.popitem(), now)
        if self._history.kept > self.keep_runs:
            self._drop_oldest(now)
        return Answers(answers, self._refused)

    def _settle(self, outcome: Outcome, now: int, call: _Settling) -> bool:
        run = outcome.run
        record = self._records.get(run.id)
        if record is None:
            return False
        old = record.run
        # Most outcomes are those of held runs, so make the long check only for the others.
        held = outcome.condition is _HELD and old.status is _RUNNING and old.token == run.token and not old.cancelling
        if not held and not holds(outcome.condition, old, run, now, call.ended):
            return False
        if run.unique is not None and run.status not in FINAL and self._unique.get(run.unique, run.id) != run.id:
            return False
        if not held and is_sent_back(old, run):
            run = self._cut(record, run, call)
        else:
            run = settled(outcome, old, now)
            if old.followed and run.status in FINAL and old.status not in FINAL:
                call.ended[run.id] = run.status
        self._write(record, run, now)
        if outcome.then:
            call.then += [(record, follower) for follower in outcome.then]
        return True

    def _cut(self, record: Record, run: Run, call: _Settling) -> Run:
        """Return a run that is sent back without the edges to it, and without those from it if it had ended."""
        old = record.run
        self._edges.cut_before(old)
        if run.status is _BLOCKED:
            call.back.append(record)
        if old.status in FINAL and call.ended.pop(run.id, None) is None:
            self._edges.cut_behind(run.id)
            return replace(run, waits=0, followed=0, refused=None)
        return replace(run, waits=0, followed=old.followed, refused=None)

    def _judge_again(self, record: Record, now: int) -> None:
        """Let a run that was sent back wait for its predecessors that have not ended yet."""
        run = self._edges.judged(record.run, now, again=True)
        assert run is not None
        self._edges.link(run)
        if run.refused is not None:
            self._refused.append(run.id)
        self._write(record, run, now)

    def lapsed(self, limit: int, now: int) -> list[Run]:
        """Return running runs whose lease is over."""
        running = (record.run for held in self._held.values() for record in held.values())
        return list(islice((run for run in running if (run.lease_until or 0) <= now), limit))

    def cancel(self, run_id: str) -> bool:
        """Mark a running run to be stopped."""
        record = self._records.get(run_id)
        if record is None or record.run.status is not _RUNNING:
            return False
        record.run = replace(record.run, cancelling=True)
        self.stirred = True
        return True
