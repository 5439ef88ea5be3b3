"""Counts that a fire depends on: a job's unfinished runs, and its consecutive missed fires."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import MAX_INSTANCES, Place, plan
from mainspring.core.policy import Policy
from mainspring.core.run import Status
from mainspring.core.transitions import cancel, recover, retry
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_job,
    claim,
    current,
    due_one,
    fail,
    fire,
    fired_run,
    give_back,
    lapsed,
    make_job,
    make_run,
    new_token,
    settle,
    step,
    stop,
    stored,
    succeed,
    unfinished,
)


class CountConformance:
    """Tests of the counts that a store keeps for each job."""

    # -- unfinished runs ---------------------------------------------------------------------------------------

    def test_a_waiting_run_counts_until_it_is_settled(self, store: JobStore) -> None:
        job = _fired(store)
        assert _count(store) == unfinished(store, job) == 1
        [run] = claim(store)
        assert _count(store) == unfinished(store, job) == 1
        assert settle(store, succeed(store, run))
        assert _count(store) == unfinished(store, job) == 0

    def test_a_run_that_was_fired_into_a_slot_counts(self, store: JobStore) -> None:
        add_job(store)
        inserted = fire(store, due_one(store), Place(".default", NODE, new_token()))
        assert inserted is not None
        assert _count(store) == 1
        [run] = store.get_runs(inserted)
        assert run is not None
        assert settle(store, fail(store, run))
        assert _count(store) == 0

    def test_a_run_that_is_tried_again_or_given_back_still_counts_once(self, store: JobStore) -> None:
        _fired(store, retries=1)
        [run] = claim(store)
        assert settle(store, give_back(store, run))
        assert _count(store) == 1
        [run] = claim(store)
        assert settle(store, fail(store, run))
        assert current(store, run).status is Status.PENDING
        assert _count(store) == 1
        store.shift_clock(3600)
        [run] = claim(store)
        assert settle(store, fail(store, run))
        assert current(store, run).status is Status.FAILED
        assert _count(store) == 0

    def test_a_recovered_run_still_counts_once(self, store: JobStore) -> None:
        _fired(store)
        claim(store)
        store.shift_clock(LEASE + 1)
        [run] = lapsed(store)
        assert settle(store, recover(run, store.beat()))
        assert _count(store) == 1

    @pytest.mark.parametrize("how", ["cancel", "stop"])
    def test_a_cancelled_run_no_longer_counts(self, store: JobStore, how: str) -> None:
        job = _fired(store)
        [run] = store.find_runs(RunQuery(job_id="job"))
        if how == "cancel":
            assert settle(store, cancel(run, store.beat()))
        else:
            [run] = claim(store)
            assert settle(store, stop(store, run))
        assert _count(store) == unfinished(store, job) == 0

    def test_a_refused_settle_is_not_counted(self, store: JobStore) -> None:
        _fired(store)
        [run] = claim(store)
        done = succeed(store, run)
        assert store.settle([done, done, done]) == [True, False, False]
        assert _count(store) == 0

    def test_a_run_sent_back_by_a_person_counts_again(self, store: JobStore) -> None:
        _fired(store)
        [run] = claim(store)
        settle(store, fail(store, run))
        assert settle(store, retry(current(store, run), store.beat()))
        assert _count(store) == 1

    def test_a_job_that_is_changed_keeps_its_count(self, store: JobStore) -> None:
        _fired(store)
        job = stored(store)
        store.update_job(job)
        assert _count(store) == 1
        store.add_jobs([make_job(store)], replace=True)
        assert _count(store) == 1

    def test_runs_of_a_removed_job_do_not_count_for_its_successor(self, store: JobStore) -> None:
        _fired(store)
        [running] = claim(store)
        store.remove_job("job")
        job = _fired(store)
        assert _count(store) == unfinished(store, job) == 1
        assert settle(store, succeed(store, running))
        assert _count(store) == unfinished(store, job) == 1
        [own] = claim(store)
        assert settle(store, succeed(store, own))
        assert _count(store) == 0

    def test_an_old_run_sent_back_does_not_count_for_the_successor(self, store: JobStore) -> None:
        _fired(store)
        [old] = claim(store)
        settle(store, fail(store, old))
        store.remove_job("job")
        add_job(store)
        assert settle(store, retry(current(store, old), store.beat()))
        assert _count(store) == 0
        assert settle(store, cancel(current(store, old), store.beat()))
        assert _count(store) == 0

    def test_a_run_of_an_old_incarnation_that_is_added_late_does_not_count(self, store: JobStore) -> None:
        old = add_job(store)
        store.remove_job("job")
        add_job(store)
        assert store.add_runs([fired_run(store, old)]) == [f"job@{old.incarnation}@{old.at}"]
        assert _count(store) == 0
        [run] = claim(store)
        assert settle(store, succeed(store, run))
        assert _count(store) == 0

    def test_the_end_of_a_run_that_no_fire_made_leaves_the_count_right(self, store: JobStore) -> None:
        job = _fired(store)
        [fired] = claim(store)
        store.add_runs([make_run(store, f"job@{job.incarnation}@7", job_id="job"), make_run(store, job_id="job")])
        assert all(store.settle([succeed(store, run) for run in claim(store)]))
        assert _count(store) == unfinished(store, job) == 1
        assert settle(store, succeed(store, fired))
        assert _count(store) == 0

    def test_several_overdue_fires_run_one_after_another_and_count_as_one(self, store: JobStore) -> None:
        job = add_job(store, due_in=-150, every=60, coalesce=False)
        assert job.at is not None
        assert fire(store, due_one(store)) is not None
        for number in range(3):
            assert _count(store) == unfinished(store, job) == 1
            [run] = claim(store)
            assert run.fire_time == job.at + number * 60 * SECOND
            assert run.id == f"job@{job.incarnation}@{run.fire_time}"
            assert settle(store, succeed(store, run))
        assert claim(store) == []
        assert _count(store) == 0

    def test_a_chain_of_a_removed_job_does_not_count_for_its_successor(self, store: JobStore) -> None:
        add_job(store, due_in=-70, every=60, coalesce=False)
        fire(store, due_one(store))
        store.remove_job("job")
        add_job(store)
        for _ in range(2):
            [run] = claim(store)
            assert settle(store, succeed(store, run))
            assert _count(store) == 0

    def test_the_count_stops_a_job_at_its_maximum(self, store: JobStore) -> None:
        _fired(store, max_instances=1)
        assert fire(store, due_one(store)) == ()
        [missed] = store.find_runs(RunQuery(status=(Status.MISSED,)))
        assert missed.reason == MAX_INSTANCES

    def test_a_fire_that_waits_stays_due_and_runs_once_when_the_earlier_run_has_ended(self, store: JobStore) -> None:
        _fired(store, max_instances=1, overlap="queue")
        waiting = due_one(store)
        assert plan(waiting, store.beat()).waits
        [run] = claim(store)
        assert settle(store, succeed(store, run))
        again = due_one(store)  # nobody has written the job since
        assert (again.version, again.at, again.unfinished) == (waiting.version, waiting.at, 0)
        waiting.unfinished = 0  # two schedulers see that the run has ended
        assert [len(fire(store, each) or ()) for each in (waiting, again)] == [1, 0]

    # -- missed fires ------------------------------------------------------------------------------------------

    def test_missed_fires_are_one_record_that_is_extended_in_place(self, store: JobStore) -> None:
        job = add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        assert job.at is not None
        assert fire(store, due_one(store)) == ()
        [first] = store.find_runs(RunQuery(job_id="job"))
        assert (first.status, first.reason, first.count, first.fire_time) == (Status.MISSED, "late", 2, job.at)
        assert (first.job_id, first.last) == ("job", job.at + 60 * SECOND)
        store.shift_clock(300)
        assert fire(store, due_one(store)) == ()
        [record] = store.find_runs(RunQuery(job_id="job"))
        assert (record.id, record.count, record.fire_time) == (first.id, 7, job.at)
        assert record.last == job.at + 6 * 60 * SECOND
        assert store.stats().totals["missed"] == 1

    def test_the_open_missed_record_is_handed_out_with_the_job(self, store: JobStore) -> None:
        add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        fire(store, due_one(store))
        [record] = store.find_runs(RunQuery(job_id="job"))
        store.shift_clock(60)
        miss = due_one(store).miss
        assert miss is not None
        assert (miss.run_id, miss.reason, miss.count, miss.first) == (record.id, "late", 2, record.fire_time)

    def test_an_update_leaves_the_open_missed_record(self, store: JobStore) -> None:
        add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        fire(store, due_one(store))
        store.update_job(stored(store))
        store.shift_clock(60)
        assert due_one(store).miss is not None

    def test_a_fire_that_runs_closes_the_missed_record(self, store: JobStore) -> None:
        job = add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        fire(store, due_one(store))
        job = stored(store)
        job.misfire_grace_time = None
        store.update_job(job)
        store.shift_clock(60)
        inserted = fire(store, due_one(store))
        assert inserted is not None
        assert len(inserted) == 1
        store.shift_clock(60)
        assert due_one(store).miss is None

    def test_missed_fires_are_not_counted_as_unfinished(self, store: JobStore) -> None:
        add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        fire(store, due_one(store))
        assert _count(store) == 0

    def test_a_missed_record_comes_with_a_fire_that_runs_in_the_same_step(self, store: JobStore) -> None:
        job = add_job(store, due_in=-190, every=60, coalesce=False, misfire_grace_time=100.0)
        assert job.at is not None
        inserted = fire(store, due_one(store))
        assert inserted == tuple(f"job@{job.incarnation}@{job.at + minutes * 60 * SECOND}" for minutes in (2, 3))
        [record] = store.find_runs(RunQuery(status=(Status.MISSED,)))
        assert (record.count, record.last) == (2, job.at + 60 * SECOND)
        assert _count(store) == 1


def _fired(store: JobStore, retries: int = 0, **fields: Any) -> Job:
    """Add a job and fire it once; leave it due."""
    job = add_job(store, policy=Policy(retries=retries), **fields)
    once = step(store, job, next_in=-5, runs=(fired_run(store, job, policy=job.policy),))
    assert store.fire([once], LEASE) == [(once.runs[0].id,)]
    return job


def _count(store: JobStore) -> int:
    """Return the number of unfinished runs that a scheduler receives with the job."""
    job = stored(store)
    job.at = store.beat() - SECOND
    store.update_job(job)
    return due_one(store).unfinished
