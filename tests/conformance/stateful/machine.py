"""Random commands, stale ones included, on a store and on the memory store: both must say and hold the same.

Time moves in steps of a thousand seconds, and everything else happens at the half, so that the seconds a real server
takes do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.lanes import lanes_of
from mainspring.core.plan import DueJob, Place, firing, plan
from mainspring.core.policy import Policy
from mainspring.core.run import Beat, Call, Report, Result, Run, Status, describe, is_local
from mainspring.core.transitions import cancel, conclude, recover, retry
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import Hold, JobStore, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import cancel_all, lapsed
from mainspring.testing.conformance.helpers import work as noop
from mainspring.triggers.interval import IntervalTrigger

STEP = 1000
LEASE = 500.0
NAMES = ["a", "b", "c@1", "d:{x}"]
QUEUES = ["default", "mail", ".default"]
EXECUTORS = [None, "loop", "processes"]
LANES = sorted({lane for queue in QUEUES for lane in lanes_of(queue)})


def budget(examples: int) -> settings:
    """Return how much to try: so many examples in CI, as many as the profile says in a long run."""
    usual = settings()
    if not usual.derandomize:
        return settings(stateful_step_count=50)
    # No shrinking: on a real server that takes longer than a test may.
    return settings(max_examples=examples, stateful_step_count=50, phases=[Phase.explicit, Phase.generate])


class StoreMachine(RuleBasedStateMachine):
    """Drives the store under test and the model with the same commands."""

    make: Callable[[], JobStore]
    leases_fired = True
    """Whether the store leases a run that is fired into a slot of a queue; if not, the run waits."""

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make()
        self.clock = VirtualClock(start=self.store.beat())
        self.model = MemoryJobStore(self.clock, keep_runs=100_000)
        self.base = self.clock.now()
        self.steps = 0
        self.serial = 0
        self.jobs: list[tuple[Job, Job]] = []  # ever read from the store and from the model: stale ones stay
        self.dues: list[tuple[DueJob, DueJob]] = []
        self.claims: list[tuple[Run, Run]] = []  # every claim ever granted, by the store and by the model
        self.seen: list[Run] = []

    # -- helpers -----------------------------------------------------------------------------------------------

    def number(self) -> int:
        self.serial += 1
        return self.serial

    def instant(self, steps: int) -> int:
        """Return an instant half-way between two steps, never the same twice."""
        return self.base + (self.steps + steps) * STEP * SECOND + STEP // 2 * SECOND + self.number()

    def both(self, act: Callable[[JobStore], Any]) -> tuple[Any, Any]:
        answers = []
        for store in (self.store, self.model):
            try:
                answers.append(act(store))
            except (ConflictingIdError, JobLookupError, VersionConflict) as error:
                answers.append(type(error))
        return answers[0], answers[1]

    def each(self, pair: tuple[Any, Any]) -> Callable[[JobStore], Any]:
        """Return which of two belongs to a store."""
        return lambda store: pair[0] if store is self.store else pair[1]

    def pairs(self, ours: list[Run], model: list[Run]) -> list[tuple[Run, Run]]:
        """Join runs of the store with those of the model; both must have the same ones."""
        twins = {_name(run.id): run for run in model}
        assert [_name(run.id) for run in ours] == list(twins)
        return [(run, twins[_name(run.id)]) for run in ours]

    def agree(self, act: Callable[[JobStore], Any]) -> Any:
        ours, model = self.both(act)
        assert ours == model
        return ours

    def new_job(self, name: str, steps: int | None, coalesce: bool, instances: int) -> tuple[Job, Job]:
        at = None if steps is None else self.instant(steps)
        start = from_us(self.base)
        trigger = IntervalTrigger(seconds=STEP, start_date=start, timezone="UTC")
        twins = [
            Job(name, Call(noop, name="noop"), trigger, at=at, coalesce=coalesce, max_instances=instances)
            for _ in range(2)
        ]
        return twins[0], twins[1]

    # -- jobs --------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        steps=st.none() | st.integers(-3, 2),
        coalesce=st.booleans(),
        instances=st.integers(1, 2),
        replace=st.booleans(),
    )
    def add(self, name: str, steps: int | None, coalesce: bool, instances: int, replace: bool) -> None:
        twins = self.new_job(name, steps, coalesce, instances)
        of = self.each(twins)
        if self.agree(lambda store: store.add_jobs([of(store)], replace=replace)) is None:
            self.jobs.append(twins)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), steps=st.none() | st.integers(-2, 2))
    def update(self, data: st.DataObject, steps: int | None) -> None:
        """Write a job as it was read at some time, perhaps long ago."""
        ours, model = data.draw(st.sampled_from(self.jobs))
        at = None if steps is None else self.instant(steps)
        changed = ours.copy(), model.copy()
        for twin in changed:
            twin.at = twin.nominal = at
        of = self.each(changed)
        if self.agree(lambda store: store.update_job(of(store))) is None:
            self.jobs.append(changed)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.agree(lambda store: store.remove_job(name))

    @rule(name=st.sampled_from(NAMES))
    def read(self, name: str) -> None:
        ours, model = self.both(lambda store: store.lookup_job(name))
        assert (ours is None) == (model is None)
        if ours is not None:
            assert (ours.at, ours.nominal) == (model.at, model.nominal)
            self.jobs.append((ours, model))

    @rule(limit=st.integers(1, 4))
    def due(self, limit: int) -> None:
        ours, model = self.both(lambda store: store.due(limit, 1.0).jobs)
        # What is hidden is a hint that depends on real time: compare what both handed out.
        found = {each.job.id: each for each in model}
        for each in ours:
            twin = found.get(each.job.id)
            if twin is not None:
                assert (each.at, each.nominal, each.unfinished) == (twin.at, twin.nominal, twin.unfinished)
                self.dues.append((each, twin))

    @precondition(lambda self: self.dues)
    @rule(data=st.data(), queue=st.sampled_from(QUEUES), claimed=st.booleans())
    def fire(self, data: st.DataObject, queue: str, claimed: bool) -> None:
        """Fire a job as it was due at some time, perhaps long ago, into its queue or into a slot of a node."""
        pair = data.draw(st.sampled_from(self.dues))
        token = f"fire{self.number()}"
        claimed = claimed and (self.leases_fired or is_local(queue))
        place = Place(queue, "node", token) if claimed else Place(queue)
        now = self.clock.now()
        steps = [firing(due, plan(due, now), place, now) for due in pair]
        of = self.each((steps[0], steps[1]))
        answers = self.both(lambda store: store.fire([of(store)], LEASE))
        ours, model = answers[0][0], answers[1][0]
        assert _names(ours) == _names(model)
        fired = []
        for step, inserted, answer in zip(steps, (ours, model), answers, strict=True):
            waiting = set(answer.waiting)
            fired.append([run for run in step.runs if run.id in (inserted or ()) and run.id not in waiting])
        assert [_name(run.id) for run in fired[0]] == [_name(run.id) for run in fired[1]]
        if claimed:
            self.claims += self.pairs(*fired)

    # -- runs --------------------------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        executor=st.sampled_from(EXECUTORS),
        steps=st.integers(-2, 2),
        priority=st.integers(-1, 1),
        unique=st.none() | st.sampled_from(["u1", "u2"]),
        again=st.booleans(),
        retries=st.integers(0, 1),
    )
    def enqueue(
        self,
        queue: str,
        executor: str | None,
        steps: int,
        priority: int,
        unique: str | None,
        again: bool,
        retries: int,
    ) -> None:
        run_id = self.seen[-1].id if again and self.seen else f"r{self.number()}"
        run = Run(
            id=run_id,
            call=Call(noop, name="noop"),
            queue=queue,
            executor=executor,
            run_at=self.instant(steps),
            created_at=self.base + self.number(),
            priority=priority,
            unique=unique,
            policy=Policy(retries=retries, backoff=(STEP * 1.0,)),
        )
        self.agree(lambda store: store.add_runs([run]))
        self.seen.append(run)

    @rule(
        lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=5, unique=True),
        limit=st.integers(1, 3),
        second=st.integers(0, 2),
    )
    def claim(self, lanes: list[str], limit: int, second: int) -> None:
        """Claim for two executors: the first gets the first lane, the second the others."""
        token = f"t{self.number()}"
        wants = [(lanes[:1], limit), (lanes[1:], second)]
        ours, model = self.both(lambda store: store.claim(wants, node="node", token=token, lease=LEASE).runs)
        # The order holds within a want.
        self.claims += self.pairs(*(sorted(runs, key=lambda run: run.lane in lanes[1:]) for runs in (ours, model)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        """Repeat a claim whose reply was lost, perhaps long ago."""
        token = str(data.draw(st.sampled_from(self.claims))[1].token)
        running = self.model.find_runs(RunQuery(status=(Status.RUNNING,)), limit=1000)
        held = {_name(run.id) for run in running if run.token == token}
        if held:
            ours, model = self.both(lambda store: store.claim([(LANES, 1)], node="node", token=token, lease=LEASE).runs)
            assert {_name(run.id) for run in ours} == {_name(run.id) for run in model} == held

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), result=st.sampled_from([Result.RETURNED, Result.RAISED, Result.UNSTARTED, Result.LATE]))
    def settle(self, data: st.DataObject, result: Result) -> None:
        """Report on any claim ever granted."""
        now = self.clock.now()
        error = ValueError("x") if result is Result.RAISED else None
        outcomes = []
        for run in data.draw(st.sampled_from(self.claims)):
            record = None if error is None else describe(error, now, run.attempt)
            outcomes.append(conclude(Report(run, result, None, error, record, now, now), now, 0.0))
        of = self.each((outcomes[0], outcomes[1]))
        self.agree(lambda store: store.settle([of(store)]))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        of = self.each(data.draw(st.sampled_from(self.claims)))
        answer = self.agree(lambda store: store.extend([Beat(of(store).id, str(of(store).token), progress=1)], LEASE))
        assert answer[0] in Hold

    @rule()
    def recover(self) -> None:
        ours, model = self.both(lambda store: sorted(lapsed(store, 100), key=_id))
        found = self.each(([a for a, _ in self.pairs(ours, model)], [b for _, b in self.pairs(ours, model)]))
        self.agree(lambda store: store.settle([recover(run, self.clock.now()) for run in found(store)]))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def recover_stale(self, data: st.DataObject) -> None:
        """Call a node dead by a lease read long ago."""
        of = self.each(data.draw(st.sampled_from(self.claims)))
        self.agree(lambda store: store.settle([recover(of(store), self.clock.now())]))

    @rule(data=st.data(), back=st.booleans())
    def person(self, data: st.DataObject, back: bool) -> None:
        """Cancel a waiting run, or send an ended one back."""
        ours, model = self.both(lambda store: sorted(store.find_runs(RunQuery(), limit=1000), key=_id))
        if not ours:
            return
        pair = data.draw(st.sampled_from(self.pairs(ours, model)))
        at = self.instant(0)
        of = self.each(pair)
        if back and pair[1].status in (Status.FAILED, Status.CANCELLED):
            self.agree(lambda store: store.settle([retry(of(store), at)]))
        elif pair[1].status is Status.PENDING:
            self.agree(lambda store: store.settle([cancel(of(store), self.clock.now())]))
        self.claims.append(pair)  # to be reported on later with a token it may no longer have

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def ask_to_stop(self, data: st.DataObject) -> None:
        of = self.each(data.draw(st.sampled_from(self.claims)))
        self.agree(lambda store: store.cancel([of(store).id]))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.seen:
            run = data.draw(st.sampled_from(self.seen))
            self.agree(lambda store: store.delete_runs([run.id]))

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        self.agree(lambda store: store.set_gate(f"queue:{queue}", 0 if paused else None))

    @rule(queue=st.sampled_from(QUEUES))
    def cancel_all(self, queue: str) -> None:
        self.agree(lambda store: cancel_all(store, queue))

    @rule()
    def advance(self) -> None:
        self.steps += 1
        self.clock.advance(STEP)
        self.store.shift_clock(STEP)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """Let every lease end and another node have the runs: the claims from before are stale now."""
        self.advance()
        self.recover()
        self.claim(LANES, 50, 50)
        self.settle(data, Result.RETURNED)

    # -- what must hold after every command ------------------------------------------------------------------------

    @initialize()
    def nothing_yet(self) -> None:
        assert self.store.get_all_jobs() == []

    @invariant()
    def both_hold_the_same_jobs(self) -> None:
        ours, model = self.both(
            lambda store: {job.id: (job.at, job.nominal, job.coalesce) for job in store.get_all_jobs()}
        )
        assert ours == model

    @invariant()
    def both_hold_the_same_runs(self) -> None:
        ours, model = self.both(
            lambda store: {_name(run.id): _told(run) for run in store.find_runs(RunQuery(), limit=1000)}
        )
        assert ours == model

    @invariant()
    def counts_are_what_can_be_counted(self) -> None:
        ours, model = self.both(lambda store: {**store.stats().totals, "jobs": store.stats().jobs})
        assert {key: value for key, value in ours.items() if value} == {k: v for k, v in model.items() if v}

    def teardown(self) -> None:
        self.store.shutdown()


def _name(run_id: str) -> str:
    """Return a run's id without the incarnation of its job, which each store numbers for itself."""
    job, *fire = run_id.rsplit("@", 2)
    return f"{job}@{fire[1]}" if len(fire) == 2 else run_id


def _names(run_ids: tuple[str, ...] | None) -> list[str] | None:
    return None if run_ids is None else [_name(run_id) for run_id in run_ids]


def _id(run: Run) -> str:
    return _name(run.id)


def _told(run: Run) -> tuple[Any, ...]:
    """Return what both stores must agree on: all but what their clocks said, such as when they released a run."""
    run_at = run.run_at if run.status is Status.PENDING and not run.after else None
    return (
        run.status, run.queue, run.priority, run.attempt, run.failures, run.interruptions, run.token, run.unique,
        run_at, run.cancelling, run.reason, run.count, run.progress,
        len(run.errors),
    )  # fmt: skip
