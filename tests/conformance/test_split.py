"""The suite again, with jobs in one store and runs in another, fired in three steps; see `parts` for what of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, create_engine, text

from mainspring.core.instants import SECOND
from mainspring.core.run import Status
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance import StoreConformance
from mainspring.testing.conformance.helpers import add_job, due_one, fire
from tests.conformance.parts import JobsPart
from tests.record_stores import DictRecords, TableRecords
from tests.servers import PostgreSQL, Redis

_names = count(1)


class StepConformance:
    """What is particular to firing in steps."""

    def test_a_missed_record_that_gets_longer_keeps_its_id(self, store: JobStore) -> None:
        job = add_job(store, due_in=-100, every=60, misfire_grace_time=1.0)
        assert job.at is not None
        assert fire(store, due_one(store)) == ()
        [first] = store.find_runs(RunQuery(job_id="job"))
        store.shift_clock(300)
        assert fire(store, due_one(store)) == ()
        [record] = store.find_runs(RunQuery(job_id="job"))
        assert (record.id, record.count, record.fire_time) == (first.id, 7, job.at)
        assert (record.status, record.last) == (Status.MISSED, job.at + 6 * 60 * SECOND)


class SplitConformance(StepConformance, StoreConformance):
    """All of it."""


class SplitPart(StepConformance, JobsPart):
    """What concerns the store of the jobs."""


class TestMemoryAndMemory(SplitConformance):
    @pytest.fixture
    def store(self) -> Iterator[JobStore]:
        store = SplitJobStore(DictRecords(), MemoryJobStore())
        store.start(None, "default")
        yield store
        store.shutdown()


class TestTheExampleOfTheDocs(SplitPart):
    @pytest.fixture
    def store(self) -> Iterator[JobStore]:
        page = Path(__file__).parents[2].joinpath("docs", "writing-a-small-store.md").read_text()
        [example] = re.findall(r"```python\n([^`]*class DictRecords[^`]*)```", page)
        names: dict[str, Any] = {}
        exec(example, names)
        store: JobStore = names["store"]
        store.start(None, "default")
        yield store
        store.shutdown()


class TestMemoryAndSQLite(SplitPart):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[JobStore]:
        store = SplitJobStore(DictRecords(), SQLAlchemyJobStore(f"sqlite:///{tmp_path}/runs.db"))
        store.start(None, "default")
        yield store
        store.shutdown()


class TestSQLiteAndRedis(SplitPart):
    @pytest.fixture
    def store(self, tmp_path: Path, redis_server: Redis) -> Iterator[JobStore]:
        engine = create_engine(f"sqlite:///{tmp_path}/jobs.db", connect_args={"timeout": 30})
        yield from _with_redis(engine, redis_server)
        engine.dispose()


@pytest.fixture(scope="module")
def postgresql(postgresql_server: PostgreSQL) -> Iterator[Engine]:
    engine = create_engine(postgresql_server.url, pool_size=10)
    yield engine
    engine.dispose()


class TestPostgreSQLAndRedis(SplitPart):
    @pytest.fixture
    def store(self, postgresql: Engine, redis_server: Redis) -> Iterator[JobStore]:
        yield from _with_redis(postgresql, redis_server)


def _with_redis(engine: Engine, server: Redis) -> Iterator[JobStore]:
    jobs = TableRecords(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM only_jobs"))
    store = SplitJobStore(jobs, RedisJobStore(url=server.url, name=f"split-{next(_names)}"))
    store.start(None, "default")
    yield store
    store.shutdown()
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()
