"""The verbs on Redis and PostgreSQL, with a key and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine, inspect, text

from mainspring import Mainspring, tasks
from mainspring.errors import TaskNotFound
from mainspring.tasks.intended import CALL
from tests.servers import PostgreSQL, Redis, Server
from tests.tasks import functions
from tests.tasks.test_schedule import first_run

SOON = 20_000
_names = count(1)


@pytest.fixture
def signed(server: Server) -> Iterator[Mainspring]:
    with _app(server, secret_key="k" * 32) as app:
        app.start(work=True)
        yield app


@pytest.fixture
def unsigned(server: Server) -> Iterator[Mainspring]:
    with _app(server) as app:
        yield app


@contextmanager
def _app(server: Server, **options: Any) -> Iterator[Mainspring]:
    """Make an app of a name that is not used yet, and leave nothing of it behind."""
    name = f"verbs{next(_names)}"
    with Mainspring(server.url, name=name, **options) as app:
        tasks.set_app(app)
        yield app
    if isinstance(server, Redis):
        with redis.Redis.from_url(server.url) as client:
            client.flushdb()
        return
    engine = create_engine(server.url)
    with engine.begin() as connection:
        for table in inspect(connection).get_table_names():
            if table.startswith(f"{name}_"):
                connection.execute(text(f'DROP TABLE "{table}" CASCADE'))
    engine.dispose()


class Verbs:
    def test_calls_groups_chains_and_iterations(self, signed: Mainspring) -> None:
        assert tasks.result(tasks.async_task("math.copysign", 2, -2), SOON) == -2.0
        for number in range(5):
            tasks.async_task(functions.add, number, group="numbers")
        assert sorted(tasks.result_group("numbers", wait=SOON, count=5)) == [0, 1, 2, 3, 4]
        assert (tasks.count_group("numbers"), tasks.delete_group("numbers"), tasks.count_group("numbers")) == (5, 5, 0)
        chain = tasks.async_chain([(functions.add, (1,)), (functions.fail, ("no",)), (functions.add, (3,))])
        assert [task.success for task in tasks.fetch_group(chain, wait=SOON)] == [True, False]
        assert tasks.result(tasks.async_iter(functions.add, [(1, 2), (3, 4)]), SOON) == [3, 7]

    def test_a_schedule_with_its_intended_date(self, signed: Mainspring) -> None:
        start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
        tasks.schedule(functions.dated, 7, name="dated", next_run=start, intended_date_kwarg="intended")
        assert first_run(signed, "dated").result == [7, "2026-01-31T09:30:00+00:00"]

    def test_a_queue_by_hand(self, unsigned: Mainspring) -> None:
        unsigned.task(functions.add)
        broker = tasks.get_broker("hand")
        good, bad, _ = (broker.enqueue(functions.add, number) for number in range(3))
        assert (broker.queue_size(), broker.lock_size(), broker.ping()) == (3, 0, True)
        assert {task_id for task_id, _ in broker.dequeue(2)} == {good, bad}
        assert (broker.queue_size(), broker.lock_size()) == (1, 2)
        assert (broker.acknowledge(good, "fine"), broker.fail(bad, "no")) == (True, True)
        assert (tasks.result(good), tasks.result(bad)) == ("fine", "no : ")
        assert (broker.purge_queue(), broker.queue_size(), broker.lock_size()) == (1, 0, 0)

    def test_without_a_key_only_registered_tasks_can_be_called(self, unsigned: Mainspring) -> None:
        with pytest.raises(TaskNotFound, match="secret_key"):
            tasks.async_task("math.copysign", 2, -2)
        with pytest.raises(TaskNotFound, match="secret_key"):
            tasks.async_task(functions.add, 1)
        assert tasks.result(tasks.async_task("math.copysign", 2, -2, sync=True)) == -2.0

    def test_without_a_key_a_registered_task_is_told_its_intended_date(self, unsigned: Mainspring) -> None:
        unsigned.task(functions.dated)
        unsigned.start(work=True)
        start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
        tasks.schedule("tests.tasks.functions.dated", 7, name="d", next_run=start, intended_date_kwarg="intended")
        assert first_run(unsigned, "d").result == [7, "2026-01-31T09:30:00+00:00"]

    def test_without_a_key_the_intended_date_opens_no_way_to_other_functions(self, unsigned: Mainspring) -> None:
        unsigned.start(work=True)
        task_id = unsigned.enqueue(CALL, "x", "tests.tasks.functions:options").id
        task = tasks.fetch(task_id, SOON)
        assert task is not None
        assert not task.success
        assert "no task is called 'tests.tasks.functions:options'" in task.result


class TestRedis(Verbs):
    @pytest.fixture
    def server(self, redis_server: Redis) -> Server:
        return redis_server


class TestPostgreSQL(Verbs):
    @pytest.fixture
    def server(self, postgresql_server: PostgreSQL) -> Server:
        return postgresql_server
