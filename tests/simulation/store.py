"""A simulated store: the contract in its simplest form, with faults that can be built in on purpose, and its oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from itertools import count
from typing import Any
from zlib import crc32

from greenlet import GreenletExit
from msgspec.structs import replace

from mainspring.core.insight.acts import Act
from mainspring.core.job import Job
from mainspring.core.lanes import Want
from mainspring.core.plan import DueJob, Firing, Miss
from mainspring.core.run import FINAL, WAITING, Beat, Condition, Outcome, Run, Status, is_local
from mainspring.core.stored.settling import unclaimed
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import Answers, ClaimedRuns, DuePage, Generation, Hold, NodeInfo, RunQuery, Stats
from tests.simulation.edges import EdgeOracle, SimEdges
from tests.simulation.gates import GateOracle, SimGates
from tests.simulation.world import SECOND, Process, World


class Mutant(StrEnum):
    """Designs that lose or double work; each is a store that somebody has shipped."""

    COMPLETE_BY_ID = "complete by id"
    COMPLETE_IF_RUNNING = "complete if running"
    RESCUE_AFTER_READ = "rescue by id after a read"
    POP_THEN_RECORD = "pop, then record"
    WORKER_CLOCKS = "leases on worker clocks"
    FIRE_TWICE = "non-unique fire"
    FORGET_CANCEL = "a retry forgets the cancel"


class Entry:
    def __init__(self, job: Job, version: int) -> None:
        self.job, self.version = job, version
        self.miss: Miss | None = None
        self.hidden_until = 0


class SimStore:
    """Jobs and runs in dictionaries; one call is one atomic step."""

    volatile = False
    keeps_objects = True
    tells_topics = False

    def __init__(self, world: World, mutant: StrEnum | None = None) -> None:
        self.world, self.mutant = world, mutant
        self.jobs: dict[str, Entry] = {}
        self.runs: dict[str, Run] = {}
        self.popped: dict[str, Run] = {}
        self.edges = SimEdges(self.runs, mutant)
        self.gates = SimGates(self.runs, mutant)
        self.oracle = Oracle(world)
        self._versions = count(1)
        self.caller_skew = 0

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        return self.world.now

    def cursor(self) -> int | None:
        return None

    def on_thread(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pack_outcome(self, outcome: Outcome) -> Outcome:
        return outcome

    # -- jobs --------------------------------------------------------------------------------------------------

    def add_job(self, job: Job) -> None:
        entry = self.jobs[job.id] = Entry(job, next(self._versions))
        job.version = job.incarnation = entry.version

    def due(self, limit: int, hold: float) -> DuePage:
        now = self.world.now
        page: list[DueJob] = []
        entries = sorted(self.jobs.values(), key=lambda entry: (entry.job.at or 0, entry.job.id))
        for entry in entries:
            at = entry.job.at
            if at is not None and at <= now and entry.hidden_until <= now and len(page) < limit:
                entry.hidden_until = now + int(hold * SECOND)
                mine = [run for run in self.runs.values() if run.job_id == entry.job.id]
                unfinished = sum(run.counted and run.status not in FINAL for run in mine)
                version, incarnation = entry.version, entry.job.incarnation
                nominal = entry.job.nominal or at
                page.append(DueJob(entry.job.copy(), at, nominal, version, incarnation, unfinished, entry.miss))
        later = [max(e.job.at, e.hidden_until) for e in entries if e.job.at is not None and e.hidden_until <= now]
        return DuePage(now, page, min((at for at in later if at > now), default=None))

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        waiting: list[str] = []
        return Answers([self._fire(step, lease, waiting) for step in firings], waiting=waiting)

    def _fire(self, step: Firing, lease: float, waiting: list[str]) -> tuple[str, ...] | None:
        entry, now = self.jobs.get(step.job_id), self.world.now
        if entry is None:
            return None
        if self.mutant is not Mutant.FIRE_TWICE and (entry.version != step.version or (entry.job.at or now) > now):
            return None
        if step.next_at is None:
            del self.jobs[step.job_id]
        else:
            entry.job.at, entry.job.nominal, entry.miss = step.next_at, step.next_nominal, step.miss
        entry.version, entry.hidden_until = next(self._versions), 0
        inserted = []
        for run in step.runs:
            if self.mutant is Mutant.FIRE_TWICE and run.id in self.runs:
                run = replace(run, id=f"{run.id}+{next(self._versions)}")
            if run.id not in self.runs:
                if run.token is not None and not is_local(run.queue) and crc32(run.id.encode()) % 5 == 0:
                    run = unclaimed(run)  # as if a person had just paused the queue
                    waiting.append(run.id)
                until = self._lease(lease)
                self.oracle.edges.added(run)
                run = self.edges.judged(run, now) if run.after else run
                self.runs[run.id] = replace(run, lease_until=until) if run.token is not None else run
                inserted.append(run.id)
                self.oracle.fired(run, lease)
        for run in step.missed:
            self.runs[run.id] = run
        return tuple(inserted)

    def _lease(self, seconds: float) -> int:
        skew = self.caller_skew if self.mutant is Mutant.WORKER_CLOCKS else 0
        return self.world.now + skew + int(seconds * SECOND)

    # -- runs --------------------------------------------------------------------------------------------------

    def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
        refused = [run_id for run in runs for run_id in self._add(run)]
        return Answers([run.id for run in runs], refused)

    def _add(self, run: Run) -> list[str]:
        """Add a run unless its id is known; return its id if that refused it."""
        if run.id in self.runs or run.id in self.popped:
            return []
        self.oracle.edges.added(run)
        run = self.runs[run.id] = self.edges.judged(run, self.world.now) if run.after else run
        return [] if run.refused is None else [run.id]

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        now = self.world.now
        held = [run for run in self.runs.values() if run.token == token and run.status is Status.RUNNING]
        if not held:
            for run in self._admitted(wants):
                claimed = replace(
                    run, status=Status.RUNNING, attempt=run.attempt + 1, node=node, token=token,
                    lease_until=self._lease(lease), started_at=now,
                )  # fmt: skip
                held.append(claimed)
                if self.mutant is Mutant.POP_THEN_RECORD:
                    self.popped[run.id] = self.runs.pop(run.id)
                else:
                    self.runs[run.id] = claimed
                self.oracle.claimed(claimed, lease)
        times = [run.run_at for lanes, _ in wants for run in self._waiting(lanes)]
        return ClaimedRuns(now, held, min(times, default=None))

    def _waiting(self, lanes: Sequence[str]) -> list[Run]:
        return [run for run in self.runs.values() if run.status is Status.PENDING and run.lane in lanes]

    def _admitted(self, wants: Sequence[Want]) -> Iterator[Run]:
        """Yield the due runs that may start; put off the others that a claim comes across."""
        for lanes, limit in wants:
            taken = 0
            for run in self._due(lanes):
                if taken == limit:
                    break
                put_off = self.gates.put_off(run, self.world.now)
                if put_off is None:
                    taken += 1
                    yield run
                else:
                    self.runs[run.id] = put_off
                    self.oracle.gates.parked += put_off.status is Status.BLOCKED

    def _due(self, lanes: Sequence[str]) -> list[Run]:
        due = (run for run in self._waiting(lanes) if run.run_at <= self.world.now)
        return sorted(due, key=lambda run: (run.run_at, run.id))

    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        answers = []
        for beat in beats:
            run = self.runs.get(beat.run_id)
            if run is None or run.status is not Status.RUNNING or run.token != beat.token:
                answers.append(Hold.LOST)
                continue
            self.runs[run.id] = replace(run, lease_until=self._lease(lease))
            self.oracle.renewed(run, lease)
            answers.append(Hold.CANCEL if run.cancelling else Hold.HELD)
        return answers

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        answers: list[bool] = []
        ended: dict[str, Status] = {}
        written: list[tuple[Run | None, Run]] = []
        for outcome in outcomes:
            stored = self.runs.get(outcome.run.id)
            accepted = self._holds(outcome, stored, ended)
            answers.append(accepted)
            if accepted:
                self.oracle.settled(stored, outcome)
                self.popped.pop(outcome.run.id, None)
                run = self.runs[outcome.run.id] = self._next(outcome, stored)
                written.append((stored, run))
                self.gates.note(stored, run)
                self.oracle.gates.written(run)
                if run.status in FINAL:
                    ended[run.id] = run.status
        self.oracle.edges.written(written)
        refused = self.edges.judge_ends(ended, self.world.now)
        for before, run in written:
            if run.status is Status.BLOCKED and (before is None or before.status is not Status.BLOCKED):
                run = self.runs[run.id] = self.edges.judged(run, self.world.now)
                refused += [] if run.refused is None else [run.id]
        for outcome, accepted in zip(outcomes, answers, strict=True):
            refused += [run_id for run in outcome.then if accepted for run_id in self._add(run)]
        self.gates.let_in(self.world.now)
        return Answers(answers, refused)

    def _next(self, outcome: Outcome, stored: Run | None) -> Run:
        """Return the record to write; one that is sent back loses its edges."""
        run = outcome.run
        if stored is None:
            return run
        over = stored.status in FINAL
        if over or (run.status is Status.BLOCKED and stored.refused is not None):
            self.edges.cut(stored, behind=over)
            return replace(run, waits=0, followed=0 if over else stored.followed, refused=None)
        refused = stored.refused or (run.refused if outcome.condition is Condition.REFUSED else None)
        return replace(run, waits=stored.waits, followed=stored.followed, refused=refused)

    def _holds(self, outcome: Outcome, stored: Run | None, ended: dict[str, Status]) -> bool:
        condition, mutant = outcome.condition, self.mutant
        if mutant is Mutant.POP_THEN_RECORD and outcome.run.id in self.popped:
            return True
        if stored is None:
            return False
        if mutant is Mutant.COMPLETE_BY_ID and condition is Condition.HELD:
            return True
        if mutant is Mutant.COMPLETE_IF_RUNNING and condition is Condition.HELD:
            return stored.status is Status.RUNNING
        if mutant is Mutant.RESCUE_AFTER_READ and condition is Condition.EXPIRED:
            return True
        if stored.token != outcome.run.token:
            return False
        if stored.cancelling and stored.status is Status.RUNNING and outcome.run.status is Status.PENDING:
            return mutant is Mutant.FORGET_CANCEL
        if condition is Condition.HELD:
            return stored.status is Status.RUNNING
        if condition is Condition.EXPIRED:
            return stored.status is Status.RUNNING and (stored.lease_until or 0) <= self._judge()
        if condition is Condition.FINISHED:
            return stored.status in FINAL
        if stored.status not in WAITING:
            return False
        if condition is Condition.REFUSED:
            return stored.refused is not None or outcome.run.refused in ended
        same = outcome.run.status in FINAL or outcome.run.status is stored.status
        return same or (outcome.run.status is Status.BLOCKED and stored.refused is not None)

    def _judge(self) -> int:
        return self.world.now + (self.caller_skew if self.mutant is Mutant.WORKER_CLOCKS else 0)

    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        if not query.lapsed:
            found = [run for run in self.runs.values() if self._matches(run, query)]
            found.sort(key=lambda run: (run.created_at, run.id), reverse=True)
            past = (lambda run: True) if after is None else _before(after)
            return [run for run in found if past(run)][:limit]
        now = self._judge()
        running = (run for run in self.runs.values() if run.status is Status.RUNNING)
        return [run for run in running if (run.lease_until or 0) <= now][:limit]

    def _matches(self, run: Run, query: RunQuery) -> bool:
        return (
            (not query.status or run.status in query.status)
            and query.group in (None, run.group)
            and query.queue in (None, run.queue)
            and query.job_id in (None, run.job_id)
            and (query.after is None or run.id in self.edges.behind(query.after))
        )

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        answers = []
        for run_id in run_ids:
            run = self.runs.get(run_id)
            answers.append(run is not None and run.status is Status.RUNNING)
            if run is not None and answers[-1]:
                self.runs[run_id] = replace(run, cancelling=True)
                self.oracle.to_be_stopped.add(run_id)
        return answers

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        return [self.runs.get(run_id) for run_id in run_ids]

    def stats(self, query: RunQuery) -> Stats:
        return Stats(matching=sum(not query.status or run.status in query.status for run in self.runs.values()))

    def prune(self, limit: int = 1000) -> int:
        return 0

    def acts(self, new: Sequence[Act] = (), **wanted: Any) -> list[Act]:
        return []

    # -- service -------------------------------------------------------------------------------------------------

    def generations(self) -> tuple[Generation, ...]:
        return (Generation("simulated", 0),)


def _before(after: Run) -> Callable[[Run], bool]:
    return lambda run: (run.created_at, run.id) < (after.created_at, after.id)


class Oracle:
    """What was granted and accepted, kept apart from the store's own records."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults: list[str] = []
        self.granted: set[tuple[str, str | None]] = set()
        self.leases: dict[str, tuple[str, int]] = {}
        self.ended: Counter[str] = Counter()
        self.fires: Counter[tuple[str, int]] = Counter()
        self.counts: Counter[str] = Counter()
        self.to_be_stopped: set[str] = set()
        self.edges = EdgeOracle(self.fault)
        self.gates = GateOracle(self.fault)

    def fault(self, text: str) -> None:
        """Note that a promise was broken."""
        self.faults.append(f"{(self.world.now - 1_767_225_600 * SECOND) / SECOND:.3f} s: {text}")

    def fired(self, run: Run, lease: float) -> None:
        if run.job_id is None:  # a hook
            return
        assert run.fire_time is not None
        self.fires[run.job_id, run.fire_time] += 1
        if self.fires[run.job_id, run.fire_time] > 1:
            self.fault(f"{run.job_id} fired twice for {run.fire_time}")
        if run.fire_time > self.world.now:
            self.fault(f"{run.job_id} fired early")
        if run.token is not None:
            self.claimed(run, lease)

    def claimed(self, run: Run, lease: float) -> None:
        token, until = self.leases.get(run.id, ("", 0))
        if until > self.world.now and token != run.token:
            self.fault(f"{run.id} was claimed while another lease was valid")
        if run.id in self.to_be_stopped:
            self.fault(f"{run.id} was claimed again after its cancel was accepted")
        self.leases[run.id] = str(run.token), self.world.now + int(lease * SECOND)
        self.granted.add((run.id, run.token))
        self.gates.claimed(run)

    def started(self, run: Run) -> None:
        """Hear that a run is executed."""
        if (run.id, run.token) not in self.granted:
            self.fault(f"{run.id} was started under a token that never held it")
        self.edges.started(run)

    def renewed(self, run: Run, lease: float) -> None:
        self.leases[run.id] = str(run.token), self.world.now + int(lease * SECOND)

    def settled(self, stored: Run | None, outcome: Outcome) -> None:
        run = outcome.run
        token, until = self.leases.get(run.id, ("", 0))
        if outcome.condition is Condition.HELD and token != run.token:
            self.fault(f"{run.id}: the word of a holder that had lost it was accepted")
        if outcome.condition is Condition.EXPIRED and until > self.world.now:
            self.fault(f"{run.id}: a healthy lease was taken away")
        if outcome.condition is Condition.FINISHED:  # a person sent it back
            self.ended.pop(run.id, None)
            self.to_be_stopped.discard(run.id)
        elif stored is not None and stored.status in FINAL:
            self.fault(f"{run.id} had ended as {stored.status} and was written again as {run.status}")
        if run.status in FINAL:
            self.ended[run.id] += 1
            if self.ended[run.id] > 1:
                self.fault(f"{run.id} ended {self.ended[run.id]} times")
        if outcome.condition is not Condition.WAITING:
            self.leases.pop(run.id, None)


