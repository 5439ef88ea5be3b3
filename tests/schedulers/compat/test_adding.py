"""Adding jobs: every argument, pending or stored, and finding them again."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import pytz

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import Calls, Heard, Package, soon

FAR = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_add_job_takes_every_argument_by_name(package: Package) -> None:
    scheduler = package.started()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_executor("threadpool", "spare", max_workers=1)
    job = scheduler.add_job(
        func=add,
        trigger="interval",
        args=[1],
        kwargs={"b": 5},
        id="sum",
        name="a sum",
        misfire_grace_time=7,
        coalesce=False,
        max_instances=3,
        next_run_time=FAR,
        jobstore="other",
        executor="spare",
        replace_existing=True,
        minutes=5,
    )
    assert (job.id, job.name, job.func, tuple(job.args), dict(job.kwargs)) == ("sum", "a sum", add, (1,), {"b": 5})
    assert (job.misfire_grace_time, job.coalesce, job.max_instances, job.executor) == (7, False, 3, "spare")
    assert job.next_run_time == FAR
    assert job.trigger.interval == timedelta(minutes=5)
    assert not job.pending
    assert [found.id for found in scheduler.get_jobs("other")] == ["sum"]
    assert scheduler.get_jobs("default") == []


def test_add_job_takes_its_arguments_in_the_same_order(package: Package) -> None:
    scheduler = package.started()
    scheduler.add_jobstore("memory", "other")
    trigger = package.get("triggers.interval:IntervalTrigger")(hours=1, timezone=UTC)
    job = scheduler.add_job(add, trigger, [1], {"b": 3}, "sum", "a sum", 9, False, 2, FAR, "other", "default", True)
    assert job.trigger is trigger
    assert (tuple(job.args), dict(job.kwargs), job.id, job.name) == ((1,), {"b": 3}, "sum", "a sum")
    assert (job.misfire_grace_time, job.coalesce, job.max_instances, job.next_run_time) == (9, False, 2, FAR)
    assert scheduler.get_job("sum", "other").executor == "default"


def test_a_job_without_a_trigger_runs_once_and_now(package: Package) -> None:
    scheduler = package.started()
    heard, calls = Heard(scheduler), Calls()
    job = scheduler.add_job(calls, args=["x"], kwargs={"y": 1})
    heard.wait(package.events.EVENT_JOB_EXECUTED)
    heard.wait(package.events.EVENT_JOB_REMOVED)
    assert calls.made == [(("x",), {"y": 1})]
    assert scheduler.get_job(job.id) is None


def test_a_job_without_an_id_gets_a_random_one(package: Package) -> None:
    scheduler = package.scheduler()
    ids = {scheduler.add_job(add, args=[1]).id for _ in range(20)}
    assert len(ids) == 20
    assert {uuid.UUID(hex=job_id).version for job_id in ids} == {4}


def test_a_job_is_named_after_its_function(package: Package) -> None:
    scheduler = package.scheduler()
    assert scheduler.add_job(add, args=[1]).name == "add"
    assert scheduler.add_job("tests.schedulers.compat.functions:add", args=[1]).name == "add"


def test_scheduled_job_gives_the_function_back_and_replaces_its_job(package: Package) -> None:
    scheduler = package.started()

    def first() -> None: ...

    def second() -> None: ...

    assert scheduler.scheduled_job("interval", id="tick", hours=1)(first) is first
    assert scheduler.scheduled_job("interval", id="tick", name="second", hours=2)(second) is second
    (job,) = scheduler.get_jobs()
    assert (job.name, job.trigger.interval) == ("second", timedelta(hours=2))


def test_scheduled_job_takes_its_arguments_in_the_same_order(package: Package) -> None:
    scheduler = package.started()
    scheduler.scheduled_job("interval", [1], {"b": 3}, "sum", "a sum", 9, False, 2, FAR, "default", "default", days=1)(
        add
    )
    (job,) = scheduler.get_jobs()
    assert (tuple(job.args), dict(job.kwargs), job.id, job.name) == ((1,), {"b": 3}, "sum", "a sum")
    assert (job.misfire_grace_time, job.coalesce, job.max_instances, job.next_run_time) == (9, False, 2, FAR)


def test_jobs_added_before_the_start_are_pending_and_then_stored(package: Package) -> None:
    scheduler = package.scheduler()
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    assert job.pending
    assert [found.id for found in scheduler.get_jobs()] == ["sum"]
    assert scheduler.get_job("sum") is not None
    scheduler.start(paused=True)
    assert not job.pending
    assert scheduler.get_job("sum").next_run_time == job.next_run_time


def test_pending_jobs_can_be_listed_alone(ours: Package) -> None:
    scheduler = ours.scheduler()
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    assert scheduler.get_jobs(pending=True) == [job]
    scheduler.start(paused=True)
    assert scheduler.get_jobs(pending=True) == []


def test_pending_jobs_can_be_changed_and_removed(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.add_job(add, "interval", [1], id="a", hours=1)
    scheduler.add_job(add, "interval", [1], id="b", hours=1)
    scheduler.modify_job("a", name="renamed", next_run_time=FAR)
    scheduler.remove_job("b")
    scheduler.start(paused=True)
    (job,) = scheduler.get_jobs()
    assert (job.id, job.name, job.next_run_time) == ("a", "renamed", FAR)


def test_a_pending_job_that_was_paused_is_stored_paused(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.add_job(add, "interval", [1], id="a", hours=1)
    scheduler.pause_job("a")
    scheduler.start(paused=True)
    assert scheduler.get_job("a").next_run_time is None


def test_a_pending_job_that_was_paused_and_resumed_has_a_time(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.add_job(add, "interval", [1], id="a", hours=1)
    scheduler.pause_job("a")
    scheduler.resume_job("a")
    scheduler.start(paused=True)
    assert scheduler.get_job("a").next_run_time is not None


def test_remove_all_jobs_empties_pending_ones_too(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.add_job(add, "interval", [1], hours=1)
    scheduler.remove_all_jobs()
    assert scheduler.get_jobs() == []


def test_jobs_are_listed_by_next_run_time_with_paused_ones_last(package: Package) -> None:
    scheduler = package.started(job_defaults={"max_instances": 1})
    for name, when in (("c", soon(300)), ("paused", None), ("a", soon(100)), ("b", soon(200))):
        scheduler.add_job(add, "interval", [1], id=name, hours=1, next_run_time=when)
    assert [job.id for job in scheduler.get_jobs()] == ["a", "b", "c", "paused"]


def test_get_job_finds_a_job_in_any_store_or_in_one(package: Package) -> None:
    scheduler = package.started()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(add, "interval", [1], id="sum", jobstore="other", hours=1)
    assert scheduler.get_job("sum").id == "sum"
    assert scheduler.get_job("sum", "other").id == "sum"
    assert scheduler.get_job("sum", "default") is None
    assert scheduler.get_job("nothing") is None


def test_replace_existing_replaces_the_job_of_that_id(package: Package) -> None:
    scheduler = package.started()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    scheduler.add_job(add, "interval", [2], id="sum", hours=2, replace_existing=True)
    (job,) = scheduler.get_jobs()
    assert (tuple(job.args), job.trigger.interval) == ((2,), timedelta(hours=2))


def test_pending_jobs_of_one_id_with_replace_existing_leave_the_last(package: Package) -> None:
    scheduler = package.scheduler()
    for number in (1, 2):
        scheduler.add_job(add, "interval", [number], id="sum", hours=1, replace_existing=True)
    scheduler.start(paused=True)
    assert [tuple(job.args) for job in scheduler.get_jobs()] == [(2,)]


def test_print_jobs_says_what_is_pending(package: Package) -> None:
    scheduler, out = package.scheduler(), io.StringIO()
    scheduler.print_jobs(out=out)
    scheduler.add_job(add, "interval", [1], name="sum", hours=1)
    scheduler.print_jobs(out=out)
    assert out.getvalue() == (
        "Pending jobs:\n    No pending jobs\nPending jobs:\n    sum (trigger: interval[1:00:00], pending)\n"
    )


def test_print_jobs_says_what_each_store_holds(package: Package) -> None:
    scheduler, out = package.started(), io.StringIO()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(add, "interval", [1], name="sum", hours=1, next_run_time=FAR)
    scheduler.add_job(add, "cron", [1], name="still", hour=5, next_run_time=None)
    scheduler.print_jobs(out=out)
    assert out.getvalue() == (
        "Jobstore default:\n"
        "    sum (trigger: interval[1:00:00], next run at: 2100-01-02 03:04:05 UTC)\n"
        "    still (trigger: cron[hour='5'], paused)\n"
        "Jobstore other:\n"
        "    No scheduled jobs\n"
    )


def test_print_jobs_says_that_a_pending_job_was_added_paused(package: Package) -> None:
    scheduler, out = package.scheduler(), io.StringIO()
    scheduler.add_job(add, "interval", [1], name="sum", hours=1, next_run_time=None)
    scheduler.print_jobs(out=out)
    assert out.getvalue() == "Pending jobs:\n    sum (trigger: interval[1:00:00], paused)\n"


def test_print_jobs_writes_to_standard_output(package: Package, capsys: pytest.CaptureFixture[str]) -> None:
    package.scheduler().print_jobs()
    assert capsys.readouterr().out == "Pending jobs:\n    No pending jobs\n"


def test_a_naive_time_is_in_the_schedulers_zone(package: Package) -> None:
    scheduler = package.started(timezone="Asia/Tokyo")
    job = scheduler.add_job(add, "date", [1], run_date=datetime(2100, 1, 2, 9, 0), id="a")
    other = scheduler.add_job(add, "interval", [1], hours=1, next_run_time=datetime(2100, 1, 2, 9, 0))
    text = scheduler.add_job(add, "date", [1], run_date="2100-01-02 09:00:00")
    expected = datetime(2100, 1, 2, 0, 0, tzinfo=UTC)
    assert [job.next_run_time, other.next_run_time, text.next_run_time] == [expected] * 3
    assert job.next_run_time.utcoffset() == timedelta(hours=9)


def test_modify_reads_a_naive_time_in_the_schedulers_zone(package: Package) -> None:
    scheduler = package.started(timezone="Asia/Tokyo")
    job = scheduler.add_job(add, "interval", [1], hours=1)
    job.modify(next_run_time=datetime(2100, 1, 2, 9, 0))
    assert job.next_run_time == datetime(2100, 1, 2, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berlin", ZoneInfo("Europe/Berlin"), pytz.timezone("Europe/Berlin")],
    ids=["text", "zoneinfo", "pytz"],
)
def test_a_time_zone_is_text_zoneinfo_or_pytz(package: Package, zone: object) -> None:
    scheduler = package.started(timezone=zone)
    job = scheduler.add_job(add, "cron", [1], year=2099, month=7, day=1, hour=12)
    assert job.next_run_time == datetime(2099, 7, 1, 10, 0, tzinfo=UTC)
    assert job.next_run_time.utcoffset() == timedelta(hours=2)


def test_a_trigger_may_have_a_zone_of_its_own(package: Package) -> None:
    scheduler = package.started(timezone="UTC")
    job = scheduler.add_job(add, "cron", [1], year=2099, month=7, day=1, hour=12, timezone="Asia/Tokyo")
    assert job.next_run_time == datetime(2099, 7, 1, 3, 0, tzinfo=UTC)
