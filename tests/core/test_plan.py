"""What a due job does: run, coalesce, catch up, miss; and when it is due next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import DueJob, Miss, Place, firing, make_runs, passed_over, plan, superseded
from mainspring.core.policy import Policy
from mainspring.core.run import ON, After, Call, Status
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger

START = datetime(2026, 1, 1, tzinfo=UTC)
T0 = int(START.timestamp()) * SECOND
YEAR = 365 * 86_400 * SECOND
PLACE = Place(".default")


def work() -> None: ...


def every(seconds: float, **options: Any) -> IntervalTrigger:
    return IntervalTrigger(seconds=seconds, start_date=START, timezone="UTC", **options)


def due(trigger: BaseTrigger, *, unfinished: int = 0, miss: Miss | None = None, **options: Any) -> DueJob:
    job = Job("j", Call(work, name="work"), trigger, **options)
    return DueJob(job, T0, T0, version=7, incarnation=3, unfinished=unfinished, miss=miss)


def test_a_job_on_time_runs_once_and_is_due_again_one_interval_later() -> None:
    planned = plan(due(every(10)), T0)
    assert (planned.fires, planned.missed, planned.next_at) == ((T0,), (), T0 + 10 * SECOND)


def test_overdue_fires_become_one_at_the_latest_time() -> None:
    planned = plan(due(every(10)), T0 + 35 * SECOND)
    assert (planned.fires, planned.count, planned.missed) == ((T0 + 30 * SECOND,), 4, ())
    assert planned.next_at == T0 + 40 * SECOND


def test_without_coalescing_each_overdue_fire_runs() -> None:
    planned = plan(due(every(10), coalesce=False), T0 + 35 * SECOND)
    assert planned.fires == tuple(T0 + n * 10 * SECOND for n in range(4))


def test_a_fire_later_than_the_grace_time_is_missed() -> None:
    planned = plan(due(every(100), misfire_grace_time=5), T0 + 6 * SECOND)
    assert planned.fires == ()
    assert [(m.reason, m.count, m.first, m.last) for m in planned.missed] == [("late", 1, T0, T0)]


def test_a_fire_exactly_at_the_end_of_its_grace_time_runs() -> None:
    assert plan(due(every(100), misfire_grace_time=5), T0 + 5 * SECOND).fires == (T0,)


def test_without_coalescing_only_the_fires_inside_the_grace_time_run() -> None:
    planned = plan(due(every(10), coalesce=False, misfire_grace_time=15), T0 + 35 * SECOND)
    assert planned.fires == (T0 + 20 * SECOND, T0 + 30 * SECOND)
    assert [(m.reason, m.count, m.first, m.last) for m in planned.missed] == [("late", 2, T0, T0 + 10 * SECOND)]


def test_coalesced_fires_that_are_all_late_are_one_missed_record_with_their_count() -> None:
    planned = plan(due(every(10), misfire_grace_time=3), T0 + 35 * SECOND)
    assert [(m.reason, m.count, m.first, m.last) for m in planned.missed] == [("late", 4, T0, T0 + 30 * SECOND)]


def test_at_most_the_latest_hundred_overdue_fires_run_and_the_rest_is_counted() -> None:
    planned = plan(due(every(1), coalesce=False), T0 + 250 * SECOND)
    assert planned.fires == tuple(T0 + n * SECOND for n in range(151, 251))
    assert [(m.reason, m.count, m.first) for m in planned.missed] == [("catch_up", 151, T0)]


def test_late_fires_and_those_beyond_the_catch_up_are_one_record_when_both_are_late() -> None:
    planned = plan(due(every(1), coalesce=False, misfire_grace_time=10.5), T0 + 250 * SECOND)
    assert planned.fires == tuple(T0 + n * SECOND for n in range(240, 251))
    assert [(m.reason, m.count, m.first, m.last) for m in planned.missed] == [("late", 240, T0, T0 + 239 * SECOND)]


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize(
    "trigger", [every(1), CronTrigger(second="*", timezone="UTC"), CronTrigger(second="*", timezone="Europe/Berlin")]
)
def test_ten_years_of_seconds_are_planned_in_a_handful_of_steps(
    trigger: BaseTrigger, coalesce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    step = type(trigger).next_fire

    def counted(self: BaseTrigger, previous: int | None, now: int) -> int | None:
        nonlocal calls
        calls += 1
        return step(self, previous, now)

    monkeypatch.setattr(type(trigger), "next_fire", counted)
    planned = plan(due(trigger, coalesce=coalesce), T0 + 10 * YEAR)
    assert calls <= 10
    assert planned.fires[-1] == T0 + 10 * YEAR
    assert len(planned.fires) == (1 if coalesce else 100)
    counted_fires = planned.count if coalesce else planned.missed[0].count + 100
    assert counted_fires == 10 * YEAR // SECOND + 1
    assert planned.next_at == T0 + 10 * YEAR + SECOND


def test_a_fire_above_max_instances_is_missed_with_that_reason() -> None:
    planned = plan(due(every(10), unfinished=2, max_instances=2), T0)
    assert planned.fires == ()
    assert [(m.reason, m.count) for m in planned.missed] == [("max_instances", 1)]
    assert plan(due(every(10), unfinished=1, max_instances=2), T0).fires == (T0,)


def test_a_fire_above_max_instances_waits_if_its_overlap_is_queue() -> None:
    busy = plan(due(every(10), unfinished=1, overlap="queue"), T0 + 25 * SECOND)
    assert (busy.waits, busy.fires, busy.missed, busy.next_at) == (True, (), (), T0)
    free = plan(due(every(10), overlap="queue", coalesce=False), T0 + 25 * SECOND)
    assert (free.waits, len(free.fires), free.next_at) == (False, 3, T0 + 30 * SECOND)


def test_of_overdue_fires_that_cancel_each_other_only_the_last_runs() -> None:
    planned = plan(due(every(10), overlap="cancel_other", coalesce=False), T0 + 25 * SECOND)
    assert planned.fires == (T0 + 20 * SECOND,)
    assert [(m.reason, m.count, m.first, m.last) for m in planned.missed] == [("superseded", 2, T0, T0 + 10 * SECOND)]


def test_the_oldest_runs_are_superseded_and_only_those_of_this_incarnation() -> None:
    waiting = due(every(10), unfinished=3, max_instances=2, overlap="cancel_other")
    runs = [make_runs(waiting.job, 3, PLACE, (T0 + n * SECOND,), T0)[0] for n in (30, 10, 20)]
    [old] = make_runs(waiting.job, 2, PLACE, (T0,), T0)
    assert [run.fire_time for run in superseded(waiting, [*runs, old])] == [T0 + 10 * SECOND, T0 + 20 * SECOND]
    stopping = [replace(run, cancelling=True) for run in runs]
    assert superseded(waiting, stopping) == []


def test_overdue_fires_count_as_one_instance() -> None:
    planned = plan(due(every(10), coalesce=False, max_instances=1), T0 + 35 * SECOND)
    assert len(planned.fires) == 4


def test_a_job_with_no_fire_left_is_finished() -> None:
    planned = plan(due(DateTrigger(START, timezone="UTC")), T0)
    assert (planned.fires, planned.next_at) == ((T0,), None)


def test_jitter_delays_the_next_fire_but_not_the_one_after() -> None:
    planned = plan(due(every(10, jitter=4)), T0, noise=0.5)
    assert (planned.next_at, planned.next_nominal) == (T0 + 12 * SECOND, T0 + 10 * SECOND)


class Stubborn(BaseTrigger):
    """A trigger of a user's own that fires every second and knows nothing of the kernel's short cuts."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        from datetime import timedelta

        return (previous_fire_time or now) + timedelta(seconds=1)