class Wire:
    """A store as a process sees it: slow, at times deaf or mute; death may strike before or after the effect."""

    def __init__(self, store: SimStore, process: Process, faults: Faults) -> None:
        self._store, self._process, self._faults = store, process, faults
        self.volatile, self.keeps_objects = store.volatile, store.keeps_objects
        self.tells_topics = store.tells_topics

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)
        if name in ("pack_outcome", "cursor"):  # asks nobody
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, method, args, kwargs)

        return call

    def _call(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        process, world, faults = self._process, self._process.world, self._faults
        if not process.alive:
            raise GreenletExit
        chance = world.chance
        world.sleep(process, chance.randrange(100, 3000))
        luck = chance.random()
        if luck < faults.lost:
            world.sleep(process, chance.randrange(1, 4 * SECOND))
            if chance.random() < 0.5:  # the request never arrived
                raise StoreUnavailable("no answer")
            self._store.caller_skew = process.skew
            method(*args, **kwargs)
            raise OutcomeUnknown("the answer was lost")
        if luck < faults.lost + faults.deadly and name != "add_runs" and (args or name != "beat"):
            if chance.random() < 0.5:
                process.kill()
            self._store.caller_skew = process.skew
            method(*args, **kwargs)
            process.kill()
        self._store.caller_skew = process.skew
        result = method(*args, **kwargs)
        world.trace(process.name, name)
        luck = chance.random()
        if luck < faults.frozen:  # between what it has read and what it will do about it
            process.freeze(chance.randrange(1, 40 * SECOND))
        if luck < faults.slow:
            world.sleep(process, chance.randrange(1, 3 * SECOND))
        else:
            world.sleep(process, chance.randrange(100, 3000))
        return result


class Faults:
    """How often what goes wrong."""

    def __init__(self, lost: float = 0.01, deadly: float = 0.002, slow: float = 0.02, frozen: float = 0.002) -> None:
        self.lost, self.deadly, self.slow, self.frozen = lost, deadly, slow, frozen

    def stop(self) -> None:
        """Let nothing go wrong any more."""
        self.lost = self.deadly = self.slow = self.frozen = 0.0
