"""Changes to a run that waits: another queue, another time, another priority, unless it is claimed meanwhile."""

from __future__ import annotations

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition, Outcome, Status
from mainspring.core.transitions import change, retry
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    add_run,
    break_,
    claim,
    current,
    fail,
    give_back,
    make_job,
    make_run,
    settle,
    start,
    succeed,
)
from mainspring.triggers.interval import IntervalTrigger


class ChangeConformance:
    """How a waiting run is changed."""

    def test_a_moved_run_is_claimed_from_its_new_queue_only(self, store: JobStore) -> None:
        run = add_run(store, unique="key", group="g")
        assert settle(store, change(run, queue="other"))
        assert claim(store) == []
        [moved] = claim(store, "other")
        assert (moved.id, moved.queue, moved.call.args, moved.group) == (run.id, "other", run.call.args, "g")
        assert store.stats(RunQuery(queue="default")).matching == 0
        assert store.add_runs([make_run(store, unique="key")]) == [run.id]
        assert settle(store, succeed(store, moved, "done"))
        assert (current(store, run).queue, current(store, run).result) == ("other", "done")

    def test_a_moved_run_may_fail_be_sent_back_and_be_moved_again(self, store: JobStore) -> None:
        run = add_run(store)
        assert settle(store, change(run, queue="other"))
        [moved] = claim(store, "other")
        assert settle(store, fail(store, moved))
        assert settle(store, retry(current(store, run), store.beat()))
        assert settle(store, change(current(store, run), queue="default"))
        assert claim(store, "other") == []
        assert [one.id for one in claim(store)] == [run.id]

    def test_a_moved_run_that_is_broken_can_be_sent_back(self, store: JobStore) -> None:
        run = add_run(store)
        settle(store, change(run, queue="other"))
        [moved] = claim(store, "other")
        assert settle(store, break_(store, moved))
        assert settle(store, retry(current(store, run), store.beat()))
        assert [one.call.args for one in claim(store, "other")] == [run.call.args]

    def test_a_postponed_run_waits_until_its_new_time(self, store: JobStore) -> None:
        run = add_run(store, start_by=store.beat() + SECOND)
        assert settle(store, change(run, run_at=store.beat() + 100 * SECOND))
        assert claim(store) == []
        store.shift_clock(101)
        [late] = claim(store)
        assert (late.id, late.start_by) == (run.id, None)

    def test_a_delayed_run_may_be_brought_forward(self, store: JobStore) -> None:
        run = add_run(store, due_in=1000)
        assert settle(store, change(run, run_at=store.beat()))
        assert [one.id for one in claim(store)] == [run.id]

    def test_a_prioritized_run_is_claimed_first(self, store: JobStore) -> None:
        first, second = add_run(store, due_in=-20), add_run(store, due_in=-10)
        assert settle(store, change(second, priority=7))
        claimed = claim(store)
        assert [(one.id, one.priority) for one in claimed] == [(second.id, 7), (first.id, 0)]

    def test_a_run_that_was_claimed_meanwhile_is_not_changed(self, store: JobStore) -> None:
        read = add_run(store)
        [held] = claim(store)
        assert settle(store, change(read, queue="other")) is False
        assert settle(store, give_back(store, held))
        assert settle(store, change(read, queue="other")) is False  # it is not the record that was read
        assert settle(store, change(current(store, read), queue="other"))
        assert [one.id for one in claim(store, "other")] == [read.id]

    def test_a_run_that_has_ended_is_not_changed(self, store: JobStore) -> None:
        run = start(store)
        settle(store, succeed(store, run))
        with pytest.raises(ValueError, match="only a run that waits can be changed"):
            change(current(store, run), queue="other")
        waiting = Outcome(change(make_run(store, run.id), queue="other").run, Condition.WAITING)
        assert settle(store, waiting) is False
        assert current(store, run).status is Status.SUCCEEDED

    def test_what_a_changed_job_was_declared_as_is_kept(self, store: JobStore) -> None:
        job = make_job(store, "declared")
        job.declared = "a digest"
        store.add_job(job)
        read = store.lookup_job("declared")
        assert read is not None
        assert read.overridden == {}
        changed = read.evolve(args=("changed",), queue="other", retries=3, trigger=IntervalTrigger(days=9))
        store.update_job(changed)
        kept = store.lookup_job("declared")
        assert kept is not None
        assert set(kept.overridden) == {"call", "queue", "policy", "trigger"}
        assert (kept.overridden["call"].args, kept.overridden["queue"]) == (job.args, job.queue)
        assert (kept.overridden["policy"], kept.overridden["trigger"]) == (job.policy, job.trigger)

    def test_what_a_run_was_copied_from_is_kept(self, store: JobStore) -> None:
        run = start(store, copied_from="another")
        assert settle(store, succeed(store, run))
        assert current(store, run).copied_from == "another"
