"""The tables of a SQL store: where they are, how they are completed, and what becomes of those of another release."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo
from mainspring.jobstores.sqlalchemy import SchemaMismatch, SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.meta import SQL_SCHEMA
from mainspring.testing.conformance.helpers import (
    add_job,
    add_run,
    claim,
    due_one,
    fire,
    make_run,
    new_token,
    start,
    stored,
    succeed,
)
from tests.servers import MariaDB, PostgreSQL

KINDS = ("sqlite", "postgresql", "mariadb")
NODE = NodeInfo(id="n", host="h", pid=1, started_at=1)
Place = tuple[str, str]
"""A URL and a table name that no other test uses."""
Open = Callable[..., SQLAlchemyJobStore]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db", "mainspring_jobs"
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return server.url, f"m{new_token().replace('-', '')}{os.getpid()}_jobs"


@pytest.fixture
def open_store(place: Place) -> Iterator[Open]:
    stores: list[SQLAlchemyJobStore] = []

    def begin(**options: Any) -> SQLAlchemyJobStore:
        stores.append(SQLAlchemyJobStore(place[0], tablename=place[1], **options))
        stores[-1].due(0, 0)
        return stores[-1]

    yield begin
    for store in stores:
        store.shutdown()


def _set_schema(store: SQLAlchemyJobStore, schema: int) -> None:
    both = "UPDATE {meta} SET value = ? WHERE name IN ('schema', 'oldest_reader')"
    store._write(lambda tx: tx.run(both, schema))


@pytest.mark.parametrize(
    ("schema", "advice"),
    [(SQL_SCHEMA + 1, "upgrade mainspring on this node"), (SQL_SCHEMA - 1, "choose another tablename")],
)
def test_tables_of_another_schema_are_refused_and_left_alone(open_store: Open, schema: int, advice: str) -> None:
    store = open_store()
    job, run = add_job(store), add_run(store)
    _set_schema(store, schema)
    with pytest.raises(SchemaMismatch, match=f"have schema {schema}, .* knows only {SQL_SCHEMA}: {advice}"):
        open_store()
    _set_schema(store, SQL_SCHEMA)
    again = open_store()
    assert stored(again).id == job.id
    assert [each.id for each in claim(again)] == [run.id]


def test_a_node_that_runs_learns_of_another_schema_by_its_beat_and_claims_and_fires_no_more(
    open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    add_job(store)
    held = start(store)
    due = due_one(store)
    _set_schema(store, SQL_SCHEMA + 1)
    store.beat(NODE, 30)
    assert "upgrade mainspring on this node" in caplog.text
    for act in (lambda: store.due(1, 0), lambda: claim(store), lambda: fire(store, due)):
        with pytest.raises(SchemaMismatch):
            act()
    assert store.settle([succeed(store, held)]) == [True]  # what has begun may end


@pytest.mark.parametrize("name", ["schema", "oldest_reader"])
def test_a_schema_that_one_row_alone_tells_was_altered_and_is_put_right(open_store: Open, name: str) -> None:
    store = open_store()
    store._write(lambda tx: tx.run("UPDATE {meta} SET value = 99 WHERE name = ?", name))
    store.beat(NODE, 30)
    run = add_run(store)
    assert [each.id for each in claim(store)] == [run.id]
    found = open_store()._read(lambda tx: tx.all("SELECT value FROM {meta} WHERE name = ?", name))
    assert found == [(SQL_SCHEMA,)]


@pytest.mark.parametrize("place", KINDS[1:], indirect=True)
def test_the_tables_are_made_and_used_in_the_schema_that_was_asked_for(place: Place, open_store: Open) -> None:
    schema = place[1].removesuffix("_jobs")
    engine = create_engine(place[0])
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    elsewhere = open_store()
    store = open_store(tableschema=schema)
    add_job(store)
    run = start(store)
    assert store.settle([succeed(store, run)]) == [True]
    assert fire(store, due_one(store)) is not None
    assert store.delete_runs([run.id]) == 1
    assert store.add_runs([run, make_run(store)])[0] == run.id
    assert elsewhere.get_all_jobs() == []
    assert elsewhere.stats().totals["succeeded"] == 0
    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {schema}.{place[1]}")).scalar() == 1
    engine.dispose()


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_tables_left_half_made_are_completed(open_store: Open) -> None:
    half = open_store()
    half._read(lambda tx: tx.run("DROP TABLE {meta}"))
    half._read(lambda tx: tx.run("DROP TABLE {nodes}"))
    half.shutdown()
    store = open_store()
    store.beat(NODE, 30)
    assert [node.id for node in store.nodes()] == ["n"]


@pytest.mark.parametrize("place", KINDS[:1], indirect=True)
@pytest.mark.parametrize("value", ["abc", 1.5, b"\xff"])
def test_a_value_of_another_type_than_its_column_is_refused(open_store: Open, value: Any) -> None:
    store = open_store()
    add_run(store)
    with pytest.raises(StoreUnavailable, match="cannot store"):
        store._write(lambda tx: tx.run("UPDATE {runs} SET run_at = ?", value))
    assert len(claim(store)) == 1
