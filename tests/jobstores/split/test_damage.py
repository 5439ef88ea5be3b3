"""Firing in three steps: missed records, long outages, damage, and stores that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.plan import Place, firing, plan
from mainspring.core.policy import Policy
from mainspring.core.run import Status
from mainspring.jobstores.base import ConflictingIdError
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import JobRecord, SplitJobStore
from mainspring.jobstores.split.fired import add_fired
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    claim,
    due_one,
    fire,
    make_job,
    settle,
    stored,
    succeed,
)
from tests.jobstores.split.kit import HOUR, POINTS, Killed, Node, found, kill, open_firings
from tests.record_stores import DictRecords

# -- missed records ------------------------------------------------------------------------------------------------


@POINTS
def test_a_missed_record_is_made_once(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    add_job(store, due_in=-100, every=HOUR, misfire_grace_time=1.0)
    kill(first, monkeypatch, point)
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    [record] = found(store)
    assert (record.status, record.reason, record.count) == (Status.MISSED, "late", 1)
    assert store.stats().totals["missed"] == 1


def test_a_missed_record_that_was_half_made_is_finished_and_never_run(
    first: Node, store: SplitJobStore, runs: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, due_in=-100, every=HOUR, misfire_grace_time=1.0)
    due = due_one(store)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "settle", _raise_killed)
        with pytest.raises(Killed):
            fire(first.store, due)
    assert claim(store) == []
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    assert [run.status for run in found(store)] == [Status.MISSED]


def test_a_late_word_does_not_make_a_missed_record_shorter(store: SplitJobStore) -> None:
    add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
    due = due_one(store)
    planned = firing(due, plan(due, store.beat()), Place("default"), store.beat())
    assert store.fire([planned], LEASE) == [()]
    store.shift_clock(300)
    assert fire(store, due_one(store)) == ()
    add_fired(store.runs, [], planned.missed, 0)
    assert [run.count for run in found(store)] == [7]


def _raise_killed(*args: Any) -> Any:
    raise Killed


# -- after more than an hour -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "finished"])
def test_after_hours_a_run_that_is_there_is_left_alone(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, "after the runs")
    if state == "finished":
        [run] = claim(store)
        assert settle(store, succeed(store, run))
    before = found(store)
    store.shift_clock(3 * HOUR)
    assert due_one(store).unfinished == (state == "pending")
    assert found(store) == before


@pytest.mark.parametrize("made", [False, True])
def test_after_hours_a_run_that_may_have_run_is_not_run_but_shown_as_lost(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    add_job(store, every=HOUR, policy=Policy(retention=1.0))
    kill(first, monkeypatch, "after the runs" if made else "before the runs")
    if made:
        [run] = claim(store)
        assert settle(store, succeed(store, run))
        store.shift_clock(10)
        assert store.prune() == 1
    store.shift_clock(3 * HOUR)
    assert due_one(store).unfinished == 0
    [lost] = found(store)
    assert (lost.status, lost.reason, lost.errors[0].type) == (Status.FAILED, "lost", "SchedulerLost")
    assert claim(store) == []
    assert open_firings(jobs) == 0


# -- what fails ----------------------------------------------------------------------------------------------------


def test_a_note_that_cannot_be_taken_costs_no_answer(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)
    due = due_one(store)
    put = jobs.put

    def put_once(writes: Any) -> list[bool]:
        monkeypatch.setattr(jobs, "put", _refuse)
        return put(writes)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "put", put_once)
        inserted = fire(first.store, due)
    monkeypatch.setattr(jobs, "put", put)
    assert inserted is not None
    assert len(inserted) == 1
    assert open_firings(jobs) == 1
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    assert open_firings(jobs) == 0
    assert len(claim(store)) == 1


def _refuse(*args: Any) -> Any:
    raise ConnectionError("the store is away")


def test_an_outage_of_the_runs_loses_no_fire(
    store: SplitJobStore, runs: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)
    due = due_one(store)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "add_runs", _refuse)
        with pytest.raises(ConnectionError):
            fire(store, due)
    assert fire(store, due) is None
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    assert len(claim(store)) == 1


def _spoil(jobs: DictRecords, change: Callable[[list[Any]], None]) -> None:
    """Change what the records say, as damage does."""
    for record in jobs.all():
        data = msgspec.msgpack.decode(record.data)
        change(data)
        jobs.put([(replace(record, data=msgspec.msgpack.encode(data)), record)])


def test_a_damaged_fire_is_set_aside_and_the_job_goes_on(
    first: Node, store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store, every=HOUR)
    kill(first, monkeypatch, "before the runs")

    def damage(data: list[Any]) -> None:
        data[5][3][0]["state"] = b"damaged"

    _spoil(jobs, damage)
    store.shift_clock(LEASE + 1)
    store.due(10, 0)
    [broken] = store.get_jobs(broken=True).broken
    assert broken.id == "job"
    assert broken.reason.startswith("a fire of it: ")
    assert stored(store).incarnation == job.incarnation
    store.shift_clock(HOUR)
    assert fire(store, due_one(store)) is not None


def test_a_fire_that_needs_code_of_others_is_left_to_them_without_haste(
    first: Node, store: SplitJobStore, jobs: DictRecords, runs: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, "before the runs")
    store.shift_clock(LEASE + 1)
    with monkeypatch.context() as patch:
        patch.setattr(store._packer, "run", _need_code)
        for _ in range(2):
            page = store.due(10, 0)
            assert page.next_at is not None
            assert page.next_at > page.now + SECOND
        assert found(store) == []
    SplitJobStore(jobs, runs).due(10, 0)
    assert len(claim(store)) == 1


def _need_code(*args: Any) -> Any:
    from mainspring.codec import FrameError, Reason

    raise FrameError(Reason.MISSING_CODE, "no module named 'theirs'")


def test_a_record_that_is_not_ours_is_set_aside_and_the_others_go_on(store: SplitJobStore, jobs: DictRecords) -> None:
    add_job(store, "good")
    jobs.put([(JobRecord("job:bad", 7, 1, b"what is this?"), None)])
    assert [due.job.id for due in store.due(10, 0).jobs] == ["good"]
    assert [(broken.id, broken.payload) for broken in store.get_jobs(broken=True).broken] == [("bad", b"what is this?")]
    assert [due.job.id for due in store.due(10, 0).jobs] == ["good"]


def test_a_batch_that_loses_a_race_leaves_nothing_behind(
    store: SplitJobStore, jobs: DictRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = add_job(store, "taken")
    monkeypatch.setattr(jobs, "get", lambda keys: [None] * len(keys))
    with pytest.raises(ConflictingIdError) as caught:
        store.add_jobs([make_job(store, "new"), make_job(store, "taken"), make_job(store, "newer")])
    assert caught.value.job_id == "taken"
    assert [(record.key, record.version) for record in jobs.all()] == [("job:taken", taken.version)]


def test_an_open_firing_does_not_hide_a_job_that_is_due_sooner(
    first: Node, store: SplitJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(store, every=HOUR)
    kill(first, monkeypatch, "before the runs")
    sooner = add_job(store, "sooner", due_in=600)
    assert store.due(0, 0).next_at == sooner.at


def test_the_stores_of_jobs_and_runs_may_be_two_schedulers_at_work(clock: VirtualClock) -> None:
    runs = MemoryJobStore(clock)
    store = SplitJobStore(DictRecords(), runs)
    add_job(runs, "own", due_in=-5)
    add_job(store, "ours", due_in=-5)
    assert [due.job.id for due in store.due(10, 0).jobs] == ["ours"]
    assert [due.job.id for due in runs.due(10, 0).jobs] == ["own"]
    assert fire(store, due_one(store, "ours")) is not None
    assert fire(runs, due_one(runs, "own")) is not None
    assert {run.job_id for run in claim(store)} == {"ours", "own"}
    assert (store.stats().jobs, runs.stats().jobs) == (1, 1)
