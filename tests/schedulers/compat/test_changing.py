"""Changing jobs through the job or the scheduler, and what a job shows of itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import Calls, Heard, Package, soon

FAR = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def scheduler(package: Package) -> Any:
    return package.started()


def test_modify_changes_the_stored_job_and_the_one_in_hand(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    assert job.modify(args=[7], kwargs={"b": 8}, name="other", max_instances=4, coalesce=False) is job
    stored = scheduler.get_job("sum")
    for seen in (job, stored):
        assert (tuple(seen.args), dict(seen.kwargs)) == ((7,), {"b": 8})
        assert (seen.name, seen.max_instances, seen.coalesce) == ("other", 4, False)


def test_modify_job_takes_the_store(scheduler: Any) -> None:
    scheduler.add_jobstore("memory", "other")
    for alias in ("default", "other"):
        scheduler.add_job(add, "interval", [1], id="sum", jobstore=alias, hours=1)
    scheduler.modify_job("sum", "other", name="renamed")
    assert scheduler.get_job("sum", "default").name == "add"
    assert scheduler.get_job("sum", "other").name == "renamed"


def test_modify_changes_function_and_trigger(package: Package, scheduler: Any) -> None:
    calls = Calls()
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    trigger = package.get("triggers.cron:CronTrigger")(hour=5, timezone=UTC)
    job.modify(func=calls, trigger=trigger, misfire_grace_time=None)
    stored = scheduler.get_job("sum")
    assert stored.func is calls
    assert stored.trigger == trigger or stored.trigger is trigger
    assert stored.misfire_grace_time is None


def test_reschedule_gives_another_trigger_and_another_time(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    before = job.next_run_time
    assert job.reschedule("interval", days=2) is job
    assert job.trigger.interval == timedelta(days=2)
    assert scheduler.get_job("sum").next_run_time == job.next_run_time > before


def test_reschedule_job_takes_store_and_trigger_in_order(scheduler: Any) -> None:
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    scheduler.reschedule_job("sum", "default", "cron", year=2100)
    assert scheduler.get_job("sum").next_run_time == datetime(2100, 1, 1, tzinfo=UTC)


def test_pause_and_resume_through_the_job(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    assert job.pause() is job
    assert job.next_run_time is None
    assert scheduler.get_job("sum").next_run_time is None
    assert job.resume() is job
    assert scheduler.get_job("sum").next_run_time is not None


def test_pause_and_resume_through_the_scheduler(scheduler: Any) -> None:
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    assert scheduler.pause_job("sum").next_run_time is None
    assert scheduler.resume_job("sum").next_run_time is not None


def test_resuming_a_job_without_a_fire_left_removes_it(scheduler: Any) -> None:
    scheduler.add_job(add, "cron", [1], id="sum", year=2000, next_run_time=None)
    assert scheduler.resume_job("sum") is None
    assert scheduler.get_job("sum") is None


def test_remove_through_the_job_and_the_scheduler(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], hours=1)
    scheduler.add_job(add, "interval", [1], id="b", hours=1)
    job.remove()
    scheduler.remove_job("b")
    assert scheduler.get_jobs() == []


def test_remove_all_jobs_empties_one_store_or_all(scheduler: Any) -> None:
    scheduler.add_jobstore("memory", "other")
    for alias in ("default", "other"):
        scheduler.add_job(add, "interval", [1], id="sum", jobstore=alias, hours=1)
    scheduler.remove_all_jobs("other")
    assert len(scheduler.get_jobs()) == 1
    scheduler.remove_all_jobs()
    assert scheduler.get_jobs() == []


def test_a_paused_job_does_not_run_until_it_is_resumed(package: Package, scheduler: Any) -> None:
    heard, paused, other = Heard(scheduler), Calls(), Calls()
    job = scheduler.add_job(paused, "interval", seconds=0.05, next_run_time=None)
    scheduler.add_job(other, "interval", seconds=0.05, max_instances=5)
    other.wait(3)
    assert paused.made == []
    job.resume()
    paused.wait(1)
    assert heard.wait(package.events.EVENT_JOB_MODIFIED).job_id == job.id


def test_the_next_run_time_of_a_job_in_hand_stays_current(package: Package, scheduler: Any) -> None:
    heard, first = Heard(scheduler), datetime.now(UTC)
    job = scheduler.add_job(add, "interval", [1], hours=1, next_run_time=first)
    heard.wait(package.events.EVENT_JOB_SUBMITTED)
    assert job.next_run_time > first + timedelta(minutes=30)


def test_bringing_the_next_run_time_forward_wakes_the_scheduler(scheduler: Any) -> None:
    calls = Calls()
    job = scheduler.add_job(calls, "interval", hours=1)
    job.modify(next_run_time=datetime.now(UTC))
    calls.wait()


def test_jobs_are_equal_by_id(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    other = scheduler.add_job(add, "interval", [1], hours=1)
    assert job == scheduler.get_job("sum")
    assert job != other


def test_a_job_shows_itself(scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], id="sum", name="a sum", hours=1, next_run_time=FAR)
    assert repr(job) == "<Job (id=sum name=a sum)>"
    assert str(job) == "a sum (trigger: interval[1:00:00], next run at: 2100-01-02 03:04:05 UTC)"
    job.pause()
    assert str(job) == "a sum (trigger: interval[1:00:00], paused)"


def test_a_jobs_state_is_plain_and_makes_the_job_again(package: Package, scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], {"b": 4}, "sum", "a sum", 9, False, 2, FAR, hours=1)
    state = job.__getstate__()
    assert (state["version"], state["id"], state["func"]) == (1, "sum", "tests.schedulers.compat.functions:add")
    assert (tuple(state["args"]), dict(state["kwargs"]), state["name"]) == ((1,), {"b": 4}, "a sum")
    assert (state["misfire_grace_time"], state["coalesce"], state["max_instances"]) == (9, False, 2)
    assert (state["executor"], state["next_run_time"]) == ("default", FAR)
    assert state["trigger"].interval == timedelta(hours=1)
    kind = package.get("job:Job")
    twin = kind.__new__(kind)
    twin.__setstate__(state)
    assert (twin.id, twin.name, twin.func, tuple(twin.args), dict(twin.kwargs)) == ("sum", "a sum", add, (1,), {"b": 4})
    assert (twin.misfire_grace_time, twin.coalesce, twin.max_instances, twin.next_run_time) == (9, False, 2, FAR)
    assert twin.executor == "default"


def test_a_state_of_a_later_version_is_refused(package: Package, scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], hours=1)
    state = {**job.__getstate__(), "version": 2}
    kind = package.get("job:Job")
    with pytest.raises(ValueError, match="2"):
        kind.__new__(kind).__setstate__(state)


def test_a_lambda_has_no_state(package: Package, scheduler: Any) -> None:
    job = scheduler.add_job(lambda: 1, "interval", hours=1)
    with pytest.raises(ValueError, match="serialized"):
        job.__getstate__()


def test_a_bound_methods_state_carries_its_object(package: Package, scheduler: Any) -> None:
    from tests.schedulers.compat.functions import Counter

    counter = Counter()
    job = scheduler.add_job(counter.up, "interval", [5], hours=1)
    state = job.__getstate__()
    assert (state["func"], tuple(state["args"])) == ("tests.schedulers.compat.functions:Counter.up", (counter, 5))


def test_func_ref_names_the_function(scheduler: Any) -> None:
    assert scheduler.add_job(add, "interval", [1], hours=1).func_ref == "tests.schedulers.compat.functions:add"
    assert scheduler.add_job(lambda: 1, "interval", hours=1).func_ref is None


def test_the_run_times_of_a_job_are_those_due(scheduler: Any) -> None:
    start = soon(100)
    job = scheduler.add_job(add, "interval", [1], minutes=1, start_date=start)
    assert job._get_run_times(start + timedelta(seconds=150)) == [start + timedelta(minutes=n) for n in range(3)]
    assert job._get_run_times(start - timedelta(seconds=1)) == []


def test_a_job_has_no_dictionary(package: Package, scheduler: Any) -> None:
    job = scheduler.add_job(add, "interval", [1], hours=1)
    with pytest.raises(AttributeError):
        job.colour = "red"


def test_a_job_found_in_a_lasting_store_is_bound_to_its_scheduler(package: Package, tmp_path: Path) -> None:
    store = {"type": "sqlalchemy", "url": f"sqlite:///{tmp_path}/jobs.db"}
    scheduler = package.started(jobstores={"default": store})
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    found = scheduler.get_job("sum")
    assert not found.pending
    found.pause()
    assert scheduler.get_job("sum").next_run_time is None
    scheduler.shutdown()
