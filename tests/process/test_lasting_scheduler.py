"""A scheduler on a store that lasts: the way a first program with a file would use it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from mainspring import events
from mainspring.codec import EncodeError
from mainspring.core.run import Status
from mainspring.errors import ConfigurationError, TransientJobError
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.opening import open_store
from mainspring.schedulers.background import BackgroundScheduler

LIMIT = 90.0


def double(number: int) -> int:
    return number * 2


def unstorable() -> object:
    return object()


def run_once(url: str, func: Any, *args: Any) -> Any:
    """Run a job once on a store, and return the event of its end."""
    ended: list[Any] = []
    done = threading.Event()
    scheduler = BackgroundScheduler(jobstores={"default": url}, timezone="UTC")

    def end(event: Any) -> None:
        ended.append(event)
        done.set()

    scheduler.add_listener(end, events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR)
    with scheduler:
        scheduler.add_job(func, args=args)
        assert done.wait(LIMIT)
    return ended[0]


def test_a_job_outlives_the_scheduler_that_added_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with BackgroundScheduler(jobstores={"default": url}, timezone="UTC") as first:
        job = first.add_job(double, "cron", [4], id="nightly", hour=3, retries=2, timeout=60)
        at = job.next_run_time
    with BackgroundScheduler(jobstores={"default": {"type": "sqlalchemy", "url": url}}, timezone="UTC") as second:
        found = second.get_job("nightly")
        assert found is not None
        assert (found.func, found.args, found.next_run_time) == (double, (4,), at)
        assert (found.policy.retries, found.policy.timeout, str(found.trigger)) == (2, 60, "cron[hour='3']")
        found.pause()
    with BackgroundScheduler(jobstores={"default": url}, timezone="UTC") as third:
        assert [job.next_run_time for job in third.get_jobs()] == [None]


def test_each_fire_leaves_its_run_in_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert run_once(url, double, 21).retval == 42
    store = open_store(url)
    (run,) = store.find_runs(RunQuery())
    store.shutdown()
    assert (run.status, run.result, run.attempt, run.args) == (Status.SUCCEEDED, 42, 1, (21,))


def test_a_result_that_cannot_be_kept_fails_its_run_and_says_why(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert run_once(url, unstorable).code == events.EVENT_JOB_ERROR
    store = open_store(url)
    (run,) = store.find_runs(RunQuery())
    store.shutdown()
    assert run.status is Status.FAILED
    assert "result" in run.errors[-1].message
    assert "object" in run.errors[-1].message


def test_a_function_without_a_name_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with BackgroundScheduler(jobstores={"default": f"sqlite:///{tmp_path}/jobs.db"}, timezone="UTC") as scheduler:
        with pytest.raises(TransientJobError, match=r"a lambda has no name to import.*use a function of a module"):
            scheduler.add_job(lambda: None, "interval", seconds=5)
        with pytest.raises(EncodeError, match=r"^number in the call of tests.*:double is an object"):
            scheduler.add_job(double, "interval", [object()], seconds=5)
        assert scheduler.get_jobs() == []


def test_two_schedulers_on_one_file_fire_each_time_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    enough = threading.Event()
    times: list[Any] = []

    def note(event: Any) -> None:
        times.append(event.scheduled_run_time)
        if len(times) >= 20:
            enough.set()

    pair = [BackgroundScheduler(jobstores={"default": url}, timezone="UTC") for _ in range(2)]
    for scheduler in pair:
        scheduler.add_listener(note, events.EVENT_JOB_EXECUTED)
    pair[0].add_job(double, "interval", [1], seconds=0.05, id="both")
    with pair[0], pair[1]:
        assert enough.wait(LIMIT)
    assert len(times) == len(set(times))


def test_a_wrong_url_is_named_without_its_password() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'redis'") as caught:
        BackgroundScheduler(jobstores={"default": "redsi://:secret@localhost"})
    assert "secret" not in str(caught.value)
