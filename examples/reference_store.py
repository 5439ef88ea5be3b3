"""A whole job store in dictionaries, the simplest thing that passes the conformance suite.

Read it beside docs/writing-a-store.md, and write yours from it. Every method is one step under one lock; it looks
through everything it holds and sorts it. A real store has indexes instead, and does the same.

Run it: `python examples/reference_store.py`
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.lanes import Want
from mainspring.core.plan import DueJob, Firing, Miss
from mainspring.core.run import FINAL, HOLDS, UNFINISHED, Beat, Outcome, Run, Status, is_local
from mainspring.core.stored.edges import check_edges, judge_after
from mainspring.core.stored.settling import claimed, extended, holds, is_sent_back, settled, unclaimed
from mainspring.core.waiting.gates import PARKED, QUEUE_GATE, STARTS, GateState, judge, limit_of, room
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import CHANGES, ENDS, Answers, BrokenJob, ClaimedRuns, DuePage, Hold, JobList, JobStore
from mainspring.jobstores.values import NodeInfo, QueueInfo, RunQuery, Stats

HOUR = 3600 * SECOND
WEEK = 7 * 86400 * SECOND


@dataclass
class Entry:
    """A stored job, and what the store knows besides."""

    job: Job
    miss: Miss | None = None
    hidden_until: int = 0


class ReferenceStore(JobStore):
    """Keeps jobs and runs as they are while the process lives."""

    volatile = True
    keeps_objects = True

    def __init__(self) -> None:
        self.keep_runs = 10_000
        self._changed = threading.Condition()  # its lock makes every method one step
        self._cursors = {CHANGES: 0, ENDS: 0}
        self._shift = 0
        self._versions = itertools.count(1)
        self._jobs: dict[str, Entry] = {}
        self._aside: list[BrokenJob] = []  # the payload of each is the entry of the job
        self._runs: dict[str, Run] = {}
        self._edges: dict[str, dict[str, int]] = {}  # by successor: its predecessors, and the mask of each
        self._refused: list[str] = []  # what the present call has refused
        self._ended: dict[str, int] = {}  # finished runs in the order in which they ended, and how long to keep each
        self._deleted: dict[str, int] = {}  # ids of deleted runs, and how long they stay known
        self._totals = dict.fromkeys(sorted(FINAL), 0)
        self._gates: defaultdict[str, GateState] = defaultdict(GateState)
        self._nodes: dict[str, tuple[int, NodeInfo]] = {}

    # -- jobs --------------------------------------------------------------------------------------------------

    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        with self._changed:
            ids = [job.id for job in jobs]
            taken = [each for n, each in enumerate(ids) if each in self._jobs or each in ids[:n]]
            if taken and not replace:
                raise ConflictingIdError(taken[0])
            for job in jobs:
                self._put(job)

    def update_job(self, job: Job) -> None:
        with self._changed:
            entry = self._jobs.get(job.id)
            if entry is None:
                raise JobLookupError(job.id)
            if job.version not in (0, entry.job.version):
                raise VersionConflict(job.id)
            self._put(job)

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        with self._changed:
            before = len(self._jobs) + len(self._aside)
            if broken:
                self._aside = [each for each in self._aside if job_ids is not None and each.id not in job_ids]
            else:
                for job_id in [*self._jobs] if job_ids is None else job_ids:
                    self._jobs.pop(job_id, None)
            return before - len(self._jobs) - len(self._aside)

    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        with self._changed:
            if broken:
                return JobList(broken=[each for each in self._aside if job_ids is None or each.id in job_ids])
            jobs = [entry.job.copy() for entry in self._jobs.values() if job_ids is None or entry.job.id in job_ids]
            return JobList(jobs=sorted(jobs, key=lambda job: (job.at is None, job.at or 0)))

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        with self._changed:
            entry = self._jobs.get(job_id)
            if reason is not None:
                if entry is None or entry.job.version != version:
                    return False
                self._aside.append(BrokenJob(id=job_id, reason=reason, payload=entry, at=self._now()))
                del self._jobs[job_id]
                return True
            last = next((each for each in reversed(self._aside) if each.id == job_id), None)
            if last is None:
                return False
            if entry is not None:
                raise ConflictingIdError(job_id)
            self._aside.remove(last)
            self._jobs[job_id] = last.payload
            self._stamp(last.payload)
            return True

    def due(self, limit: int, hold: float) -> DuePage:
        with self._changed:
            now = self._now()
            timed = sorted((entry for entry in self._jobs.values() if entry.job.at is not None), key=_at)
            if not limit and not hold:
                return DuePage(now, [], _at(timed[0]) if timed else None)
            page = [entry for entry in timed if _at(entry) <= now >= entry.hidden_until][:limit]
            others = [max(_at(entry), entry.hidden_until) for entry in timed if entry not in page]
            for entry in page:
                entry.hidden_until = now + int(hold * SECOND)
            return DuePage(now, [self._due(entry) for entry in page], min(others, default=None))

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        with self._changed:
            waiting: list[str] = []
            return Answers([self._fire(step, self._now(), lease, waiting) for step in firings], waiting=waiting)

    def _fire(self, step: Firing, now: int, lease: float, waiting: list[str]) -> tuple[str, ...] | None:
        entry = self._jobs.get(step.job_id)
        if entry is None or entry.job.version != step.version:
            return None
        if not step.unscheduled and (entry.job.at is None or entry.job.at > now):
            return None
        if step.next_at is None and not step.unscheduled:
            del self._jobs[step.job_id]
        else:
            incarnation = entry.job.incarnation
            entry.job = entry.job if step.job is None else step.job.copy()
            entry.job.incarnation, entry.job.at, entry.job.nominal = incarnation, step.next_at, step.next_nominal
            entry.miss = step.miss
            self._stamp(entry)
        new = [run for run in step.runs if not self._is_known(run.id)]
        for run in new:
            if run.status is Status.RUNNING and is_local(run.queue):
                run = replace(run, lease_until=now + int(lease * SECOND))
            elif run.status is Status.RUNNING:  # a quicker store leases this one, too, if its queue has no limit
                run = unclaimed(run)
                waiting.append(run.id)
            self._add(run)
        for run in step.missed:
            self._write(run)
        return tuple(run.id for run in new if run.id in self._runs)

    def _put(self, job: Job) -> None:
        """Write a copy of a job; a new job gets an incarnation, and one that is replaced keeps it."""
        before = self._jobs.get(job.id)
        entry = self._jobs[job.id] = Entry(job.copy(), None if before is None else before.miss)
        self._stamp(entry)
        entry.job.incarnation = entry.job.version if before is None else before.job.incarnation
        job.version, job.incarnation = entry.job.version, entry.job.incarnation

    def _stamp(self, entry: Entry) -> None:
        """Give a job that is written a version that no job ever had, and show it again."""
        entry.job.version, entry.hidden_until = next(self._versions), 0
        self._tell()

    def _due(self, entry: Entry) -> DueJob:
        job, at = entry.job.copy(), _at(entry)
        mine = f"{job.id}@{job.incarnation}@"
        unfinished = sum(run.counted and run.id.startswith(mine) for run in self._all(*UNFINISHED))
        nominal = at if job.nominal is None else job.nominal
        return DueJob(job, at, nominal, job.version, job.incarnation, unfinished, entry.miss)

    # -- runs --------------------------------------------------------------------------------------------------

    def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
        with self._changed:
            check_edges(runs, self._runs, self._followed)
            self._refused = []
            return Answers([self._add(run) for run in runs], self._refused)

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        with self._changed:
            now = self._now()
            held = [run for run in self._all(Status.RUNNING) if run.token == token]
            if not held:  # otherwise the answer to an earlier call was lost
                for lanes, limit in wants:
                    held += self._claim(lanes, limit, node, token, now + int(lease * SECOND))
            waiting = self._waiting([lane for lanes, _ in wants for lane in lanes])
            times = [max(run.run_at, now) for run in waiting if not self._is_full(run.queue)]
            return ClaimedRuns(now, [self._shown(run) for run in sorted(held, key=_urgency)], min(times, default=None))

    def _claim(self, lanes: Sequence[str], limit: int, node: str, token: str, until: int) -> list[Run]:
        taken: list[Run] = []
        for run in sorted(self._waiting(lanes), key=_urgency):
            if len(taken) < limit and run.run_at <= self._now() and self._may_start(run):
                taken.append(self._write(claimed(run, node, token, self._now(), until)))
        return taken

    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        with self._changed:
            return [self._extend(beat, self._now() + int(lease * SECOND)) for beat in beats]

    def _extend(self, beat: Beat, until: int) -> Hold:
        run = self._runs.get(beat.run_id)
        if run is None or run.status is not Status.RUNNING or run.token != beat.token:
            return Hold.LOST
        self._write(extended(run, beat, until))
        return Hold.CANCEL if run.cancelling else Hold.HELD

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        with self._changed:
            check_edges([run for outcome in outcomes for run in outcome.then], self._runs, self._followed)
            self._refused = []
            before = self.get_runs([outcome.run.id for outcome in outcomes])
            ended: set[str | None] = set()
            answers = [self._settle(outcome, ended) for outcome in outcomes]
            # Their predecessors may have ended in this call, or they were sent back.
            for run in [run for run in self._all(Status.BLOCKED) if run.waits]:
                self._write(self._judged(run))
            for outcome, written in zip(outcomes, answers, strict=True):
                for follower in outcome.then if written else ():
                    self._add(follower)
            for gate in {run.gate for run in before if run is not None and run.gate is not None}:
                self._let_in(gate)
            return Answers(answers, self._refused)

    def _settle(self, outcome: Outcome, ended: set[str | None]) -> bool:
        run, stored = outcome.run, self._runs.get(outcome.run.id)
        if stored is None or not holds(outcome.condition, stored, run, self._now(), ended):
            return False
        if run.status not in FINAL and self._holder(run) != run.id:
            return False  # another run has its unique key
        if is_sent_back(stored, run):
            self._cut(run.id, behind=stored.status in FINAL)
            # If it is blocked, `settle` judges it next, and sets the right number.
            run = replace(run, refused=None, waits=1 if run.status is Status.BLOCKED else 0)
        else:
            run = settled(outcome, stored, self._now())
        if run.status in FINAL:
            ended.add(run.id)
        self._write(run)
        return True

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        with self._changed:
            running = {run.id: run for run in self._all(Status.RUNNING)}
            for run_id in running.keys() & {*run_ids}:
                self._write(replace(running[run_id], cancelling=True))
            return [run_id in running for run_id in run_ids]

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        with self._changed:
            return [self._shown(self._runs[run_id]) if run_id in self._runs else None for run_id in run_ids]

    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        with self._changed:
            found = sorted(self._matching(query), key=_age, reverse=True)
            return [self._shown(run) for run in found if after is None or _age(run) < _age(after)][:limit]

    def _matching(self, query: RunQuery) -> list[Run]:
        found = [run for run in self._runs.values() if query.selects(run)]
        if query.after is not None:
            found = [run for run in found if query.after in self._edges.get(run.id, ())]
        if query.lapsed:
            found = [run for run in found if run.status is Status.RUNNING and (run.lease_until or 0) <= self._now()]
        return found

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        with self._changed:
            found = [run_id for run_id in dict.fromkeys(run_ids) if run_id in self._ended]
            for run_id in found:
                self._cut(run_id, behind=True)
                del self._runs[run_id], self._ended[run_id]
                self._deleted[run_id] = self._now() + HOUR
            return len(found)

    def prune(self, limit: int = 1000) -> int:
        with self._changed:
            now, used = self._now(), {run.gate for run in self._all(*UNFINISHED)}
            for name, gate in list(self._gates.items()):
                if gate.allowed is None and gate.tat <= now and name not in used:
                    del self._gates[name]
            ended = [run for run_id in self._ended if (run := self._runs[run_id]).status is not Status.BROKEN]
            usual = [run.id for run in ended if run.policy.retention is None]
            too_many = usual[: max(0, len(usual) - self.keep_runs)]
            too_old = [run.id for run in ended if self._ended[run.id] <= now]
            over = dict.fromkeys(too_many + too_old)
            return self.delete_runs([run_id for run_id in over if not self._is_needed(run_id)][:limit])

    def _add(self, run: Run) -> str | None:
        """Add a run; return its id, or that of the run that has its unique key, or None without a predecessor."""
        if self._is_known(run.id):
            return run.id
        holder = self._holder(run)
        if holder != run.id:
            return holder
        if any(after.id not in self._runs for after in run.after):
            return None
        self._write(self._judged(run) if run.after else run)
        return run.id

    def _is_known(self, run_id: str) -> bool:
        return run_id in self._runs or self._deleted.get(run_id, 0) > self._now()

    def _write(self, run: Run) -> Run:
        """Write a run's next record, and count an end that it had not reached before."""
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        self._ended.pop(run.id, None)
        if run.status in FINAL:
            retention = run.policy.retention
            self._ended[run.id] = self._now() + (WEEK if retention is None else int(retention * SECOND))
            self._totals[run.status] += before is None or before.status is not run.status
            self._tell(ENDS)
        self._tell()
        return run

    def _holder(self, run: Run) -> str:
        """Return the id of the unfinished run that has a run's unique key: its own if nobody has it."""
        others = (each.id for each in self._all(*UNFINISHED) if each.unique == run.unique)
        return run.id if run.unique is None else next(others, run.id)

    def _waiting(self, lanes: Sequence[str]) -> list[Run]:
        return [run for run in self._all(Status.PENDING) if run.lane in lanes]

    def _all(self, *status: Status) -> list[Run]:
        return [run for run in self._runs.values() if run.status in status]

    # -- runs that come after others ---------------------------------------------------------------------------

    def _judged(self, run: Run) -> Run:
        """Return a run as blocked, released or refused, by the ends of the runs before it."""
        if run.id not in self._edges:  # it is new, or was sent back
            self._edges[run.id] = {after.id: after.on for after in run.after if after.id in self._runs}
        before = [(each, mask, self._runs[each].status) for each, mask in self._edges[run.id].items()]
        judged = judge_after(run, before, self._now())
        if judged.refused is not None:
            self._refused.append(run.id)
        return judged

    def _followed(self, run_id: str) -> int:
        return sum(run_id in before for before in self._edges.values())

    def _shown(self, run: Run) -> Run:
        """Return a run with the number of those that come after it."""
        return replace(run, followed=self._followed(run.id))

    def _cut(self, run_id: str, *, behind: bool) -> None:
        """Delete the edges to a run, and those from it to runs behind it."""
        self._edges.pop(run_id, None)
        for before in self._edges.values() if behind else ():
            before.pop(run_id, None)

    def _is_needed(self, run_id: str) -> bool:
        """Return True if a run that comes after this one is unfinished, or holds it."""
        after = [(self._runs[each], before[run_id]) for each, before in self._edges.items() if run_id in before]
        return any(mask & HOLDS or run.status not in FINAL for run, mask in after)

    # -- gates -------------------------------------------------------------------------------------------------

    def set_gate(self, name: str, allowed: int | None) -> None:
        with self._changed:
            self._gates[name].allowed = allowed
            self._let_in(name)
            self._tell()

    def _may_start(self, run: Run) -> bool:
        """Judge a run that is due by its queue and its gate; park it, or put it off, if its gate has no room."""
        if self._is_full(run.queue):
            return False
        if run.gate is None or run.refused is not None:
            return True
        verdict = judge(limit_of(run.gate_spec), self._gates[run.gate], self._running(run.gate), self._now())
        if verdict == PARKED:
            self._write(replace(run, status=Status.BLOCKED))
        elif verdict != STARTS:
            self._write(replace(run, run_at=verdict))
        return verdict == STARTS

    def _let_in(self, gate: str) -> None:
        """Let as many parked runs of each lane try again as the gate has room for."""
        parked = [run for run in self._all(Status.BLOCKED) if run.gate == gate and not run.waits]
        parked.sort(key=lambda run: (-run.priority, *_age(run)))
        number = room(self._gates[gate].allowed, [run.gate_spec for run in parked], self._running(gate))
        for lane in {run.lane for run in parked}:
            for run in [run for run in parked if run.lane == lane][:number]:
                self._write(replace(run, status=Status.PENDING, run_at=self._now()))

    def _running(self, gate: str) -> int:
        return sum(run.gate == gate and run.refused is None for run in self._all(Status.RUNNING))

    def _is_full(self, queue: str) -> bool:
        allowed = self._gates[QUEUE_GATE + queue].allowed
        return allowed is not None and sum(run.queue == queue for run in self._all(Status.RUNNING)) >= allowed

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        with self._changed:
            now = self._now()
            if node is not None:
                self._nodes[node.id] = now + int(ttl * SECOND), replace(node, beat_at=now)
            return now

    def nodes(self) -> list[NodeInfo]:
        with self._changed:
            return [self._nodes[name][1] for name in sorted(self._nodes) if self._nodes[name][0] > self._now()]

    def stats(self, query: RunQuery | None = None) -> Stats:
        with self._changed:
            if query is not None:
                return Stats(matching=len(self._matching(query)))
            allowed = {name: gate.allowed for name, gate in sorted(self._gates.items()) if gate.allowed is not None}
            limits = {name: number for name, number in allowed.items() if not name.startswith(QUEUE_GATE)}
            names = {name.removeprefix(QUEUE_GATE) for name in allowed.keys() - limits.keys()}
            queues = [self._queue(name) for name in sorted(names | {run.queue for run in self._all(*UNFINISHED)})]
            totals = {str(status): number for status, number in self._totals.items()}
            return Stats(queues=queues, totals=totals, jobs=len(self._jobs), limits=limits)

    def _queue(self, name: str) -> QueueInfo:
        runs = [run for run in self._runs.values() if run.queue == name]
        due = [run.run_at for run in runs if run.status is Status.PENDING and run.run_at <= self._now()]
        number = Counter(run.status for run in runs)
        return QueueInfo(
            name=name,
            waiting=len(due),
            delayed=number[Status.PENDING] - len(due),
            blocked=number[Status.BLOCKED],
            running=number[Status.RUNNING],
            limit=self._gates[QUEUE_GATE + name].allowed,
            oldest_at=min(due, default=None),
        )

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._cursors[topic] != cursor, timeout)
            return self._cursors[topic]

    def shutdown(self) -> None:
        with self._changed:
            self._tell()

    def shift_clock(self, seconds: float) -> None:
        with self._changed:
            self._shift += int(seconds * SECOND)
            self._tell()

    def _now(self) -> int:
        return time.time_ns() // 1000 + self._shift

    def _tell(self, topic: str = CHANGES) -> None:
        self._cursors[topic] += 1
        self._changed.notify_all()


def _at(entry: Entry) -> int:
    return entry.job.at or 0


def _urgency(run: Run) -> tuple[int, int]:
    return -run.priority, run.run_at


def _age(run: Run) -> tuple[int, str]:
    return run.created_at, run.id


if __name__ == "__main__":
    from mainspring import Mainspring

    with Mainspring(ReferenceStore()) as app:

        @app.task
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        app.start(work=True)
        print("from the reference store:", add.enqueue(1, 2).result(timeout=30))
