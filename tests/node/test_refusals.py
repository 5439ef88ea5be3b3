"""Runs that can no longer run: whoever ends a run cancels those after it, and if that one dies, others do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from mainspring import events
from mainspring.core.policy import Policy
from mainspring.core.run import ON, After, Call, Outcome, Report, Result, Run, Status
from mainspring.jobstores.base import Answers, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.settling import MOST_OUTCOMES, Settler
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import add_after, add_run, claim, current, fail, make_run, start, succeed
from tests.node.bench import Bench, work

WHY = "came after first, which failed: ValueError: no"


class CountingStore(MemoryJobStore):
    """Counts the writes and the outcomes of each."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.sizes: list[int] = []

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        self.sizes.append(len(outcomes))
        return super().settle(outcomes)


@pytest.fixture
def store(clock: VirtualClock) -> CountingStore:
    return CountingStore(clock)


def first(store: MemoryJobStore, **fields: Any) -> Run:
    return start(store, "first", call=Call("shop:first", name="first"), **fields)


def finish(store: MemoryJobStore, *outcomes: Outcome) -> list[str]:
    """Settle as a worker does; return the ids of the runs that were dropped because of that."""
    settler, now = Settler(store), store.beat()
    for outcome in outcomes:
        settler.add(Report(outcome.run, Result.RAISED), outcome, now)
    return [each.outcome.run.id for each in settler.settle(now) if each.dropped and each.accepted]


def chain(store: MemoryJobStore, length: int, **fields: Any) -> list[Run]:
    """Store a chain of runs after the run `first`."""
    ids = ["first", *(f"step{number}" for number in range(length))]
    steps = [
        make_run(store, run_id, queue="next", status=Status.BLOCKED, after=(After(before),), **fields)
        for before, run_id in pairwise(ids)
    ]
    for begin in range(0, length, 1000):
        store.add_runs(steps[begin : begin + 1000])
    return steps


def test_what_comes_after_a_failed_run_is_cancelled_in_the_next_write_with_the_reason(store: CountingStore) -> None:
    run = first(store)
    after, tidy = add_after(store, run), add_after(store, run, on="end")
    later = add_after(store, after)
    assert finish(store, fail(store, run)) == [after.id, later.id]
    assert store.sizes == [1, 1, 1]
    assert [(each.status, each.reason, each.refused) for each in (current(store, after), current(store, later))] == [
        (Status.CANCELLED, WHY, "first"),
        (Status.CANCELLED, WHY, after.id),
    ]
    assert current(store, tidy).status is Status.PENDING


def test_a_long_flow_is_cancelled_a_thousand_runs_a_write(store: CountingStore) -> None:
    run = first(store, group="flow")
    steps = chain(store, 8000, group="flow")
    assert finish(store, fail(store, run)) == [step.id for step in steps]
    assert len(store.sizes) == 10
    assert max(store.sizes) == MOST_OUTCOMES
    last = current(store, steps[-1])
    assert (last.status, last.reason, last.refused) == (Status.CANCELLED, WHY, steps[-2].id)


def test_the_hooks_of_a_cancelled_flow_are_called_and_not_read_as_its_rest(store: CountingStore) -> None:
    run = first(store, group="flow")
    steps = chain(store, 5, group="flow", policy=Policy(hook="shop:hook"))
    store.add_runs(
        [make_run(store, f"{step.id}~hook", queue="next", after=(After(step.id, ON["end"]),)) for step in steps]
    )
    assert finish(store, fail(store, run)) == [step.id for step in steps]
    assert {each.id for each in claim(store, "next")} == {f"{step.id}~hook" for step in steps}


def test_without_a_flow_each_step_is_cancelled_by_the_next_write(store: CountingStore) -> None:
    run = first(store)
    steps = chain(store, 5)
    assert finish(store, fail(store, run)) == [step.id for step in steps]
    assert store.sizes == [1] * 6


def test_a_refused_run_that_others_have_claimed_is_left_to_them(store: CountingStore) -> None:
    run = first(store, group="flow")
    steps = chain(store, 10, group="flow")
    settler, now = Settler(store), store.beat()
    settler.add(Report(run, Result.RAISED), fail(store, run), now)
    settler.write(now)
    (claimed,) = claim(store, "next")
    assert (claimed.id, claimed.refused) == (steps[0].id, "first")
    assert [each.accepted for each in settler.settle(now)] == [False]
    assert current(store, steps[1]).status is Status.BLOCKED


