"""Firing: a store hands out due jobs, and each fires once, in one step."""

from __future__ import annotations

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.plan import Firing, Miss, Place, firing, passed_over, plan
from mainspring.core.run import Run, Status
from mainspring.errors import VersionConflict
from mainspring.jobstores.base import Hold, JobStore, RunQuery
from mainspring.jobstores.finding import count_unfinished
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_job,
    beat,
    claim,
    current,
    due_one,
    fire,
    fired_run,
    lapsed,
    make_job,
    make_run,
    new_token,
    plain,
    reference,
    settle,
    step,
    stored,
    succeed,
)

ALL = RunQuery()


class FiringConformance:
    """Tests that a store hands out due jobs, and fires each completely or not at all."""

    def test_due_jobs_are_handed_out_earliest_first(self, store: JobStore) -> None:
        for name, due_in in (("second", -20), ("future", 500), ("third", -10), ("first", -30), ("paused", None)):
            add_job(store, name, due_in=due_in)
        page = store.due(10, 0)
        assert [due.job.id for due in page.jobs] == ["first", "second", "third"]
        assert page.next_at == stored(store, "future").at

    def test_a_due_job_comes_with_all_that_planning_needs(self, store: JobStore) -> None:
        at = store.beat() - 5 * SECOND
        job = add_job(store, at=at, nominal=at - 7, max_instances=3)
        due = due_one(store)
        assert (due.at, due.nominal, due.version, due.incarnation) == (at, at - 7, job.version, job.incarnation)
        assert (due.unfinished, due.miss) == (0, None)
        assert (due.job.id, due.job.max_instances, due.job.trigger) == ("job", 3, job.trigger)
        assert reference(due.job.call.func) == reference(job.call.func)

    def test_a_page_is_limited_and_names_the_time_of_the_next_job(self, store: JobStore) -> None:
        jobs = [add_job(store, f"job-{n}", due_in=-100 + n) for n in range(5)]
        page = store.due(2, 0)
        assert [due.job.id for due in page.jobs] == ["job-0", "job-1"]
        assert page.next_at == jobs[2].at

    def test_a_page_of_nothing_names_no_time(self, store: JobStore) -> None:
        add_job(store, due_in=None)
        page = store.due(10, 0)
        assert (page.jobs, page.next_at) == ([], None)

    def test_a_page_tells_the_time_of_the_store(self, store: JobStore) -> None:
        before = store.beat()
        store.shift_clock(1000)
        now = store.due(10, 0).now
        assert before + 1000 * SECOND <= now <= store.beat()

    def test_a_job_comes_due_as_time_passes(self, store: JobStore) -> None:
        add_job(store, due_in=100)
        assert store.due(10, 0).jobs == []
        store.shift_clock(101)
        assert due_one(store).job.id == "job"

    def test_what_was_handed_out_is_hidden_for_a_while(self, store: JobStore) -> None:
        add_job(store, "first", due_in=-20)
        add_job(store, "second", due_in=-10)
        assert [due.job.id for due in store.due(1, 60).jobs] == ["first"]
        assert [due.job.id for due in store.due(10, 60).jobs] == ["second"]
        assert store.due(10, 60).jobs == []
        store.shift_clock(61)
        assert [due.job.id for due in store.due(10, 0).jobs] == ["first", "second"]

    def test_others_are_told_to_come_back_when_what_is_hidden_shows_again(self, store: JobStore) -> None:
        add_job(store)
        store.due(10, 60)
        page = store.due(10, 60)
        assert page.next_at is not None
        assert page.next_at <= page.now + 60 * SECOND

    @pytest.mark.parametrize("write", ["update", "replace"])
    def test_a_write_makes_a_hidden_job_visible(self, store: JobStore, write: str) -> None:
        job = add_job(store)
        store.due(10, 60)
        if write == "update":
            store.update_job(job)
        else:
            store.add_jobs([job], replace=True)
        assert due_one(store).version == job.version

    def test_a_hidden_job_that_is_put_off_does_not_show_at_its_old_time(self, store: JobStore) -> None:
        job = add_job(store)
        store.due(10, 60)
        job.at = job.nominal = store.beat() + 1000 * SECOND
        store.update_job(job)
        store.shift_clock(61)
        page = store.due(10, 60)
        assert (page.jobs, page.next_at, store.due(0, 0).next_at) == ([], job.at, job.at)

    def test_hiding_is_not_a_lock(self, store: JobStore) -> None:
        add_job(store)
        mine = due_one(store)
        theirs = store.due(10, 60).jobs[0]
        assert fire(store, mine) is not None
        assert fire(store, theirs) is None

    # -- the step ----------------------------------------------------------------------------------------------

    def test_a_fire_sets_the_next_time_and_inserts_its_run(self, store: JobStore) -> None:
        job = add_job(store, every=60, misfire_grace_time=500.0)
        due = due_one(store)
        now = store.beat()
        planned = firing(due, plan(due, now), Place("mail"), now)
        [inserted] = store.fire([planned], LEASE)
        assert inserted == (f"job@{job.incarnation}@{job.at}",)
        after = stored(store)
        assert job.at is not None
        assert (after.at, after.nominal) == (job.at + 60 * SECOND, job.at + 60 * SECOND)
        assert (after.incarnation, after.trigger) == (job.incarnation, job.trigger)
        assert after.version != job.version
        assert plain(current(store, planned.runs[0])) == plain(planned.runs[0])
        assert store.due(10, 0).jobs == []

    def test_the_nominal_time_is_kept_beside_the_jittered_one(self, store: JobStore) -> None:
        job = add_job(store)
        at = store.beat() + 90 * SECOND
        [answer] = store.fire([Firing("job", job.version, at + 1, at)], LEASE)
        assert answer == ()
        assert (stored(store).at, stored(store).nominal) == (at + 1, at)

    def test_a_lost_step_changes_nothing(self, store: JobStore) -> None:
        job = add_job(store)
        stale = step(
            store,
            job,
            runs=(fired_run(store, job),),
            missed=(make_run(store, "job@1@1:missed", status=Status.MISSED, job_id="job"),),
            miss=Miss("job@1@1:missed", "late", 1, 1),
        )
        store.update_job(job)
        before = stored(store)
        assert store.fire([stale], LEASE) == [None]
        after = stored(store)
        assert (after.at, after.nominal, after.version) == (before.at, before.nominal, before.version)
        assert store.stats(ALL).matching == 0
        due = due_one(store)
        assert (due.unfinished, due.miss) == (0, None)

    def test_each_step_of_a_batch_stands_alone_and_is_answered_in_order(self, store: JobStore) -> None:
        jobs = [add_job(store, f"job-{n}", due_in=-10 + n) for n in range(3)]
        steps = [step(store, job, runs=(fired_run(store, job),)) for job in jobs]
        store.update_job(jobs[1])
        answers = store.fire([*steps, step(store, make_job(store, "nobody"))], LEASE)
        assert answers == [(steps[0].runs[0].id,), None, (steps[2].runs[0].id,), None]
        assert {run.job_id for run in store.find_runs(ALL)} == {"job-0", "job-2"}

    def test_the_same_step_taken_twice_is_lost_the_second_time(self, store: JobStore) -> None:
        job = add_job(store)
        once = step(store, job, next_in=-1, runs=(fired_run(store, job),))
        assert store.fire([once, once], LEASE) == [(once.runs[0].id,), None]
        assert store.fire([once], LEASE) == [None]
        assert store.stats(ALL).matching == 1

    def test_firing_nothing_is_allowed(self, store: JobStore) -> None:
        assert store.fire([], LEASE) == []

    def test_a_time_later_than_now_is_refused(self, store: JobStore) -> None:
        job = add_job(store, due_in=1000)
        early = step(store, job, next_in=2000, runs=(fired_run(store, job),))
        assert store.fire([early], LEASE) == [None]
        assert (stored(store).at, store.stats(ALL).matching) == (job.at, 0)
        store.shift_clock(1001)
        assert store.fire([early], LEASE) == [(early.runs[0].id,)]

    def test_a_paused_job_is_not_fired(self, store: JobStore) -> None:
        job = add_job(store, due_in=None)
        assert store.fire([step(store, job)], LEASE) == [None]
        assert stored(store).at is None

    def test_the_last_fire_removes_the_job_and_its_run_goes_on(self, store: JobStore) -> None:
        job = add_job(store)
        last = step(store, job, next_in=None, runs=(fired_run(store, job),))
        assert store.fire([last], LEASE) == [(last.runs[0].id,)]
        assert store.lookup_job("job") is None
        assert store.due(0, 0).next_at is None
        assert store.stats().jobs == 0
        [run] = claim(store)
        assert run.id == last.runs[0].id
        assert settle(store, succeed(store, run))
        assert store.lookup_job("job") is None

    def test_a_removed_job_is_not_brought_back_by_a_fire(self, store: JobStore) -> None:
        job = add_job(store)
        late = step(store, job, runs=(fired_run(store, job),))
        store.remove_job("job")
        assert store.fire([late], LEASE) == [None]
        assert store.lookup_job("job") is None
        assert store.stats(ALL).matching == 0

    def test_an_id_removed_and_added_again_is_not_fired_at_the_old_version(self, store: JobStore) -> None:
        old = add_job(store)
        late = step(store, old, runs=(fired_run(store, old),))
        store.remove_job("job")
        new = add_job(store)
        assert store.fire([late], LEASE) == [None]
        assert (stored(store).at, stored(store).version) == (new.at, new.version)
        assert store.stats(ALL).matching == 0

    @pytest.mark.parametrize("change", ["modify", "pause", "replace", "remove"])
    def test_a_change_before_the_fire_wins_whole(self, store: JobStore, change: str) -> None:
        job = add_job(store)
        due = due_one(store)
        if change == "modify":
            job.max_instances = 7
            store.update_job(job)
        elif change == "pause":
            job.at = None
            store.update_job(job)
        elif change == "replace":
            store.add_jobs([job], replace=True)
        else:
            store.remove_job("job")
        assert fire(store, due) is None
        assert store.stats(ALL).matching == 0
        now = store.lookup_job("job")
        if change == "remove":
            assert now is None
        else:
            assert now is not None
            assert (now.max_instances, now.at, now.version) == (job.max_instances, job.at, job.version)

    @pytest.mark.parametrize("pause", [False, True])
    def test_a_fire_before_the_change_wins_whole(self, store: JobStore, pause: bool) -> None:
        add_job(store, max_instances=1)
        mine = stored(store)
        assert fire(store, due_one(store)) is not None
        fired = stored(store)
        mine.max_instances = 7
        if pause:
            mine.at = None
        with pytest.raises(VersionConflict):
            store.update_job(mine)
        after = stored(store)
        assert (after.max_instances, after.at, after.version) == (1, fired.at, fired.version)
        assert store.stats(ALL).matching == 1

    # -- outside the schedule ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("due_in", [-10, 1000, None])
    def test_what_fires_besides_the_schedule_leaves_it_as_it_is(self, store: JobStore, due_in: float | None) -> None:
        job = add_job(store, due_in=due_in)
        store.due(10, 60)
        now = Firing("job", job.version, job.at, job.nominal, (fired_run(store, job),), unscheduled=True)
        assert store.fire([now], LEASE) != [None]
        after = stored(store)
        assert (after.at, after.nominal, store.due(0, 0).next_at) == (job.at, job.nominal, job.at)
        assert (after.incarnation, after.version != job.version) == (job.incarnation, True)
        assert [run.id for run in claim(store)] == [now.runs[0].id]
        assert count_unfinished(store, [("job", job.incarnation)]) == [1]
        if due_in is None:
            assert store.due(10, 0).jobs == []
        else:
            store.shift_clock(1001)
            assert due_one(store).unfinished == 1

    def test_a_step_besides_the_schedule_is_lost_if_the_job_has_changed(self, store: JobStore) -> None:
        job = add_job(store, due_in=1000)
        late = Firing("job", job.version, job.at, job.nominal, (fired_run(store, job),), unscheduled=True)
        store.update_job(job)
        assert store.fire([late], LEASE) == [None]
        store.remove_job("job")
        assert store.fire([late], LEASE) == [None]
        assert (store.lookup_job("job"), store.stats(ALL).matching) == (None, 0)

    def test_what_was_planned_before_a_step_besides_the_schedule_is_lost(self, store: JobStore) -> None:
        job = add_job(store)
        due = due_one(store)
        run = make_run(store, f"job@{job.incarnation}@7")
        now = Firing("job", job.version, job.at, job.nominal, (run,), unscheduled=True)
        assert store.fire([now], LEASE) != [None]
        assert fire(store, due) is None
        assert [run.id for run in store.find_runs(ALL)] == [now.runs[0].id]

    @pytest.mark.parametrize("next_in", [50.0, None], ids=["moved", "paused"])
    def test_a_step_besides_the_schedule_replaces_the_job_and_records_what_it_skips(
        self, store: JobStore, next_in: float | None
    ) -> None:
        job = add_job(store, max_instances=1)
        changed = job.copy()
        changed.at = changed.nominal = None if next_in is None else store.beat() + int(next_in * SECOND)
        changed.max_instances = 7
        step = passed_over(job, changed, store.beat())
        assert step is not None
        assert store.fire([step], LEASE) != [None]
        after = stored(store)
        assert (after.at, after.nominal, after.max_instances) == (changed.at, changed.nominal, 7)
        assert (after.incarnation, after.version != job.version) == (job.incarnation, True)
        assert (store.due(10, 0).jobs, store.due(0, 0).next_at) == ([], changed.at)
        [record] = store.find_runs(ALL)
        assert (record.status, record.job_id, record.fire_time) == (Status.MISSED, "job", job.at)
        assert store.fire([step], LEASE) == [None]
        store.update_job(after)

    def test_a_job_that_has_changed_is_not_replaced_and_nothing_is_recorded(self, store: JobStore) -> None:
        job = add_job(store)
        changed = job.copy()
        changed.at = changed.nominal = store.beat() + 50 * SECOND
        step = passed_over(job, changed, store.beat())
        assert step is not None
        store.update_job(job)
        assert store.fire([step], LEASE) == [None]
        assert (stored(store).at, store.stats(ALL).matching) == (job.at, 0)

    # -- names that are known ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", ["pending", "running", "finished", "deleted"])
    def test_a_known_run_is_not_inserted_again(self, store: JobStore, state: str) -> None:
        job = add_job(store)
        run = fired_run(store, job)
        store.add_runs([run])
        if state != "pending":
            [run] = claim(store)
        if state in ("finished", "deleted"):
            assert settle(store, succeed(store, run, "kept"))
        if state == "deleted":
            assert store.delete_runs([run.id]) == 1
            store.shift_clock(3500)
        before = store.get_runs([run.id])
        again = step(store, job, runs=(fired_run(store, job),))
        assert store.fire([again], LEASE) == [()]
        assert stored(store).at == again.next_at
        assert store.get_runs([run.id]) == before
        assert len(claim(store)) == (1 if state == "pending" else 0)

    def test_of_a_fires_runs_those_that_are_new_are_inserted(self, store: JobStore) -> None:
        job = add_job(store)
        known, new = fired_run(store, job), make_run(store, f"job@{job.incarnation}@7", job_id="job")
        store.add_runs([known])
        assert store.fire([step(store, job, runs=(known, new))], LEASE) == [(new.id,)]
        assert sorted(run.id for run in claim(store)) == sorted([known.id, new.id])

    # -- claimed at once -----------------------------------------------------------------------------------------

    def test_a_run_fired_into_a_free_slot_is_leased_at_once(self, store: JobStore) -> None:
        add_job(store)
        token = new_token()
        inserted = fire(store, due_one(store), Place(".default", NODE, token))
        assert inserted is not None
        [run] = store.get_runs(inserted)
        assert run is not None
        assert (run.status, run.node, run.token, run.attempt, run.queue) == (
            Status.RUNNING,
            NODE,
            token,
            1,
            ".default",
        )
        assert run.lease_until is not None
        assert store.beat() < run.lease_until <= store.beat() + int(LEASE * SECOND)
        assert claim(store, ".default") == []
        assert store.extend([beat(run)], LEASE) == [Hold.HELD]
        assert [held.id for held in claim(store, ".default", token=token)] == [run.id]
        assert settle(store, succeed(store, run))

    def test_a_run_fired_into_a_slot_of_a_node_that_dies_expires(self, store: JobStore) -> None:
        add_job(store)
        inserted = fire(store, due_one(store), Place(".default", NODE, new_token()))
        assert inserted is not None
        assert lapsed(store) == []
        store.shift_clock(LEASE + 1)
        assert [run.id for run in lapsed(store)] == list(inserted)

    def test_a_run_fired_into_a_slot_of_a_queue_is_leased_or_waits(self, store: JobStore) -> None:
        add_job(store)
        token = new_token()
        inserted, waits = _fire_claimed(store, "job", "mail", token)
        [run] = store.get_runs(inserted)
        assert run is not None
        if waits:
            _check_waiting(run)
            [run] = claim(store, "mail", token=token)
        assert (run.status, run.node, run.token, run.attempt, run.queue) == (Status.RUNNING, NODE, token, 1, "mail")
        assert run.started_at is not None
        assert abs(store.beat() - run.started_at) < 60 * SECOND
        assert claim(store, "mail") == []
        assert store.extend([beat(run)], LEASE) == [Hold.HELD]
        assert [held.id for held in claim(store, "mail", token=token)] == [run.id]
        assert settle(store, succeed(store, run))
        assert current(store, run).status is Status.SUCCEEDED

    @pytest.mark.parametrize("limit", [0, 9])
    def test_a_run_fired_into_a_slot_waits_if_its_queue_is_paused_or_limited(self, store: JobStore, limit: int) -> None:
        for job_id in ("free", "limited"):
            add_job(store, job_id)
        store.set_gate("queue:mail", limit)
        free, _ = _fire_claimed(store, "free", "post", new_token())
        inserted, waits = _fire_claimed(store, "limited", "mail", new_token())
        assert waits
        [run] = store.get_runs(inserted)
        assert run is not None
        _check_waiting(run)
        assert store.due(10, 0).jobs == []
        assert [found.id for found in claim(store, "mail")] == ([run.id] if limit else [])
        store.set_gate("queue:mail", None)
        found = claim(store, "mail") if not limit else [current(store, run)]
        assert [(each.id, each.attempt, each.status) for each in found] == [(run.id, 1, Status.RUNNING)]
        assert found[0].started_at is not None
        assert settle(store, succeed(store, found[0]))
        assert free

    def test_the_runs_of_one_call_wait_only_in_the_limited_queue(self, store: JobStore) -> None:
        store.set_gate("queue:mail", 0)
        token = new_token()
        steps = []
        for job_id, queue in (("a", "mail"), ("b", ".default"), ("c", "mail")):
            add_job(store, job_id)
            due = due_one(store, job_id)
            now = store.beat()
            steps.append(firing(due, plan(due, now), Place(queue, NODE, token), now))
        answers = store.fire(steps, LEASE)
        first, second, third = (step.runs[0] for step in steps)
        assert answers == [(first.id,), (second.id,), (third.id,)]
        assert set(answers.waiting) == {first.id, third.id}
        assert [current(store, run).status for run in (first, second, third)] == ["pending", "running", "pending"]
        assert [run.id for run in claim(store, ".default", token=token)] == [second.id]

    def test_a_chain_of_fires_waits_whole_in_a_paused_queue(self, store: JobStore) -> None:
        job = add_job(store, every=10, due_in=-25, coalesce=False)
        store.set_gate("queue:mail", 0)
        inserted, waits = _fire_claimed(store, job.id, "mail", new_token())
        assert waits
        assert [run.status for run in store.get_runs(inserted) if run] == ["pending", "blocked", "blocked"]
        store.set_gate("queue:mail", None)
        for run_id in inserted:
            [run] = claim(store, "mail")
            assert run.id == run_id
            assert settle(store, succeed(store, run))


def _fire_claimed(store: JobStore, job_id: str, queue: str, token: str) -> tuple[tuple[str, ...], bool]:
    """Fire a job into a slot of a node; return its runs, and whether the store lets the first wait in its queue."""
    due, now = due_one(store, job_id), store.beat()
    answers = store.fire([firing(due, plan(due, now), Place(queue, NODE, token), now)], LEASE)
    [inserted] = answers
    assert inserted
    return inserted, inserted[0] in answers.waiting


def _check_waiting(run: Run) -> None:
    """Check that a fired run waits as one that was never claimed."""
    assert (run.status, run.attempt, run.node, run.token) == (Status.PENDING, 0, None, None)
    assert (run.lease_until, run.started_at) == (None, None)
