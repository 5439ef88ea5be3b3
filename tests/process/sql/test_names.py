"""Which tables a SQL store uses, and whose it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from mainspring.errors import ConfigurationError
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_job, new_token, stored
from tests.servers import MariaDB, PostgreSQL

OpenStore = Callable[[str], SQLAlchemyJobStore]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return server.url


@pytest.fixture
def word() -> str:
    """A name that no other test uses."""
    return f"n{new_token().replace('-', '')}{os.getpid()}"


@pytest.fixture
def open_store(url: str) -> Iterator[OpenStore]:
    stores: list[SQLAlchemyJobStore] = []

    def make(tablename: str) -> SQLAlchemyJobStore:
        stores.append(SQLAlchemyJobStore(url, tablename=tablename))
        stores[-1].start(None, "default")
        return stores[-1]

    yield make
    for store in stores:
        store.shutdown()


@pytest.mark.parametrize(("first", "second"), [("", "_jobs"), ("_jobs", "")])
def test_a_tablename_whose_other_tables_belong_to_another_store_is_refused(
    open_store: OpenStore, word: str, first: str, second: str
) -> None:
    store = open_store(word + first)
    add_job(store)
    with pytest.raises(ConfigurationError, match=f"belong to the store with tablename='{word + first}'"):
        open_store(word + second)
    assert stored(store).id == "job"
    assert stored(open_store(word + first)).id == "job"


def test_a_table_that_apscheduler_wrote_is_refused_and_left_alone(open_store: OpenStore, url: str, word: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {word} (id VARCHAR(191) PRIMARY KEY, next_run_time FLOAT)"))
        connection.execute(text(f"INSERT INTO {word} VALUES ('old', 1.0)"))
    with pytest.raises(ConfigurationError, match=f"'{word}' .*did not write; .*`mainspring import`"):
        open_store(word)
    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT * FROM {word}")).fetchall() == [("old", 1.0)]
    engine.dispose()


@pytest.mark.parametrize("kind", ["runs", "meta"])
def test_a_table_of_somebody_else_where_another_of_the_store_would_be_is_refused_and_nothing_is_made(
    open_store: OpenStore, url: str, word: str, kind: str
) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {word}_{kind} (id INTEGER PRIMARY KEY, distance FLOAT)"))
    with pytest.raises(ConfigurationError, match=f"'{word}_{kind}' .*did not write; choose another tablename$"):
        open_store(f"{word}_jobs")
    assert [name for name in inspect(engine).get_table_names() if name.startswith(word)] == [f"{word}_{kind}"]
    engine.dispose()
