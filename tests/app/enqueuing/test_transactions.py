"""Enqueuing inside a transaction of the user's: what is rolled back is not there, what is committed is."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mainspring import Mainspring
from mainspring.errors import ConfigurationError, StoreUnavailable, TransactionConflict
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.joining.outbox import Outbox

ORDERS = Table("orders_of_the_user", MetaData(), Column("id", Integer, primary_key=True))


def send(order: int) -> int:
    return order


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/orders.db"
    return str(request.getfixturevalue(f"{request.param}_server").url)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    ORDERS.metadata.create_all(engine)
    yield engine
    ORDERS.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def app(url: str) -> Iterator[Mainspring]:
    store = SQLAlchemyJobStore(url, tablename=f"t{secrets.token_hex(4)}_jobs")
    with Mainspring(store, secret_key="k" * 32) as app:
        app.task(send)
        app.store.stats()
        yield app


class Death(Exception):
    pass


def test_a_run_is_there_when_its_transaction_has_committed_and_not_before(app: Mainspring, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(insert(ORDERS), [{"id": 1}])
        handle = app.within(session).enqueue(send, 1)
        assert app.count() == 0
    assert [run.id for run in app.find()] == [handle.id]
    assert handle.fetch().args == (1,)


def test_what_is_rolled_back_is_not_there(app: Mainspring, engine: Engine) -> None:
    with Session(engine) as session:
        session.execute(insert(ORDERS), [{"id": 1}])
        app.within(session).enqueue(send, 1)
        session.rollback()
    assert app.count() == 0
    with engine.connect() as connection:
        assert connection.execute(select(ORDERS.c.id)).all() == []


def test_a_savepoint_takes_its_runs_along(app: Mainspring, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(insert(ORDERS), [{"id": 1}])
        savepoint = session.begin_nested()
        app.within(session).enqueue(send, 1)
        savepoint.rollback()
        kept = app.within(session).enqueue(send, 2)
    assert [run.id for run in app.find()] == [kept.id]


def test_a_connection_will_do(app: Mainspring, engine: Engine) -> None:
    with engine.begin() as connection:
        handles = app.within(connection).enqueue_many(app.tasks.resolve(send).call(n) for n in range(3))
    assert {run.id for run in app.find()} == {handle.id for handle in handles}
    with engine.connect() as connection:
        app.within(connection).enqueue(send, 4)
        connection.rollback()
    assert app.count() == 3


def test_a_worker_that_sleeps_is_woken_by_the_commit(app: Mainspring, engine: Engine) -> None:
    app.start(work=True)
    assert app.enqueue(send, 0).result(timeout=30) == 0
    for kind in (Session, Engine):
        with Session(engine) if kind is Session else engine.connect() as target:
            handle = app.within(target).enqueue(send, 7)
            time.sleep(0.05)
            assert app.count(status="succeeded") in (1, 2)
            target.commit()
        assert handle.result(timeout=30) == 7


def test_a_taken_unique_key_leads_to_its_holder(app: Mainspring, engine: Engine) -> None:
    call = app.tasks.resolve(send).options(unique="one").call
    with Session(engine) as session, session.begin():
        first = app.within(session).enqueue_call(call(1))
        again = app.within(session).enqueue_call(call(2))
    assert first.id == again.id
    with Session(engine) as session, session.begin():
        assert app.within(session).enqueue_call(call(3)).id == first.id
    assert app.count() == 1


def test_a_key_that_another_transaction_takes_just_then_harms_nobody(app: Mainspring, engine: Engine) -> None:
    call = app.tasks.resolve(send).options(unique="one").call
    ours: list[Any] = []

    def enqueue() -> None:
        with Session(engine) as session, session.begin():
            session.execute(text("SELECT 1"))
            try:
                ours.append(app.within(session).enqueue_call(call(2)).id)
            except TransactionConflict as conflict:  # where a transaction keeps to what it saw at its beginning
                ours.append(conflict)
            session.execute(insert(ORDERS), [{"id": 2}])

    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite lets one transaction write at a time")
    with Session(engine) as session:
        first = app.within(session).enqueue_call(call(1))
        other = threading.Thread(target=enqueue)
        other.start()
        time.sleep(0.3)
        session.commit()
    other.join(30)
    assert ours[0] == first.id or isinstance(ours[0], TransactionConflict)
    assert app.count() == 1
    with engine.connect() as connection:
        assert connection.execute(select(ORDERS.c.id)).all() == [(2,)]


def test_the_same_id_is_stored_once(app: Mainspring, engine: Engine) -> None:
    call = app.tasks.resolve(send).options(id="order-1").call
    for _ in range(2):
        with Session(engine) as session, session.begin():
            assert app.within(session).enqueue_call(call(1)).id == "order-1"
    assert app.count() == 1


def test_a_transaction_of_another_database_is_refused(app: Mainspring, tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    with (
        Session(other) as session,
        pytest.raises(ConfigurationError, match=r"one commit cannot cover both.*outbox=engine"),
    ):
        app.within(session).enqueue(send, 1)
    other.dispose()


def test_the_transaction_goes_on_after_a_refusal(app: Mainspring, engine: Engine, url: str) -> None:
    with Mainspring(SQLAlchemyJobStore(url, tablename=f"o{secrets.token_hex(4)}_jobs"), name="other") as other:
        other.task(send)
        other.store.stats()
        with other.store._open().connections.engine.begin() as connection:  # type: ignore[attr-defined]
            names = other.store._open().names  # type: ignore[attr-defined]
            connection.execute(text(f"DROP TABLE {names['meta']}"))
        with Session(engine) as session, session.begin():
            session.execute(insert(ORDERS), [{"id": 1}])
            with pytest.raises((ConfigurationError, StoreUnavailable)):
                other.within(session).enqueue(send, 1)
            app.within(session).enqueue(send, 1)
    assert app.count() == 1


@pytest.mark.parametrize("target", ["engine", "async", "nonsense"])
def test_anything_else_is_refused_with_a_hint(app: Mainspring, engine: Engine, target: str) -> None:
    given: Any = {"engine": engine, "async": AsyncSession(), "nonsense": 7}[target]
    with pytest.raises(
        TypeError, match={"engine": "begin a transaction", "async": "app.aio.within"}.get(target, "not 7")
    ):
        app.within(given)


def test_a_call_that_cannot_be_stored_raises_and_leaves_the_transaction_as_it_was(
    app: Mainspring, engine: Engine
) -> None:
    with Session(engine) as session, session.begin():
        with pytest.raises(TypeError):
            app.within(session).enqueue(send, object())  # type: ignore[arg-type]
        app.within(session).enqueue(send, 1)
    assert app.count() == 1


# -- async -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+psycopg", "postgresql+asyncpg"])
def test_async_sessions_and_connections_of_any_driver(
    driver: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if driver.startswith("sqlite"):
        url = f"sqlite:///{tmp_path}/orders.db"
    else:
        url = str(request.getfixturevalue("postgresql_server").url)
    store = SQLAlchemyJobStore(url, tablename=f"t{secrets.token_hex(4)}_jobs")

    async def go(app: Mainspring) -> list[str]:
        engine = create_async_engine(url.replace("postgresql+psycopg", driver).replace("sqlite:", f"{driver}:"))
        async with AsyncSession(engine) as session, session.begin():
            one = await app.aio.within(session).enqueue(send, 1)
        async with engine.begin() as connection:
            two = await app.aio.within(connection).enqueue(send, 2)
        async with AsyncSession(engine) as session:
            await app.aio.within(session).enqueue(send, 3)
            await session.rollback()
        await engine.dispose()
        return [one.id, two.id]

    with Mainspring(store) as app:
        app.task(send)
        assert sorted(asyncio.run(go(app))) == sorted(run.id for run in app.find())


# -- after the commit ------------------------------------------------------------------------------------------------


def test_after_commit_enqueues_when_the_session_has_committed(engine: Engine) -> None:
    with Mainspring("memory://") as app:
        app.task(send)
        with Session(engine) as session, session.begin():
            session.execute(insert(ORDERS), [{"id": 1}])
            app.after_commit(session).enqueue(send, 1)
            assert app.count() == 0
        assert [run.args for run in app.find()] == [(1,)]
        with Session(engine) as session:
            session.execute(insert(ORDERS), [{"id": 2}])
            app.after_commit(session).enqueue(send, 2)
            session.rollback()
            session.execute(insert(ORDERS), [{"id": 3}])
            session.commit()
        assert app.count() == 1


def test_after_commit_says_at_once_what_cannot_be_stored(engine: Engine, tmp_path: Path) -> None:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db") as app, Session(engine) as session:
        app.task(send)
        with pytest.raises(TypeError):
            app.after_commit(session).enqueue(send, object())  # type: ignore[arg-type]


# -- the outbox ------------------------------------------------------------------------------------------------------


@pytest.fixture
def far(redis_server: Any, engine: Engine) -> Iterator[Mainspring]:
    store = RedisJobStore(url=redis_server.url, name=f"t{secrets.token_hex(4)}")
    with Mainspring(store, outbox=engine, name=f"far_{secrets.token_hex(4)}") as app:
        app.task(send)
        yield app


def test_an_outbox_hands_over_what_is_committed(far: Mainspring, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        handle = far.within(session).enqueue(send, 1)
        assert far.count() == 0
    assert [run.id for run in far.find()] == [handle.id]
    with Session(engine) as session:
        far.within(session).enqueue(send, 2)
        session.rollback()
    assert far.count() == 1
    assert _left(far, engine) == 0


def test_a_connection_hands_over_just_after_its_commit(far: Mainspring, engine: Engine) -> None:
    far.start(work=True)
    with engine.begin() as connection:
        handle = far.within(connection).enqueue(send, 1)
    assert handle.wait(timeout=30).status == "succeeded"


def test_what_nobody_has_handed_over_is_relayed_once(
    far: Mainspring, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outbox, "hand_over", lambda *_: None)  # as if the process had died after the commit
    with Session(engine) as session, session.begin():
        handle = far.within(session).enqueue(send, 1)
    outbox = Outbox(engine, far.name)
    assert outbox.relay(far.store, far.now()) == 0  # too young
    monkeypatch.setattr(Outbox, "delete", _die)  # as if a node died between the two steps
    with pytest.raises(Death):
        outbox.relay(far.store, far.now() + 6_000_000)
    monkeypatch.undo()
    assert far.count() == 1
    assert outbox.relay(far.store, far.now() + 6_000_000) == 1
    assert [run.id for run in far.find()] == [handle.id]
    assert _left(far, engine) == 0


def test_a_node_relays_what_a_dead_process_has_left(
    far: Mainspring, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outbox, "hand_over", lambda *_: None)
    monkeypatch.setattr("mainspring.jobstores.sqlalchemy.joining.outbox.RELAY_AFTER_US", 0)
    with Session(engine) as session, session.begin():
        handle = far.within(session).enqueue(send, 1)
    far.start(work=True)
    assert handle.wait(timeout=60).status == "succeeded"


def test_a_store_elsewhere_without_an_outbox_says_so(redis_server: Any, engine: Engine) -> None:
    with Mainspring(RedisJobStore(url=redis_server.url, name="none")) as app, Session(engine) as session:
        app.task(send)
        with pytest.raises(ConfigurationError, match="outbox=engine"):
            app.within(session).enqueue(send, 1)


def test_an_outbox_takes_no_unique_key_and_no_foreign_transaction(
    far: Mainspring, engine: Engine, tmp_path: Path
) -> None:
    with Session(engine) as session, pytest.raises(ValueError, match="only the store knows"):
        far.within(session).enqueue_call(far.tasks.resolve(send).options(unique="u").call(1))
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    with Session(other) as session, pytest.raises(ConfigurationError, match="one commit cannot cover both"):
        far.within(session).enqueue(send, 1)
    other.dispose()
    with pytest.raises(ConfigurationError, match="must be a SQLAlchemy engine"):
        Mainspring("memory://", outbox="sqlite://")  # type: ignore[arg-type]


def _die(*_: object) -> None:
    raise Death


def _left(app: Mainspring, engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {app.name}_outbox")).scalar_one())


def test_whole_flows_are_there_if_and_only_if_the_transaction_commits(app: Mainspring, engine: Engine) -> None:
    task = app.tasks.resolve(send)
    with Session(engine) as session:
        app.within(session).chain([task.call(1), task.call(2)])
        app.within(session).gather([task.call(1), task.call(2)])
        with app.within(session).flow() as flow:
            for number in range(1100):
                flow.add(task.call(number))
        assert app.count() == 0
        session.rollback()
    assert app.count() == 0
    app.start(work=True)
    with Session(engine) as session:
        with app.within(session).flow() as flow:
            first = flow.add(task.call(7))
            last = flow.add(task.call(first.output))
        gathered = app.within(session).gather([task.call(1), task.call(2)])
        session.commit()
    assert last.result(timeout=60) == 7
    assert gathered.result(timeout=60) == [1, 2]