def test_a_trigger_that_can_only_be_walked_is_planned_within_a_bound() -> None:
    planned = plan(due(Stubborn()), T0 + 10 * YEAR)
    assert planned.next_at is not None
    assert planned.next_at > T0 + 10 * YEAR
    assert len(planned.fires) == 1


def test_a_fire_is_named_by_job_incarnation_and_time() -> None:
    it = due(every(10))
    step = firing(it, plan(it, T0), PLACE, T0)
    assert [run.id for run in step.runs] == [f"j@3@{T0}"]
    assert (step.version, step.next_at, step.miss) == (7, T0 + 10 * SECOND, None)
    assert (step.runs[0].status, step.runs[0].queue, step.runs[0].attempt) == (Status.PENDING, ".default", 0)


def test_a_fire_into_a_free_slot_is_claimed_already() -> None:
    it = due(every(10))
    (run,) = firing(it, plan(it, T0), Place(".default", "node", "token"), T0).runs
    assert (run.status, run.node, run.token, run.attempt) == (Status.RUNNING, "node", "token", 1)


def test_the_grace_time_travels_with_the_run() -> None:
    it = due(every(10), misfire_grace_time=3)
    (run,) = firing(it, plan(it, T0), PLACE, T0).runs
    assert run.start_by == T0 + 3 * SECOND


