"""Firing in three steps: whoever dies between two of them, each run is made, once."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.plan import Place
from mainspring.core.run import Status
from mainspring.jobstores.finding import count_unfinished
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.jobstores.split.fired import add_fired
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_job,
    beat,
    chained_fires,
    claim,
    due_one,
    fire,
    fired_run,
    lapsed,
    make_job,
    new_token,
    settle,
    step,
    stored,
    succeed,
    unfinished,
)
from tests.jobstores.split.kit import HOUR, POINTS, Killed, Node, found, kill, open_firings
from tests.record_stores import DictRecords

# -- each point ----------------------------------------------------------------------------------------------------


@POINTS
def test_the_run_is_there_once_when_another_scheduler_has_come_by(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job = add_job(store, every=HOUR)
    kill(first, monkeypatch, point)
    store.shift_clock(LEASE + 1)
    assert store.due(10, 0).jobs == []
    assert [(run.id, run.status) for run in found(store)] == [(f"job@{job.incarnation}@{job.at}", Status.PENDING)]
    assert open_firings(jobs) == 0
    assert len(claim(store)) == 1


@POINTS
def test_nobody_interferes_while_the_scheduler_may_still_be_at_it(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, point)
    page = store.due(10, 0)
    assert page.jobs == []
    assert page.next_at == page.now + int(LEASE * SECOND)
    assert open_firings(jobs) == 1
    assert len(found(store)) == (0 if point == "before the runs" else 1)


@pytest.mark.parametrize("state", ["pending", "running", "finished", "deleted"])
def test_a_run_that_was_made_is_not_made_again(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, "after the runs")
    if state != "pending":
        [run] = claim(store, lease=HOUR)
    if state in ("finished", "deleted"):
        assert settle(store, succeed(store, run))
    if state == "deleted":
        store.delete_runs([run.id])
    before = found(store)
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    assert found(store) == before
    assert len(claim(store)) == (state == "pending")


@POINTS
def test_the_last_fire_of_a_job_is_finished_too_and_nothing_stays_behind(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job = add_job(store)
    last = step(store, job, next_in=None, runs=(fired_run(store, job),))
    with monkeypatch.context() as patch:
        first.dies(patch, point)
        with pytest.raises(Killed):
            first.store.fire([last], LEASE)
    assert (store.lookup_job("job"), store.get_all_jobs(), store.stats().jobs) == (None, [], 0)
    assert store.due(0, 0).next_at is None
    assert first.store.fire([last], LEASE) == [None]
    store.shift_clock(LEASE + 1)
    assert store.due(10, 0).jobs == []
    assert [run.id for run in claim(store)] == [last.runs[0].id]
    assert jobs.all() == []


@POINTS
def test_a_chain_of_overdue_fires_is_made_whole_and_runs_in_its_order(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job = add_job(store)
    runs = chained_fires(store, job, 3)
    with monkeypatch.context() as patch:
        first.dies(patch, point)
        with pytest.raises(Killed):
            first.store.fire([step(store, job, next_in=HOUR, runs=runs)], LEASE)
    store.shift_clock(LEASE + 1)
    assert store.due(10, 0).jobs == []
    assert open_firings(jobs) == 0
    for run in runs:
        assert [unfinished(store, job), count_unfinished(store, [(job.id, job.incarnation)])] == [1, [1]]
        [claimed] = claim(store)
        assert claimed.id == run.id
        assert settle(store, succeed(store, claimed))
    assert unfinished(store, job) == 0


def test_a_chain_that_was_lost_for_too_long_is_recorded_as_failed(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store)
    with monkeypatch.context() as patch:
        first.dies(patch, "before the runs")
        with pytest.raises(Killed):
            first.store.fire([step(store, job, next_in=3 * HOUR, runs=chained_fires(store, job, 3))], LEASE)
    store.shift_clock(2 * HOUR)
    store.due(10, 0)
    assert [(run.status, run.reason) for run in found(store)] == [(Status.FAILED, "lost")] * 3
    assert claim(store) == []
    assert open_firings(jobs) == 0


@POINTS
def test_a_job_that_is_due_again_meanwhile_does_not_wait_for_the_lease(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    add_job(store, due_in=-1, every=2, max_instances=5)
    kill(first, monkeypatch, point)
    store.shift_clock(2)
    due = due_one(store)
    assert due.unfinished == 1
    assert fire(store, due) is not None
    assert len(claim(store)) == 2
    assert open_firings(jobs) == 0


@POINTS
def test_runs_that_are_decided_count_against_max_instances(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    add_job(store, due_in=-1, every=2, max_instances=1)
    kill(first, monkeypatch, point)
    store.shift_clock(2)
    assert fire(store, due_one(store)) == ()
    assert sorted(run.status for run in found(store)) == [Status.MISSED, Status.PENDING]


# -- people in between ---------------------------------------------------------------------------------------------


@POINTS
@pytest.mark.parametrize("change", ["modify", "pause", "replace", "remove", "remove all", "again", "aside"])
def test_what_people_do_meanwhile_stays_and_the_run_is_made(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, point: str, change: str
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, point)
    job = stored(store)
    name = f"job@{job.incarnation}@"
    if change == "modify":
        job.max_instances = 7
        store.update_job(job)
    elif change == "pause":
        job.at = None
        store.update_job(job)
    elif change == "replace":
        store.add_jobs([make_job(store, due_in=500, max_instances=7)], replace=True)
    elif change == "aside":
        assert store.set_aside("job", job.version, "unreadable")
    elif change == "remove all":
        store.remove_all_jobs()
    else:
        store.remove_job("job")
        if change == "again":
            add_job(store, due_in=500, max_instances=7)
    left = store.lookup_job("job")
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    assert [run.id[: len(name)] for run in claim(store)] == [name]
    assert open_firings(jobs) == 0
    now = store.lookup_job("job")
    if change in ("remove", "remove all", "aside"):
        assert (left, now) == (None, None)
    else:
        assert left is not None
        assert now is not None
        assert (now.at, now.max_instances, now.incarnation) == (left.at, left.max_instances, left.incarnation)
    if change == "again":
        assert now is not None
        assert now.incarnation != job.incarnation
        store.shift_clock(500)
        assert due_one(store).unfinished == 0
    if change == "aside":
        assert store.set_aside("job", 0, None) is True
        assert stored(store).incarnation == job.incarnation


def test_a_change_between_the_runs_and_the_note_does_not_leave_the_firing_open(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)

    def add_then_change(*args: Any) -> Any:
        answer = add_fired(store.runs, *args)
        job = stored(store)
        job.max_instances = 7
        store.update_job(job)
        return answer

    monkeypatch.setattr(first.store, "_add_fired", add_then_change)
    assert fire(first.store, due_one(store)) is not None
    assert (stored(store).max_instances, open_firings(jobs)) == (7, 0)


def test_a_slow_scheduler_does_not_close_the_firing_of_another(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, due_in=-1, every=2, max_instances=5)
    second = Node(jobs, first.store.runs)

    def add_then_wait(*args: Any) -> Any:
        answer = add_fired(store.runs, *args)
        store.shift_clock(2)
        kill(second, monkeypatch, "before the runs")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(first.store, "_add_fired", add_then_wait)
        assert fire(first.store, due_one(store)) is not None
    assert open_firings(jobs) == 1
    store.shift_clock(2)
    assert due_one(store).unfinished == 2


# -- claimed at once -----------------------------------------------------------------------------------------------


def test_a_run_for_a_slot_of_a_lost_node_waits_in_the_queue(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, "before the runs", Place(".default", NODE, new_token()))
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    [run] = found(store)
    assert (run.status, run.node, run.attempt, run.started_at, run.lease_until) == (Status.PENDING, None, 0, None, None)
    assert [one.attempt for one in claim(store, ".default", node="other")] == [1]


@pytest.mark.parametrize("point", ["after the runs", "before the note"])
def test_a_run_in_a_slot_stays_with_its_node_while_that_lives(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    add_job(store, every=HOUR)
    token = new_token()
    kill(first, monkeypatch, point, Place(".default", NODE, token))
    [run] = found(store)
    store.shift_clock(LEASE - 1)
    assert store.extend([beat(run)], LEASE) == ["held"]
    store.shift_clock(2)
    store.due(10, 0)
    assert [held.id for held in claim(store, ".default", token=token)] == [run.id]
    assert claim(store, ".default") == []
    store.shift_clock(LEASE + 1)
    assert [lost.id for lost in lapsed(store)] == [run.id]


@pytest.mark.parametrize("place", [Place("default"), Place("default", NODE, "slow-token")], ids=["queue", "slot"])
def test_a_slow_scheduler_that_was_given_up_starts_nothing_twice(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    add_job(store, every=HOUR)

    def late(*args: Any) -> Any:
        store.shift_clock(LEASE + 1)
        store.due(10, 0)
        [mine] = claim(store)
        assert settle(store, succeed(store, mine))
        return add_fired(store.runs, *args)

    monkeypatch.setattr(first.store, "_add_fired", late)
    assert fire(first.store, due_one(store), place) == ()
    assert [run.status for run in found(store)] == [Status.SUCCEEDED]
    assert open_firings(jobs) == 0


def test_a_run_that_another_node_claims_before_it_is_in_the_slot_is_not_started_here(
    store: SplitJobStore, runs: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store)
    settle_runs = runs.settle

    def settle_late(outcomes: Any) -> list[bool]:
        assert len(claim(store, ".default", node="other")) == 1
        return settle_runs(outcomes)

    monkeypatch.setattr(runs, "settle", settle_late)
    assert fire(store, due_one(store), Place(".default", NODE, new_token())) == ()
    assert [run.node for run in found(store)] == ["other"]