def test_runs_with_many_successors_are_not_all_ended_in_one_call(store: CountingStore) -> None:
    runs = [start(store) for _ in range(5)]
    for run in runs:
        store.add_runs([make_run(store, after=(After(run.id),)) for _ in range(900)])
    finish(store, *(succeed(store, current(store, run)) for run in runs))
    assert store.sizes == [2, 2, 1]
    assert len(claim(store, limit=10_000)) == 4500


def test_what_cannot_be_read_is_left_to_whoever_claims_it(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = first(store)
    after = add_after(store, run)
    with monkeypatch.context() as patch:
        patch.setattr(store, "get_runs", lambda run_ids: 1 / 0)
        assert finish(store, fail(store, run)) == []
    assert (current(store, run).status, current(store, after).refused) == (Status.FAILED, "first")


# -- in a node -----------------------------------------------------------------------------------------------------


def add_pair(bench: Bench, **fields: Any) -> tuple[Run, Run]:
    call = Call(work, name="first")
    before = add_run(bench.store, "first", call=call, queue=".default")
    after = add_run(bench.store, "after", call=Call(work), queue=".default", after=(After("first"),), **fields)
    return before, after


def test_a_node_tells_of_the_runs_that_it_cancels(bench: Bench) -> None:
    add_pair(bench)
    bench.link.worker.look_everywhere()
    bench.link.worker()
    bench.events.clear()
    bench.executor.end("first", ValueError("no"))
    bench.link.worker.settles()
    told = [(event.code, event.run_id, event.reason) for event in bench.events if event.run_id == "after"]
    assert told == [(events.EVENT_RUN_CANCELLED, "after", WHY)]
    assert (bench.link.claims, bench.link.in_flight["default"], bench.link.worker.unsettled) == ({}, 0, 0)


def test_a_node_that_claims_a_refused_run_cancels_it_instead_of_calling_it(bench: Bench) -> None:
    _, after = add_pair(bench)
    (held,) = claim(bench.store, ".default")
    assert bench.store.settle([fail(bench.store, held)]).refused == ("after",)  # and whoever wrote this dies
    bench.link.worker.look_everywhere()
    bench.link.worker()
    assert bench.executor.given == {}
    bench.link.worker()
    ended = current(bench.store, after)
    assert (ended.status, ended.reason, ended.attempt, ended.starts) == (Status.CANCELLED, WHY, 0, ())
    assert (bench.link.claims, bench.link.worker.unsettled) == ({}, 0)


def test_a_released_run_starts_on_the_node_that_ended_the_one_before(bench: Bench) -> None:
    add_pair(bench)
    bench.link.worker.look_everywhere()
    bench.link.worker()
    bench.executor.end("first")
    bench.link.worker()
    assert list(bench.executor.given) == ["after"]


def test_the_janitor_cancels_what_comes_after_a_lost_run(bench: Bench, clock: VirtualClock) -> None:
    run = add_run(bench.store, "first", call=Call(work, name="first"), policy=Policy(delivery="at_most_once"))
    after = add_after(bench.store, run)
    claim(bench.store, node="gone", lease=5)
    bench.link.heartbeat()
    clock.advance(bench.node.lease + 1)
    bench.link.heartbeat()
    bench.link.janitor()
    ended = current(bench.store, after)
    assert (current(bench.store, run).status, ended.status) == (Status.FAILED, Status.CANCELLED)
    assert str(ended.reason).startswith("came after first, which failed: NodeLost")
    assert bench.store.find_runs(RunQuery(status=(Status.BLOCKED,))) == []


# -- overdue fires -------------------------------------------------------------------------------------------------


def test_overdue_fires_run_one_after_another_and_count_once(bench: Bench, clock: VirtualClock) -> None:
    bench.add(seconds=10, coalesce=False, max_instances=1)
    clock.advance(25)
    bench.link.scheduler()
    (submitted,) = [event for event in bench.events if event.code == events.EVENT_JOB_SUBMITTED]
    assert len(submitted.scheduled_run_times) == 3
    for left in (2, 1, 0):
        (run_id,) = bench.executor.given
        bench.executor.end(run_id, ValueError("no") if left == 1 else None)
        bench.link.worker()
        assert len(bench.store.find_runs(RunQuery(status=(Status.BLOCKED, Status.RUNNING)))) == left
        assert bench.store.due(1, 0).jobs == []
    clock.advance(10)
    (due,) = bench.store.due(1, 0).jobs
    assert due.unfinished == 0
