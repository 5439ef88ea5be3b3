"""Keep jobs and runs in this process, for tests and scripts. examples/reference_store.py does it without indexes."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import count, islice
from typing import ClassVar, NoReturn

from msgspec.structs import replace

from mainspring.clock import Clock, SystemClock
from mainspring.core.insight.acts import KEEP_ACTS_US, MOST_ACTS, Act, act_id
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.lanes import Want
from mainspring.core.plan import DueJob, Firing
from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.run import Beat, Outcome, Run, Status
from mainspring.core.stored.settling import unclaimed
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.interrupts import sheltering
from mainspring.jobstores.base import (
    CHANGES,
    ENDS,
    RUNS_STEP,
    Answers,
    BrokenJob,
    ClaimedRuns,
    DuePage,
    Hold,
    JobList,
    JobStore,
    NodeInfo,
    RunQuery,
    Stats,
)
from mainspring.jobstores.memory.indexes import Entry, Timetable
from mainspring.jobstores.memory.runs import RunTable
from mainspring.jobstores.memory.tallies import TallyTable
from mainspring.locks import free_in_children

__all__ = ["MemoryJobStore"]

_RUNNING = Status.RUNNING


@sheltering("wait", "cursor")
class MemoryJobStore(JobStore):
    """Keeps jobs and runs as objects while the process lives.

    A finished run is kept for the retention in its policy. Of runs without one, the newest `keep_runs` are kept, for
    `keep_for` seconds.
    """

    volatile: ClassVar[bool] = True
    keeps_objects: ClassVar[bool] = True
    tells_topics = True

    def __init__(self, clock: Clock | None = None, *, keep_runs: int = 10_000, keep_for: float = 7 * 86400) -> None:
        self._own_clock = clock is not None
        self._clock = clock or SystemClock()
        self._shift = 0
        self._lock = free_in_children(threading.Lock())
        self._changed = free_in_children(threading.Condition(self._lock))
        self._cursor = 0
        self._ended = free_in_children(threading.Condition(self._lock))
        self._ends = 1
        self._end_waiters = 0  # without waiters, skip the wake-up, which costs as much as writing a run
        self._stirred = False  # there is a change that a sleeping loop may need
        self._versions = count(1)
        self._jobs: dict[str, Entry] = {}
        self._times = Timetable(self._jobs)
        self._set_aside: list[tuple[BrokenJob, Entry]] = []
        self._runs = RunTable(
            self._jobs, check_count("keep_runs", keep_runs, least=0), int(check_seconds("keep_for", keep_for) * SECOND)
        )
        self._nodes: dict[str, tuple[int, NodeInfo]] = {}
        self._acts: list[Act] = []
        self._tallies = TallyTable()

    @property
    def keep_runs(self) -> int:
        """How many finished runs without a retention in their policy are kept."""
        return self._runs.keep_runs

    @keep_runs.setter
    def keep_runs(self, number: int) -> None:
        self._runs.keep_runs = number

    def shutdown(self) -> None:
        """Wake all waiters; keep all records."""
        with self._lock:
            self._stirred = True
            self._ends += 1
            self._ended.notify_all()
            self._tell()

    # -- jobs --------------------------------------------------------------------------------------------------

    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        with self._lock:
            if broken:
                found = [each for each, _ in self._set_aside]
                return JobList(broken=[each for each in found if job_ids is None or each.id in job_ids])
            wanted = self._jobs if job_ids is None else dict.fromkeys(job_ids)
            jobs = [self._jobs[job_id].job.copy() for job_id in wanted if job_id in self._jobs]
        return JobList(jobs=sorted(jobs, key=lambda job: (job.at is None, job.at or 0)))

    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        with self._lock:
            if not replace:
                seen: set[str] = set()
                for job in jobs:
                    if job.id in self._jobs or job.id in seen:
                        raise ConflictingIdError(job.id)
                    seen.add(job.id)
            for job in jobs:
                entry = self._jobs.get(job.id)
                if entry is None:
                    self._add(job)
                else:
                    self._rewrite(entry, job)
            self._tell()

    def update_job(self, job: Job) -> None:
        with self._lock:
            entry = self._entry(job.id)
            if job.version and entry.version != job.version:
                raise VersionConflict(job.id)
            self._rewrite(entry, job)
            self._tell()

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        with self._lock:
            if broken:
                aside = self._set_aside
                self._set_aside = [] if job_ids is None else [item for item in aside if item[0].id not in job_ids]
                return len(aside) - len(self._set_aside)
            wanted = list(self._jobs) if job_ids is None else dict.fromkeys(job_ids)
            found = [self._jobs[job_id] for job_id in wanted if job_id in self._jobs]
            for entry in found:
                self._take_out(entry)
            return len(found)

    def due(self, limit: int, hold: float) -> DuePage:
        with self._lock:
            now = self._clock.now() + self._shift
            if not limit and not hold:
                return DuePage(now, [], self._times.earliest())
            entries, next_at = self._times.take(now, limit, now + int(hold * SECOND))
            jobs: list[DueJob] = []
            for entry in entries:
                job = entry.job.copy()
                at = job.at
                assert at is not None
                nominal = at if job.nominal is None else job.nominal
                jobs.append(DueJob(job, at, nominal, job.version, job.incarnation, entry.unfinished, entry.miss))
            return DuePage(now, jobs, next_at)

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        with self._lock:
            now = self._clock.now() + self._shift
            until = now + int(lease * SECOND)
            answers, waiting = [], list[str]()
            for firing in firings:
                answers.append(self._fire(firing, now, until, waiting))
            if self._stirred or self._runs.stirred:
                self._tell()
            return Answers(answers, waiting=waiting)

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        with self._lock:
            if reason is None:
                return self._put_back(job_id)
            entry = self._jobs.get(job_id)
            if entry is None or entry.version != version:
                return False
            self._take_out(entry)
            broken = BrokenJob(id=job_id, reason=reason, payload=entry.job.copy(), at=self._now())
            self._set_aside.append((broken, entry))
            return True

    def _put_back(self, job_id: str) -> bool:
        found = next((item for item in reversed(self._set_aside) if item[0].id == job_id), None)
        if found is None:
            return False
        if job_id in self._jobs:
            raise ConflictingIdError(job_id)
        self._set_aside.remove(found)
        self._jobs[job_id] = found[1]
        self._file(found[1])
        self._tell()
        return True

    def _entry(self, job_id: str) -> Entry:
        entry = self._jobs.get(job_id)
        if entry is None:
            # Look for similar ids only among a small number of jobs.
            raise JobLookupError(job_id, tuple(self._jobs) if len(self._jobs) <= 100 else ())
        return entry

    def _add(self, job: Job) -> None:
        own = job.copy()
        self._jobs[job.id] = entry = Entry(own)
        self._file(entry)
        own.incarnation = job.incarnation = job.version = own.version

    def _rewrite(self, entry: Entry, job: Job) -> None:
        own = job.copy()
        own.incarnation = entry.job.incarnation
        entry.job = own
        self._file(entry)
        job.version, job.incarnation = own.version, own.incarnation

    def _file(self, entry: Entry) -> None:
        """Give a job a new version, and file it by its time."""
        job = entry.job
        job.version = version = next(self._versions)
        if self._times.put(entry, job.at, version):
            self._stirred = True

    def _take_out(self, entry: Entry) -> None:
        del self._jobs[entry.job.id]
        self._times.put(entry, None, 0)

    def _fire(self, firing: Firing, now: int, until: int, waiting: list[str]) -> tuple[str, ...] | None:
        entry = self._jobs.get(firing.job_id)
        if entry is None or entry.version != firing.version:
            return None
        job = entry.job
        if not firing.unscheduled and (job.at is None or job.at > now):
            return None
        if firing.job is not None:
            job, incarnation = firing.job.copy(), job.incarnation
            job.incarnation, entry.job = incarnation, job
        if firing.next_at is None and not firing.unscheduled:
            self._take_out(entry)
        else:
            job.at, job.nominal, entry.miss = firing.next_at, firing.next_nominal, firing.miss
            job.version = version = next(self._versions)
            # A fire wakes no scheduler for the next run time: the scheduler that fires a job looks again in time, and
            # one that leaves wakes the others. An unscheduled step may replace the job by one that is due earlier,
            # so it wakes them.
            if self._times.put(entry, job.at, version) and firing.unscheduled:
                self._stirred = True
        inserted = []
        for run in firing.runs:
            if run.status is _RUNNING and self._runs.is_limited(run.queue):
                run = unclaimed(run)
                waiting.append(run.id)
            elif run.status is _RUNNING and run.lease_until is None:
                run = replace(run, lease_until=until)
            if self._runs.insert(run, entry, now):
                inserted.append(run.id)
        for run in firing.missed:
            self._runs.record_missed(run, entry, now)
        return tuple(inserted)

    # -- runs --------------------------------------------------------------------------------------------------

    def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
        with self._lock:
            ids = self._runs.add(runs, self._now())
            self._tell()
            return ids

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        with self._lock:
            now = self._now()
            return self._runs.claim(wants, node, token, now, now + int(lease * SECOND))

    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        with self._lock:
            until = self._now() + int(lease * SECOND)
            return [self._runs.extend(beat, until) for beat in beats]

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        with self._lock:
            answers = self._runs.settle(outcomes, self._clock.now() + self._shift)
            if self._runs.ended:
                self._runs.ended = False
                self._ends += 1
                if self._end_waiters:
                    self._ended.notify_all()
            if self._runs.stirred:
                self._tell()
            return answers

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        with self._lock:
            return [self._runs.get(run_id) for run_id in run_ids]

    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        if query.lapsed:
            with self._lock:
                return self._runs.lapsed(limit, self._now())
        found = self._matching(query)
        if after is not None:
            last = _age(after)
            found = (run for run in found if _age(run) < last)
        return nlargest(limit, found, key=_age)

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        with self._lock:
            answers = [self._runs.cancel(run_id) for run_id in run_ids]
            self._tell()
            return answers

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        with self._lock:
            now = self._now()
            return sum(self._runs.delete(run_id, now) for run_id in run_ids)

    def prune(self, limit: int = 1000) -> int:
        with self._lock:
            return self._runs.prune(limit, self._now())

    def _matching(self, query: RunQuery) -> Iterator[Run]:
        with self._lock:
            if query.after is not None:
                runs = self._runs.successors(query.after)
            else:
                runs = self._runs.all() if query.gate is None else self._runs.members(query.gate)
        # Runs are never changed, only replaced, so the rest needs no lock.
        return filter(query.selects, runs)

    # -- acts of people ----------------------------------------------------------------------------------------

    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        with self._lock:
            for act in new:
                insort(self._acts, act, key=lambda kept: kept.id)
            if self._acts:
                first = bisect_left(self._acts, act_id(self._acts[-1].at - KEEP_ACTS_US), key=lambda kept: kept.id)
                del self._acts[: max(first, len(self._acts) - MOST_ACTS)]
            acts = self._acts[::-1] if limit else []
        found = (act for act in acts if about in (None, act.about) and (after is None or act.id < after.id))
        return list(islice(found, limit))

    # -- counters ----------------------------------------------------------------------------------------------

    def tallies(
        self,
        new: Sequence[Tally] = (),
        *,
        kind: str = "all",
        name: str | None = None,
        level: int = 0,
        since: int = 0,
        until: int = 0,
    ) -> list[Tally]:
        with self._lock:
            if new:
                self._tallies.add(new, self._now())
            return self._tallies.find(kind, name, level, since, until)

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        with self._lock:
            now = self._now()
            if node is not None:
                self._nodes[node.id] = now + int(ttl * SECOND), replace(node, beat_at=now)
                if not ttl:  # the node leaves, and other nodes fire the jobs from now on
                    self._stirred = True
                    self._tell()
            return now

    def nodes(self) -> list[NodeInfo]:
        with self._lock:
            now = self._now()
            self._nodes = {name: item for name, item in self._nodes.items() if item[0] > now}
            return [self._nodes[name][1] for name in sorted(self._nodes)]

    def set_gate(self, name: str, allowed: int | None) -> None:
        with self._lock:
            self._runs.set_gate(name, allowed, self._now())
            self._tell()

    def stats(self, query: RunQuery | None = None) -> Stats:
        if query is not None:
            most = None if query.cap is None else query.cap + 1
            return Stats(matching=sum(1 for _ in islice(self._matching(query), most)))
        with self._lock:
            totals = {str(status): total for status, total in self._runs.totals.items()}
            queues, limits = self._runs.queues(self._now()), self._runs.limits()
            return Stats(queues=queues, totals=totals, jobs=len(self._jobs), limits=limits)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        if topic == ENDS:
            with self._lock:
                self._end_waiters += 1
                try:
                    self._ended.wait_for(lambda: self._ends != cursor, timeout)
                finally:
                    self._end_waiters -= 1
                return self._ends
        with self._lock:
            self._changed.wait_for(lambda: self._cursor != cursor, timeout)
            return self._cursor

    def cursor(self) -> int | None:
        return self._cursor

    def use_clock(self, clock: Clock) -> None:
        if not self._own_clock:
            self._clock = clock

    def shift_clock(self, seconds: float) -> None:
        with self._lock:
            self._shift += int(seconds * SECOND)
            self._stirred = True
            self._tell()

    def _now(self) -> int:
        return self._clock.now() + self._shift

    def _tell(self) -> None:
        """Wake the sleepers if the change may concern them."""
        if self._stirred or self._runs.stirred:
            self._cursor += 1 if self._stirred else RUNS_STEP
            self._stirred = self._runs.stirred = False
            self._changed.notify_all()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MemoryJobStore lives in one process; use a store with a URL to share jobs with others")

    def __repr__(self) -> str:
        return f"<MemoryJobStore ({len(self._jobs)} jobs, {len(self._runs)} runs)>"


def _age(run: Run) -> tuple[int, str]:
    return run.created_at, run.id