def test_overdue_fires_come_one_after_another_and_only_the_last_counts() -> None:
    it, now = due(every(10), coalesce=False, misfire_grace_time=100), T0 + 20 * SECOND
    runs = firing(it, plan(it, now), Place(".default", "node", "token"), now).runs
    ids = [f"j@3@{T0 + seconds * SECOND}" for seconds in (0, 10, 20)]
    assert [run.id for run in runs] == ids
    assert [run.status for run in runs] == [Status.RUNNING, Status.BLOCKED, Status.BLOCKED]
    assert [run.after for run in runs] == [(), (After(ids[0], ON["end"]),), (After(ids[1], ON["end"]),)]
    assert [run.counted for run in runs] == [False, False, True]
    assert [run.start_by - run.fire_time for run in runs if run.start_by and run.fire_time] == [100 * SECOND] * 3
    assert {run.queue for run in runs} == {".default"}


@pytest.mark.parametrize("needed", [None, "loop"])
def test_in_a_queue_a_fire_waits_with_the_runs_for_threads_unless_it_needs_another_executor(needed: str | None) -> None:
    it = due(every(10), executor="queue", queue="mail")
    [run] = firing(it, plan(it, T0), Place("mail", executor=needed), T0).runs
    assert (run.executor, run.lane) == (("threads", "mail") if needed is None else ("loop", "mail:async"))


def test_a_fire_brings_its_hook_and_so_does_each_overdue_one() -> None:
    it, now = due(every(10), coalesce=False, policy=Policy(hook="shop:hook")), T0 + 10 * SECOND
    first, hook, second, other = firing(it, plan(it, now), PLACE, now).runs
    assert [hook.id, other.id] == [f"{first.id}~hook", f"{second.id}~hook"]
    assert hook.after == (After(first.id, ON["end"]),)
    assert (hook.job_id, hook.executor, hook.queue) == (None, "default", ".default")


def test_fires_missed_in_a_row_for_one_reason_are_one_record() -> None:
    first = due(every(10), unfinished=1)
    step = firing(first, plan(first, T0), PLACE, T0)
    assert step.miss is not None
    second = due(every(10), unfinished=1, miss=step.miss)
    second.at = second.nominal = T0 + 10 * SECOND
    again = firing(second, plan(second, T0 + 10 * SECOND), PLACE, T0 + 10 * SECOND)
    assert [run.id for run in again.missed] == [run.id for run in step.missed]
    assert [(r.count, r.fire_time, r.last, r.reason) for r in again.missed] == [
        (2, T0, T0 + 10 * SECOND, "max_instances")
    ]


def test_another_reason_begins_another_record() -> None:
    it = due(every(100), misfire_grace_time=1, miss=Miss("old", "max_instances", 5, T0 - 50))
    step = firing(it, plan(it, T0 + 50 * SECOND), PLACE, T0 + 50 * SECOND)
    assert step.missed[0].id != "old"
    assert step.miss is not None
    assert step.miss.count == 1


def test_a_fire_that_runs_closes_the_record_of_missed_ones() -> None:
    it = due(every(10), miss=Miss("old", "max_instances", 5, T0 - 50))
    assert firing(it, plan(it, T0), PLACE, T0).miss is None


def change(trigger: BaseTrigger, next_at: int | None) -> tuple[Job, Job]:
    job = Job("j", Call(work, name="work"), trigger, at=T0)
    job.version, job.incarnation = 7, 3
    changed = job.copy()
    changed.at = changed.nominal = next_at
    return job, changed


def test_a_change_that_moves_an_overdue_job_records_all_that_it_skips() -> None:
    job, changed = change(every(10), T0 + 40 * SECOND)
    step = passed_over(job, changed, T0 + 35 * SECOND)
    assert step is not None
    assert (step.version, step.next_at, step.job, step.runs) == (7, T0 + 40 * SECOND, changed, ())
    (record,) = step.missed
    assert (record.id, record.status, record.reason) == (f"j@3@{T0}:missed", Status.MISSED, "rescheduled")
    assert (record.count, record.fire_time, record.last) == (4, T0, T0 + 30 * SECOND)


def test_a_change_to_a_time_that_is_past_too_skips_what_lies_before_it() -> None:
    step = passed_over(*change(every(10), T0 + 20 * SECOND), T0 + 35 * SECOND)
    assert step is not None
    assert [(record.count, record.last) for record in step.missed] == [(2, T0 + 10 * SECOND)]


@pytest.mark.parametrize(
    ("next_at", "now"), [(T0 + 40 * SECOND, T0 - 1), (T0, T0 + 35 * SECOND), (T0 - SECOND, T0 + 35 * SECOND)]
)
def test_a_change_that_skips_nothing_needs_no_record(next_at: int, now: int) -> None:
    assert passed_over(*change(every(10), next_at), now) is None


def test_a_job_whose_trigger_fails_can_be_changed() -> None:
    class Failing(BaseTrigger):
        def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
            raise RuntimeError("no")

    step = passed_over(*change(Failing(), T0 + 40 * SECOND), T0 + 35 * SECOND)
    assert step is not None
    assert [(record.count, record.fire_time) for record in step.missed] == [(1, T0)]
