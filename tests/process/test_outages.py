"""A store that goes away and comes back, seen through a scheduler with another store beside it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import events
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.schedulers.background import BackgroundScheduler
from tests.servers import MariaDB, PostgreSQL, Redis, Server, Valkey

LIMIT = 90.0


def nothing() -> None: ...


class Heard:
    """Counts the runs that were executed, by job, and lets a test wait for more of them."""

    def __init__(self, scheduler: BackgroundScheduler) -> None:
        self._more = threading.Condition()
        self._counts: Counter[str] = Counter()
        self.codes: list[int] = []
        scheduler.add_listener(self._executed, events.EVENT_JOB_EXECUTED)
        scheduler.add_listener(self._outage, events.EVENT_STORE_DOWN | events.EVENT_STORE_UP)

    def _executed(self, event: Any) -> None:
        with self._more:
            self._counts[event.job_id] += 1
            self._more.notify_all()

    def _outage(self, event: Any) -> None:
        with self._more:
            self.codes.append(event.code)
            self._more.notify_all()

    def wait_for(self, what: Callable[[Heard], bool]) -> None:
        with self._more:
            assert self._more.wait_for(lambda: what(self), LIMIT)

    def wait_for_more(self, job_id: str, number: int = 3) -> None:
        with self._more:
            wanted = self._counts[job_id] + number
        self.wait_for(lambda heard: heard._counts[job_id] >= wanted)


def redis_store(server: Server) -> JobStore:
    return RedisJobStore(url=server.url)


def sql_store(server: Server) -> JobStore:
    return SQLAlchemyJobStore(server.url)


@pytest.mark.parametrize(
    ("kind", "make"),
    [(Redis, redis_store), (Valkey, redis_store), (PostgreSQL, sql_store), (MariaDB, sql_store)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_after_an_outage_a_store_goes_on_and_the_others_never_stopped(
    kind: type[Server],
    make: Callable[[Server], JobStore],
    start_server: Callable[[type[Server]], Server],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = start_server(kind)
    store = make(server)
    scheduler = BackgroundScheduler(timezone="UTC", jobstores={"lasting": store}, jobstore_retry_interval=1)
    heard = Heard(scheduler)
    scheduler.add_job(nothing, "interval", seconds=0.1, id="here")
    scheduler.add_job(nothing, "interval", seconds=0.1, id="there", jobstore="lasting")
    with caplog.at_level(logging.WARNING, "mainspring"), scheduler:
        heard.wait_for_more("there")
        server.kill()
        heard.wait_for(lambda heard: events.EVENT_STORE_DOWN in heard.codes)
        heard.wait_for_more("here", 10)
        server.restart()
        heard.wait_for(lambda heard: heard.codes[-1:] == [events.EVENT_STORE_UP])
        heard.wait_for_more("there")
    assert heard.codes == [events.EVENT_STORE_DOWN, events.EVENT_STORE_UP]
    told = [record.message for record in caplog.records if "job store 'lasting'" in record.message]
    assert len(told) == 2
    assert "failed" in told[0]
    assert "answers again" in told[1]

    again = make(server)
    runs = again.find_runs(RunQuery(job_id="there"), limit=10_000)
    again.shutdown()
    times = [run.fire_time for run in runs]
    assert len(times) == len(set(times))  # nothing fired twice
