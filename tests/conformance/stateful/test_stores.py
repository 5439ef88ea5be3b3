"""Every lasting store agrees with the memory store, command by command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import create_engine, text

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from tests.conformance.stateful.machine import StoreMachine, budget
from tests.servers import MariaDB, PostgreSQL, Redis, Server, Valkey

Maker = Callable[[], JobStore]
_numbers = count(1)


def agree(make: Maker, examples: int) -> None:
    class Machine(StoreMachine):
        pass

    Machine.make = staticmethod(make)
    run_state_machine_as_test(Machine, settings=budget(examples))


def test_sqlite_agrees_with_memory(tmp_path: Path) -> None:
    agree(lambda: SQLAlchemyJobStore(f"sqlite:///{tmp_path}/{next(_numbers)}.db", synchronous="NORMAL"), 15)


@pytest.fixture
def emptied() -> Iterator[Callable[[Server], Maker]]:
    engines = []

    def prepare(server: Server) -> Maker:
        engine = create_engine(server.url)
        engines.append(engine)

        def make() -> JobStore:
            store = SQLAlchemyJobStore(engine=engine)
            store.beat()
            with engine.begin() as connection:
                for table in ("jobs", "runs", "broken", "gone", "queues", "nodes", "totals", "tallies"):
                    connection.execute(text(f"DELETE FROM mainspring_{table}"))
            return store

        return make

    yield prepare
    for engine in engines:
        engine.dispose()


def test_postgresql_agrees_with_memory(postgresql_server: PostgreSQL, emptied: Callable[[Server], Maker]) -> None:
    agree(emptied(postgresql_server), 10)


def test_mariadb_agrees_with_memory(mariadb_server: MariaDB, emptied: Callable[[Server], Maker]) -> None:
    agree(emptied(mariadb_server), 10)


def test_redis_agrees_with_memory(redis_server: Redis) -> None:
    # One shard: with more, the order of a queue holds within each of them only.
    agree(lambda: RedisJobStore(url=redis_server.url, name=f"stateful-{next(_numbers)}"), 15)


def test_valkey_agrees_with_memory(valkey_server: Valkey) -> None:
    agree(lambda: RedisJobStore(url=valkey_server.url, name=f"stateful-{next(_numbers)}"), 15)
