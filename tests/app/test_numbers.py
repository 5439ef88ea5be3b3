"""Numbers and durations of settings: what nothing can be done with is refused where it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.cluster.settings import Settings
from mainspring.core.policy import Backoff
from mainspring.errors import ConfigurationError
from mainspring.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.tasks import Broker
from tests.app.kit import LIMIT, MakeApp

BAD = [-1, math.nan, math.inf, "15 s", None, True, [1]]

SETTINGS: dict[str, Callable[[Any], object]] = {
    "lease": lambda value: Mainspring("memory://", lease=value),
    "lease of a scheduler": lambda value: BackgroundScheduler(lease=value),
    "jobstore_retry_interval": lambda value: BackgroundScheduler(jobstore_retry_interval=value),
    "threads": lambda value: Settings(app="x", threads=value),
    "processes": lambda value: Settings(app="x", processes=value),
    "coroutines": lambda value: Settings(app="x", coroutines=value),
    "max_runs": lambda value: Settings(app="x", max_runs=value if value is not None else 0),
    "max_rss": lambda value: Settings(app="x", max_rss=value if value is not None else 0),
    "grace": lambda value: Settings(app="x", grace=value),
    "timeout_grace": lambda value: Settings(app="x", timeout_grace=value),
    "limit": lambda value: Settings(app="x", queues={"mail": value if value is not None else 0}),
    "keep_runs": lambda value: MemoryJobStore(keep_runs=value),
    "keep_for": lambda value: MemoryJobStore(keep_for=value),
    "keep_runs of SQL": lambda value: SQLAlchemyJobStore("sqlite://", keep_runs=value),
    "keep_runs of Redis": lambda value: RedisJobStore(keep_runs=value),
    "shards": lambda value: RedisJobStore(shards=value),
    "replicas": lambda value: RedisJobStore(replicas=value),
    "keep_runs of an app's store": lambda value: Mainspring("memory://", store_options={"keep_runs": value}).store,
    "max_workers": lambda value: ThreadPoolExecutor(value),
    "max_workers of processes": lambda value: ProcessPoolExecutor(value),
    "timeout_grace of threads": lambda value: ThreadPoolExecutor(timeout_grace=value),
    "retry": lambda value: Broker(app=Mainspring("memory://"), retry=value),
    "first": lambda value: Backoff(first=value),
    "longest": lambda value: Backoff(longest=value),
    "factor": lambda value: Backoff(factor=value),
    "jitter": lambda value: Backoff(jitter=value),
}


@pytest.mark.parametrize("name", ["keep_runs", "keep_runs of SQL", "keep_runs of Redis", "shards", "replicas"])
def test_a_count_that_no_store_could_keep_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name.partition(' ')[0]} must be a whole number from .* to "):
        SETTINGS[name](10**30)


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_number_that_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    if value == math.inf and name in ("first", "longest", "factor"):
        pytest.skip("what is too long is bounded when it is used")
    with pytest.raises(ConfigurationError, match=rf"{name.partition(' ')[0]}.* must be a .*, not "):
        SETTINGS[name](value)


@pytest.mark.parametrize("value", [0, 0.5, "15", 86_401], ids=repr)
def test_an_app_has_a_lease_that_its_nodes_can_renew_in_time(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"lease must be a number of seconds .* from 1 to 86,400"):
        Mainspring("memory://", lease=value)  # type: ignore[arg-type]


def test_a_lease_may_be_a_timedelta() -> None:
    assert Mainspring("memory://", lease=timedelta(seconds=20)).lease == 20  # type: ignore[arg-type]


def test_a_scheduler_reads_numbers_from_the_text_of_an_ini_file() -> None:
    BackgroundScheduler({"mainspring.lease": "20", "mainspring.jobstore_retry_interval": "2.5"})
    assert ThreadPoolExecutor("5").slots == 5  # type: ignore[arg-type]


def test_the_limit_of_a_queue_is_checked_when_the_app_starts(make_app: MakeApp) -> None:
    app = make_app()
    with pytest.raises(ConfigurationError, match="the limit of the queue 'mail' must be a whole number"):
        app.start(work=True, queues={"mail": 0})
    assert not app.running


@pytest.mark.parametrize("value", ["5", math.nan, True], ids=repr)
def test_a_time_out_of_waiting_is_checked_before_the_wait(make_app: MakeApp, value: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be None, a number of seconds or a timedelta"):
        make_app().enqueue(print).result(timeout=value)


def test_a_time_out_of_waiting_may_be_a_timedelta(make_app: MakeApp) -> None:
    app = make_app()
    app.start(work=True)
    assert app.enqueue(len, "four").result(timeout=timedelta(seconds=LIMIT)) == 4  # type: ignore[arg-type]
