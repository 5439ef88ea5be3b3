"""Configuration: keywords, nested dicts, flat prefixed keys, text as an INI file has it."""

from __future__ import annotations

import configparser
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import Calls, Package

INI = """
[scheduler]
apscheduler.jobstores.default.type = memory
apscheduler.jobstores.other.class = apscheduler.jobstores.memory:MemoryJobStore
apscheduler.executors.default.class = apscheduler.executors.pool:ThreadPoolExecutor
apscheduler.executors.default.max_workers = 3
apscheduler.executors.single.type = threadpool
apscheduler.executors.single.max_workers = 1
apscheduler.job_defaults.coalesce = false
apscheduler.job_defaults.max_instances = 3
apscheduler.job_defaults.misfire_grace_time = 60
apscheduler.timezone = Europe/Berlin
apscheduler.jobstore_retry_interval = 3
"""


def sample(scheduler: Any, **options: Any) -> Any:
    return scheduler.add_job(add, "interval", [1], hours=1, **options)


def test_an_ini_section_configures_everything(package: Package) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(INI)
    scheduler = package.scheduler(dict(parser["scheduler"]))
    scheduler.start()
    job = sample(scheduler, jobstore="other", executor="single")
    assert (job.coalesce, job.max_instances, job.misfire_grace_time) == (False, 3, 60)
    assert str(scheduler.timezone) == "Europe/Berlin"
    assert [found.id for found in scheduler.get_jobs("other")] == [job.id]
    calls = Calls()
    scheduler.add_job(calls, executor="single", misfire_grace_time=None)
    calls.wait()


def test_keywords_configure_with_nested_dicts(package: Package) -> None:
    scheduler = package.started(
        jobstores={"default": {"type": "memory"}, "other": package.get("jobstores.memory:MemoryJobStore")()},
        executors={
            "default": {"type": "threadpool", "max_workers": 2},
            "made": package.get("executors.pool:ThreadPoolExecutor")(1),
        },
        job_defaults={"coalesce": False, "max_instances": 4, "misfire_grace_time": None},
        timezone=ZoneInfo("Asia/Tokyo"),
        jobstore_retry_interval=1,
        logger=logging.getLogger("mine"),
    )
    job = sample(scheduler, jobstore="other", executor="made")
    assert (job.coalesce, job.max_instances, job.misfire_grace_time) == (False, 4, None)
    assert job.next_run_time.utcoffset() == timedelta(hours=9)


def test_flat_keys_may_hold_dicts(package: Package) -> None:
    scheduler = package.scheduler(
        {
            "apscheduler.jobstores.other": {"type": "memory"},
            "apscheduler.executors.default": {"class": "apscheduler.executors.pool:ThreadPoolExecutor"},
            "apscheduler.job_defaults.max_instances": "5",
            "apscheduler.timezone": "UTC",
        }
    )
    scheduler.start()
    assert sample(scheduler, jobstore="other").max_instances == 5


