"""Sending a run back takes the runs along that were cancelled because of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

import pytest

from mainspring import Mainspring
from mainspring.core.run import ON, After, Call, Outcome, Run, Status
from mainspring.core.transitions import drop
from mainspring.errors import RunCancelled, RunFailed
from mainspring.jobstores.base import Answers
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance.helpers import add_after, claim, current, fail, make_run, start, stop, succeed


class CountingStore(MemoryJobStore):
    """Counts the outcomes of each write, and the runs that are looked for by the run before them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        self.sizes.append(len(outcomes))
        return super().settle(outcomes)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def app(store: CountingStore) -> Mainspring:
    return Mainspring(store)


def failed(app: Mainspring, run: Run) -> None:
    """Let a claimed run fail, and cancel what that refuses."""
    answers = app.store.settle([fail(app.store, run)])
    app.runs.cancel_refused(answers.refused)


def statuses(app: Mainspring, *runs: Run) -> list[str]:
    return [str(current(app.store, run).status) for run in runs]


def test_runs_that_were_cancelled_because_of_a_run_wait_for_it_again(app: Mainspring, store: CountingStore) -> None:
    first = start(store, "first")
    second, tidy = add_after(store, first), add_after(store, first, on="end", queue="tidy")
    third = add_after(store, second)
    failed(app, first)
    assert statuses(app, second, third, tidy) == ["cancelled", "cancelled", "pending"]
    store.sizes.clear()
    app.retry("first")
    assert store.sizes == [3]
    assert statuses(app, first, second, third, tidy) == ["pending", "blocked", "blocked", "pending"]
    (again,) = claim(store)
    store.settle([succeed(store, again)])
    assert statuses(app, second, third) == ["pending", "blocked"]
    assert len(claim(store, "tidy")) == 1  # what its first end had released is not released again


def test_a_run_is_judged_anew_by_all_that_it_comes_after(app: Mainspring, store: CountingStore) -> None:
    one, other = start(store, "one"), start(store, "other")
    both = add_after(store, one, other)
    failed(app, one)
    failed(app, other)
    app.retry("one")
    assert (statuses(app, both), current(store, both).refused) == (["cancelled"], "other")
    app.retry("other")
    assert statuses(app, one, other, both) == ["pending", "pending", "blocked"]


def test_a_long_flow_is_sent_back_a_thousand_runs_a_write_and_in_its_order(
    app: Mainspring, store: CountingStore
) -> None:
    first = start(store, "first", group="flow")
    ids = ["first", *(f"step{number}" for number in range(2500))]
    steps = [
        make_run(store, run_id, queue="next", group="flow", after=(After(before),)) for before, run_id in pairwise(ids)
    ]
    store.add_runs(steps)
    failed(app, first)
    assert set(statuses(app, *steps)) == {"cancelled"}
    store.sizes.clear()
    app.retry("first")
    assert store.sizes == [1000, 1000, 501]
    assert set(statuses(app, *steps)) == {"blocked"}
    assert (current(store, first).followed, current(store, steps[0]).waits) == (1, 1)


def test_a_run_that_is_marked_and_not_yet_cancelled_is_taken_along(app: Mainspring, store: CountingStore) -> None:
    first = start(store, "first")
    second = add_after(store, first)
    third = add_after(store, second)
    store.settle([fail(store, first)])  # and whoever wrote this has not come to cancel the second
    app.retry("first")
    assert statuses(app, first, second, third) == ["pending", "blocked", "blocked"]
    assert current(store, second).refused is None
    app.runs.cancel_refused([second.id])  # it comes too late
    assert statuses(app, second) == ["blocked"]


def test_a_run_that_is_just_being_cancelled_is_looked_at_again(app: Mainspring, store: CountingStore) -> None:
    first = start(store, "first")
    second = add_after(store, first)
    store.settle([fail(store, first)])
    (held,) = claim(store, "next")
    assert held.refused == "first"
    outcome = drop(held, "came after first, which failed", 0)
    ending = threading.Timer(0.05, lambda: store.settle([outcome]))
    ending.start()
    app.retry("first")
    ending.join()
    assert statuses(app, first, second) == ["pending", "blocked"]


def test_a_run_whose_predecessor_has_still_failed_is_cancelled_again_and_the_error_says_what_to_send_back(
    app: Mainspring, store: CountingStore
) -> None:
    first = start(store, "first", call=Call("shop:first", name="first"))
    second = add_after(store, first)
    failed(app, first)
    with pytest.raises(ValueError, match="came after first, which failed: ValueError: no; send back run 'first'"):
        app.retry(second.id)
    assert statuses(app, second) == ["cancelled"]


def test_each_run_that_is_sent_back_gets_its_hook_again(app: Mainspring, store: CountingStore) -> None:
    seen: list[str] = []
    task = app.task(name="step", hook=app.task(name="note")(lambda run: seen.append(f"{run.name} {run.status}")))
    fails = {"first": True}

    @task
    def step(name: str) -> str:
        if fails.get(name):
            raise ValueError(name)
        return name

    one = step.options(name="first").enqueue("first")
    two = step.options(name="second", after=one).enqueue("second")
    app.start(work=True)
    try:
        app.wait([f"{one.id}~hook", f"{two.id}~hook"], timeout=30)
        fails.clear()
        app.retry(one)
        assert two.result(timeout=30) == "second"
        app.wait([f"{one.id}~hook2", f"{two.id}~hook2"], timeout=30)
    finally:
        app.stop()
    assert sorted(seen) == ["first failed", "first succeeded", "second cancelled", "second succeeded"]


# -- results -------------------------------------------------------------------------------------------------------


def test_the_result_of_a_cancelled_run_is_the_error_of_the_run_that_failed(
    app: Mainspring, store: CountingStore
) -> None:
    first = start(store, "first", group="flow")
    steps = [first]
    for number in range(30):
        steps.append(add_after(store, steps[-1], id=f"step{number}", group="flow"))
    failed(app, first)
    for step in (steps[1], steps[-1]):
        with pytest.raises(RunFailed, match="no") as caught:
            app.handle(step.id).result(timeout=0)
        assert (caught.value.run_id, caught.value.type) == ("first", "ValueError")


def test_the_result_of_a_run_after_one_that_was_cancelled_says_which(app: Mainspring, store: CountingStore) -> None:
    first = start(store, "first")
    second = add_after(store, first)
    store.cancel(["first"])
    store.settle([stop(store, first)])
    app.runs.cancel_refused([second.id])
    with pytest.raises(RunCancelled, match="first"):
        app.handle(second.id).result(timeout=0)


def test_the_result_of_a_run_that_needed_a_failure_says_that_it_was_cancelled(
    app: Mainspring, store: CountingStore
) -> None:
    first = start(store, "first", call=Call("shop:first", name="first"))
    repair = add_after(store, first, on=ON["failure"])
    answers = store.settle([succeed(store, first)])
    app.runs.cancel_refused(answers.refused)
    with pytest.raises(RunCancelled, match="came after first, which succeeded"):
        app.handle(repair.id).result(timeout=0)
    assert current(store, repair).status is Status.CANCELLED
