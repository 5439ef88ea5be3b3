"""Every time that a datetime can name, from the year 1 to the end of the year 9999."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.run import Status
from mainspring.core.transitions import cancel
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    CALL,
    add_job,
    add_run,
    claim,
    current,
    due_one,
    fired_run,
    give_back,
    settle,
    start,
    step,
    stored,
)
from mainspring.triggers.interval import IntervalTrigger

FIRST: Final = to_us(datetime.min.replace(tzinfo=UTC))
LAST: Final = to_us(datetime.max.replace(tzinfo=UTC))
PAST: Final = (FIRST, -(10**17) // 3, -(2**53) - 1, -SECOND - 1, -1, 0, 1, 999_999_999_999_999)
FUTURE: Final = (2**53 + 1, 10**16 - 1, 10**17 - 1, 10**17, to_us(datetime(9999, 1, 1, tzinfo=UTC)) + 1, LAST)
"""Values where numbers get longer, or too long for a double."""
ALL_TIMES: Final = (*PAST, *FUTURE)


class InstantConformance:
    """Tests that a store keeps times exactly, however distant."""

    # -- jobs --------------------------------------------------------------------------------------------------

    def test_jobs_of_all_years_are_read_as_they_were_added_and_listed_in_order(self, store: JobStore) -> None:
        for number, at in reversed(list(enumerate(ALL_TIMES))):
            add_job(store, f"job-{number}", at=at, nominal=at)
        assert [(job.at, job.nominal) for job in store.get_all_jobs()] == [(at, at) for at in ALL_TIMES]
        assert [stored(store, f"job-{number}").at for number in range(len(ALL_TIMES))] == [*ALL_TIMES]

    @pytest.mark.parametrize("at", ALL_TIMES)
    def test_the_next_time_is_told_to_the_microsecond_in_every_year(self, store: JobStore, at: int) -> None:
        add_job(store, at=at)
        assert store.due(0, 0).next_at == at
        assert store.get_next_run_time() == from_us(at)

    def test_jobs_that_were_due_before_1970_are_handed_out_earliest_first(self, store: JobStore) -> None:
        for number, at in reversed(list(enumerate(ALL_TIMES))):
            add_job(store, f"job-{number}", at=at)
        page = store.due(100, 0)
        assert [due.at for due in page.jobs] == [*PAST]
        assert page.next_at == FUTURE[0]

    @pytest.mark.parametrize("at", ALL_TIMES)
    def test_a_job_is_moved_to_every_year_and_back(self, store: JobStore, at: int) -> None:
        job = add_job(store)
        soon = job.at
        job.at = job.nominal = at
        store.update_job(job)
        assert (stored(store).at, stored(store).nominal) == (at, at)
        job.at = None
        store.update_job(job)
        job.at = soon
        store.update_job(job)
        assert (due_one(store).at, due_one(store).unfinished) == (soon, 0)

    @pytest.mark.parametrize("at", FUTURE)
    def test_a_fire_sets_a_next_time_in_every_year(self, store: JobStore, at: int) -> None:
        job = add_job(store)
        fired = replace(step(store, job), next_at=at, next_nominal=at, runs=(fired_run(store, job),))
        [ids] = store.fire([fired], 60.0)
        assert ids is not None
        assert len(ids) == 1
        assert (stored(store).at, stored(store).nominal, store.due(10, 0).next_at) == (at, at, at)

    @pytest.mark.parametrize("at", PAST)
    def test_a_job_that_was_due_before_1970_fires_once(self, store: JobStore, at: int) -> None:
        job = add_job(store, at=at)
        run = fired_run(store, job)
        assert store.fire([step(store, job, runs=(run,))], 60.0) == [(run.id,)]
        assert store.fire([step(store, stored(store), runs=(run,))], 60.0) == [None]
        store.shift_clock(120)
        assert store.fire([step(store, stored(store), runs=(run,))], 60.0) == [()]
        store.shift_clock(120)
        assert (current(store, run).fire_time, due_one(store).unfinished) == (at, 1)

    def test_a_job_set_aside_comes_back_in_its_year(self, store: JobStore) -> None:
        job = add_job(store, at=LAST)
        assert store.set_aside("job", job.version, "unreadable") is True
        assert store.set_aside("job", 0, None) is True
        assert (stored(store).at, store.due(0, 0).next_at) == (LAST, LAST)

    @pytest.mark.parametrize("end", [FIRST + 1, -1, LAST])
    def test_a_trigger_keeps_an_end_in_every_year(self, store: JobStore, end: int) -> None:
        beginning = datetime(1, 1, 1, tzinfo=UTC)
        trigger = IntervalTrigger(days=1, start_date=beginning, end_date=from_us(end), timezone="UTC")
        store.add_job(Job("job", CALL, trigger, at=None))
        kept = stored(store).trigger
        assert kept == trigger
        assert kept.next_fire(None, end - 1) == trigger.next_fire(None, end - 1)

    # -- runs --------------------------------------------------------------------------------------------------

    def test_runs_of_all_years_are_read_as_they_were_added(self, store: JobStore) -> None:
        runs = [add_run(store, run_at=at, created_at=at, start_by=at, fire_time=at) for at in ALL_TIMES]
        for at, run in zip(ALL_TIMES, store.get_runs([run.id for run in runs]), strict=True):
            assert run is not None
            assert (run.run_at, run.created_at, run.start_by, run.fire_time) == (at, at, at, at)

    def test_runs_are_claimed_in_the_order_of_their_years(self, store: JobStore) -> None:
        for at in reversed(ALL_TIMES):
            add_run(store, run_at=at)
        claimed = store.claim([(["default"], 100)], node="node", token="token", lease=60.0)
        assert [run.run_at for run in claimed.runs] == [*PAST]
        assert claimed.next_at == FUTURE[0]

    @pytest.mark.parametrize("at", FUTURE)
    def test_a_claim_says_to_the_microsecond_when_the_next_run_is_due_in_every_year(
        self, store: JobStore, at: int
    ) -> None:
        add_run(store, run_at=at)
        claimed = store.claim([(["default"], 100)], node="node", token="token", lease=60.0)
        assert (claimed.runs, claimed.next_at) == ([], at)

    def test_runs_are_found_in_the_order_of_their_years_page_by_page(self, store: JobStore) -> None:
        for at in ALL_TIMES:
            add_run(store, created_at=at, group="all")
        for query in (RunQuery(), RunQuery(group="all"), RunQuery(status=(Status.PENDING,))):
            found, last = [], None
            while page := store.find_runs(query, after=last, limit=4):
                found += page
                last = page[-1]
            assert [run.created_at for run in found] == [*reversed(ALL_TIMES)]

    @pytest.mark.parametrize("at", FUTURE)
    def test_a_run_of_every_year_is_cancelled(self, store: JobStore, at: int) -> None:
        first, second = add_run(store, run_at=at), add_run(store, run_at=at, queue="other")
        assert [(queue.waiting, queue.delayed, queue.oldest_at) for queue in store.stats().queues] == [(0, 1, None)] * 2
        assert all(store.settle([cancel(run, store.beat()) for run in (first, second)]))
        assert [current(store, run).status for run in (first, second)] == [Status.CANCELLED] * 2
        assert store.stats().queues == []

    @pytest.mark.parametrize("at", ALL_TIMES)
    def test_a_run_is_put_off_to_every_year(self, store: JobStore, at: int) -> None:
        run = start(store)
        back = give_back(store, run)
        assert settle(store, replace(back, run=replace(back.run, run_at=at)))
        assert (current(store, run).status, current(store, run).run_at) == (Status.PENDING, at)
        assert [one.id for one in claim(store)] == ([run.id] if at in PAST else [])

    @pytest.mark.parametrize("at", PAST)
    def test_a_queue_says_what_has_waited_longest_in_every_year(self, store: JobStore, at: int) -> None:
        add_run(store, run_at=at)
        add_run(store, priority=5)
        assert [queue.oldest_at for queue in store.stats().queues] == [at]
