"""Small things that programs written for APScheduler reach for."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import apscheduler
import pytest

import mainspring
from mainspring import events
from mainspring.codec import EncodeError
from mainspring.errors import ConfigurationError
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from mainspring.jobstores.redis import RedisJobStore
from mainspring.schedulers.background import BackgroundScheduler
from tests.schedulers.compat.kit import Heard
from tests.servers import Redis

KEY = "a key of 32 bytes for these tests"
Make = Callable[..., BackgroundScheduler]


class Colour(Enum):
    RED = 1


@dataclass
class Order:
    number: int

    def ship(self, how: str) -> str:
        return f"{self.number} by {how}"


class Mailer:
    def __init__(self, host: str) -> None:
        self.host = host

    def send(self, to: str) -> str:
        return f"{to} at {self.host}"


def echo(value: Any) -> str:
    return repr(value)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make schedulers, each on a SQLite file of its own."""
    made: list[BackgroundScheduler] = []

    def start(**options: Any) -> BackgroundScheduler:
        url = f"sqlite:///{tmp_path}/jobs{len(made)}.db"
        scheduler = BackgroundScheduler(jobstores={"default": url}, timezone="UTC", **options)
        scheduler.start()
        made.append(scheduler)
        return scheduler

    yield start
    for scheduler in made:
        scheduler.shutdown()


def result(scheduler: BackgroundScheduler, func: Any, *args: Any) -> Any:
    heard = Heard(scheduler, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    job = scheduler.add_job(func, args=args)
    event = heard.wait(EVENT_JOB_EXECUTED | EVENT_JOB_ERROR, job_id=job.id)
    if event.exception is not None:
        raise event.exception
    return event.retval


def test_the_version_is_where_apscheduler_has_it() -> None:
    assert mainspring.version == mainspring.__version__
    assert mainspring.version_info == tuple(map(int, mainspring.version.split(".")))
    assert type(mainspring.version_info) is type(apscheduler.version_info)


def test_a_job_can_be_referred_to_weakly() -> None:
    job = BackgroundScheduler(timezone="UTC").add_job(echo, args=[1])
    assert weakref.ref(job)() is job


@pytest.mark.parametrize(
    ("func", "args", "returned"),
    [
        (echo, (Colour.RED,), "<Colour.RED: 1>"),
        (echo, (Order(7),), "Order(number=7)"),
        (Order(7).ship, ("sea",), "7 by sea"),
    ],
)
def test_registered_types_and_their_methods_are_kept_by_a_lasting_store(
    make: Make, func: Any, args: tuple[Any, ...], returned: str
) -> None:
    assert result(make(types=[Colour, Order]), func, *args) == returned


def test_with_a_key_enums_and_dataclasses_need_no_registration_and_pickle_can_be_allowed(make: Make) -> None:
    assert result(make(secret_key=KEY), echo, Colour.RED) == "<Colour.RED: 1>"
    assert result(make(secret_key=KEY, allow_pickle=True), Mailer("here").send, "ann") == "ann at here"


@pytest.mark.parametrize(
    ("func", "args", "text"),
    [
        (echo, (Colour.RED,), r"BackgroundScheduler\(types=\[Colour\]\)"),
        (echo, (Order(7),), r"BackgroundScheduler\(types=\[Order\]\)"),
        (Mailer("here").send, ("ann",), r"allow_pickle=True and secret_key=\.\.\. in BackgroundScheduler\(\.\.\.\)"),
    ],
)
def test_what_cannot_be_stored_says_which_argument_of_the_scheduler_permits_it(
    make: Make, func: Any, args: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(EncodeError, match=text):
        make().add_job(func, args=args)


def test_a_scheduler_as_an_argument_is_refused_with_what_to_do_instead(make: Make) -> None:
    scheduler = make()
    with pytest.raises(EncodeError, match=r"lives in this process only.* keep it in a variable of a module"):
        scheduler.add_job(echo, args=[scheduler])


def test_pickle_without_a_key_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="allow_pickle=True needs a key"):
        make(allow_pickle=True)


@pytest.mark.parametrize(
    "options", [{"db": None}, {"db": "0"}, {"jobs_key": ""}, {"run_times_key": ""}, {"jobs_key": 1}]
)
def test_a_redis_store_refuses_a_name_or_a_database_that_is_none(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises((ConfigurationError, TypeError), match=name):
        RedisJobStore(**options)


def test_a_redis_store_has_the_attributes_of_apschedulers(redis_server: Redis) -> None:
    store = RedisJobStore(url=redis_server.url, jobs_key="their.jobs", run_times_key="their.times")
    assert (store.jobs_key, store.run_times_key) == ("their.jobs", "their.times")
    assert store.redis.ping() is True
    own = RedisJobStore(url=redis_server.url, name="at-home")
    assert (own.jobs_key, own.run_times_key) == ("{at-home:0}:jobs", "{at-home:0}:run_times")
    store.shutdown()
    own.shutdown()


def test_adding_removing_missing_and_waking_are_logged_at_the_levels_they_have_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="mainspring.scheduler")
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start()
    scheduler.add_job(echo, "interval", hours=1, id="hourly", name="report", args=[1])
    scheduler.remove_job("hourly")
    heard = Heard(scheduler, events.EVENT_JOB_MISSED)
    late = datetime(2026, 1, 1, tzinfo=UTC)
    scheduler.add_job(echo, "date", run_date=late, id="late", name="old", args=[1], misfire_grace_time=1)
    heard.wait(events.EVENT_JOB_MISSED, job_id="late")
    scheduler.shutdown()
    said = {(record.levelname, record.getMessage()) for record in caplog.records}
    added = "added job \"report\" (hourly) to the job store 'default': every hour; next at "
    assert any(level == "INFO" and text.startswith(added) for level, text in said)
    assert ("INFO", "removed job hourly from the job store 'default'") in said
    assert any(level == "WARNING" and text.startswith('job "old" (late) missed its run time') for level, text in said)
    assert any(level == "DEBUG" and text.startswith("next wake-up at ") for level, text in said)


def test_a_skipped_fire_is_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    """One instance still waits for its executor when the job comes due again."""
    gate = threading.Event()
    scheduler = BackgroundScheduler(timezone="UTC")
    heard = Heard(scheduler, events.EVENT_JOB_MAX_INSTANCES)
    scheduler.start()
    scheduler.add_job(gate.wait, "interval", seconds=0.05, id="slow", name="slow")
    heard.wait(events.EVENT_JOB_MAX_INSTANCES, job_id="slow")
    gate.set()
    scheduler.shutdown()
    assert any('job "slow" (slow) was skipped at' in record.getMessage() for record in caplog.records)
