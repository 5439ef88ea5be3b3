"""A store that loses what it had while an app uses it, or goes away while somebody waits."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis

from mainspring import Mainspring
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_job
from tests.servers import Redis, Server
from tests.waiting import until

LIMIT = 90.0
MakeApp = Callable[..., Mainspring]


@pytest.fixture
def server(start_server: Callable[[type[Server]], Server]) -> Server:
    return start_server(Redis)


@pytest.fixture
def app(server: Server) -> Iterator[Mainspring]:
    with ExitStack() as stack:
        app = stack.enter_context(Mainspring(server.url, timezone="UTC", lease=1.5, store_options={"shards": 2}))
        for job_id in ("one", "two", "three"):
            app.schedule("interval", hours=1, id=job_id)(nothing)
        yield app


def nothing() -> None: ...


def test_schedules_come_back_when_redis_has_been_flushed(
    app: Mainspring, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    app.start()
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    until(lambda: sorted(job.id for job in app.jobs()) == ["one", "three", "two"])
    assert "job store 'default' has lost data" in caplog.text
    assert "schedule 'one' was lost with the store's data and is declared again" in caplog.text
    assert app.node is not None
    link = app.node.links["default"]
    until(lambda: link._generations == app.store.generations())  # the look that found the loss has ended
    caplog.clear()
    link.look_for_losses()
    assert caplog.text == ""


def test_a_schedule_that_one_shard_or_an_older_snapshot_lacks_comes_back(app: Mainspring, server: Server) -> None:
    app.start()
    app.remove_job("one")  # by a person: nothing was lost, so it stays away
    assert app.node is not None
    app.node.links["default"].look_for_losses()
    assert sorted(job.id for job in app.jobs()) == ["three", "two"]
    with redis.Redis.from_url(server.url) as client:
        for key in client.keys("{mainspring:*}:versions"):
            client.set(key, 1)
    until(lambda: sorted(job.id for job in app.jobs()) == ["one", "three", "two"])


def test_a_node_that_does_not_schedule_declares_nothing(app: Mainspring, server: Server) -> None:
    app.start(schedule=False)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    assert app.node is not None
    app.node.links["default"].look_for_losses()
    assert app.jobs() == []


def test_writing_jobs_is_no_loss(server: Server) -> None:
    store = RedisJobStore(url=server.url, shards=2)
    before = store.generations()
    for number in range(5):
        add_job(store, f"job{number}")
    after = store.generations()
    store.shutdown()
    assert before != after
    assert all(new.follows(old) for old, new in zip(before, after, strict=True))
    assert not any(old.follows(new) for old, new in zip(before, after, strict=True))


def test_schedules_come_back_into_a_database_that_was_emptied(tmp_path: Path) -> None:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db", timezone="UTC", lease=1.5) as app:
        app.schedule("interval", hours=1, id="one")(nothing)
        app.start()
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=LIMIT)) as connection, connection:
            connection.execute("DELETE FROM mainspring_jobs")
            connection.execute("UPDATE mainspring_meta SET value = value + 1 WHERE name = 'made'")
        until(lambda: [job.id for job in app.jobs()] == ["one"])


def test_schedules_come_back_into_a_file_that_another_has_replaced(tmp_path: Path) -> None:
    backup = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/backup.db")
    backup.start(None, "default")
    backup.shutdown()
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db", timezone="UTC", lease=1.5) as app:
        app.schedule("interval", hours=1, id="one")(nothing)
        app.start()
        (tmp_path / "backup.db").replace(tmp_path / "jobs.db")
        # For a moment the old file's log may lie beside the new file.
        until(lambda: [job.id for job in app.jobs()] == ["one"], despite=StoreUnavailable)
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=LIMIT)) as connection:
            until(lambda: connection.execute("SELECT id FROM mainspring_jobs").fetchall() == [("one",)])


def test_a_wait_rides_over_an_outage(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    with caplog.at_level(logging.WARNING), Mainspring(server.url, timezone="UTC") as app:

        @app.task
        def wait() -> str:
            assert gate.wait(LIMIT)
            return "done"

        app.start(work=True)
        handle, results = wait.enqueue(), list[str]()
        waiting = threading.Thread(target=lambda: results.append(handle.result(timeout=LIMIT)))
        waiting.start()
        until(lambda: str(handle.status()) == "running")
        server.kill()
        until(lambda: "the wait goes on" in caplog.text)
        server.restart()
        gate.set()
        waiting.join(LIMIT)
        assert results == ["done"]