def test_a_prefix_of_ones_own(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.configure({"mine.timezone": "Asia/Tokyo", "apscheduler.timezone": "UTC"}, prefix="mine.")
    assert str(scheduler.timezone) == "Asia/Tokyo"


def test_an_empty_prefix_takes_all_keys(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.configure({"timezone": "Asia/Tokyo", "job_defaults.max_instances": "2"}, prefix="")
    scheduler.start()
    assert str(scheduler.timezone) == "Asia/Tokyo"
    assert sample(scheduler).max_instances == 2


def test_keywords_win_over_flat_keys(package: Package) -> None:
    scheduler = package.scheduler({"apscheduler.timezone": "UTC"}, timezone="Asia/Tokyo")
    assert str(scheduler.timezone) == "Asia/Tokyo"


def test_configure_may_be_called_after_construction(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.configure(timezone="Asia/Tokyo", job_defaults={"max_instances": 2})
    scheduler.start()
    assert str(scheduler.timezone) == "Asia/Tokyo"
    assert sample(scheduler).max_instances == 2


def test_keys_of_others_are_left_alone(package: Package) -> None:
    scheduler = package.scheduler({"unrelated.timezone": "Asia/Tokyo", "apscheduler.timezone": "UTC"})
    assert str(scheduler.timezone) == "UTC"


def test_several_stores_and_executors_by_alias(package: Package) -> None:
    scheduler = package.scheduler()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_executor("threadpool", "spare", max_workers=1)
    calls = Calls()
    scheduler.add_job(calls, args=[1], misfire_grace_time=None)
    scheduler.add_job(calls, args=[2], jobstore="other", executor="spare", misfire_grace_time=None)
    scheduler.start()
    calls.wait(2)
    assert sorted(args for args, _ in calls.made) == [(1,), (2,)]


def test_pool_options_are_passed_on(package: Package) -> None:
    calls = Calls()
    pool = package.get("executors.pool:ThreadPoolExecutor")(2, {"thread_name_prefix": "kitchen"})
    scheduler = package.started(executors={"default": pool})
    scheduler.add_job(lambda: calls(threading.current_thread().name), misfire_grace_time=None)
    calls.wait()
    ((name,), _), *_ = calls.made
    assert name.startswith("kitchen")


def test_keys_may_say_mainspring(ours: Package) -> None:
    scheduler = ours.scheduler(
        {
            "mainspring.jobstores.other.type": "memory",
            "mainspring.executors.default.class": "mainspring.executors.pool:ThreadPoolExecutor",
            "mainspring.timezone": "Asia/Tokyo",
            "mainspring.job_defaults.coalesce": "off",
            "mainspring.job_defaults.misfire_grace_time": "none",
        }
    )
    scheduler.start()
    job = sample(scheduler, jobstore="other")
    assert (job.coalesce, job.misfire_grace_time, str(scheduler.timezone)) == (False, None, "Asia/Tokyo")


def test_job_defaults_may_hold_a_policy(ours: Package) -> None:
    scheduler = ours.scheduler(job_defaults={"retries": "2", "timeout": 5, "executor": "spare"})
    job = sample(scheduler)
    assert (job.policy.retries, job.policy.timeout, job.executor) == (2, 5, "spare")
    assert sample(scheduler, retries=0).policy.retries == 0


def test_the_defaults_run_late_rather_than_not_at_all(ours: Package) -> None:
    job = sample(ours.scheduler())
    assert (job.misfire_grace_time, job.coalesce, job.max_instances) == (None, True, 1)
    calls = Calls()
    scheduler = ours.started()
    scheduler.add_job(calls, "date", run_date=datetime.now(UTC) - timedelta(days=3))
    calls.wait()


@pytest.mark.parametrize("name", ["date", "interval", "cron", "calendarinterval"])
def test_a_trigger_by_its_name(package: Package, name: str) -> None:
    options: dict[str, Any] = {"interval": {"hours": 1}, "calendarinterval": {"days": 1}}.get(name, {})
    job = package.scheduler().add_job(add, name, [1], **options)
    assert type(job.trigger) is package.get(f"triggers.{name}:{type(job.trigger).__name__}")


@pytest.mark.parametrize(
    "path",
    [
        "schedulers.blocking:BlockingScheduler",
        "schedulers.background:BackgroundScheduler",
        "schedulers.asyncio:AsyncIOScheduler",
        "schedulers.gevent:GeventScheduler",
        "schedulers.tornado:TornadoScheduler",
        "schedulers.qt:QtScheduler",
        "triggers.combining:AndTrigger",
        "triggers.combining:OrTrigger",
        "executors.pool:ProcessPoolExecutor",
        "executors.asyncio:AsyncIOExecutor",
        "executors.gevent:GeventExecutor",
        "executors.tornado:TornadoExecutor",
        "executors.twisted:TwistedExecutor",
        "executors.base:MaxInstancesReachedError",
        "jobstores.base:TransientJobError",
        "job:Job",
    ],
)
def test_the_classes_are_where_they_were(package: Package, path: str) -> None:
    assert package.get(path).__name__ == path.partition(":")[2]


def test_every_public_helper_of_util_is_there(ours: Package) -> None:
    theirs = Package("apscheduler").get("util")
    missing = [name for name in theirs.__all__ if not hasattr(ours.get("util"), name)]
    assert missing == []
