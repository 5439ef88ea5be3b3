"""The tables of a SQL store are migrated while nodes use it. Run as a script, this file is one of those nodes."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo
from mainspring.jobstores.sqlalchemy import SchemaTooNew, SQLAlchemyJobStore, migrations
from mainspring.jobstores.sqlalchemy.database import Tx
from mainspring.jobstores.sqlalchemy.migrations import FIRST, Step
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
from tests.process.test_sql_processes import Child
from tests.servers import MariaDB, PostgreSQL

KINDS = ("sqlite", "postgresql", "mariadb")
Place = tuple[str, str]
"""A URL and a table name that no other test uses."""


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db", "mainspring_jobs"
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return server.url, f"m{new_token().replace('-', '')}{os.getpid()}_jobs"


@pytest.fixture
def open_store(place: Place) -> Iterator[Callable[..., SQLAlchemyJobStore]]:
    stores: list[SQLAlchemyJobStore] = []

    def begin(**options: Any) -> SQLAlchemyJobStore:
        stores.append(SQLAlchemyJobStore(place[0], tablename=place[1], **options))
        stores[-1].server_time()
        return stores[-1]

    yield begin
    for store in stores:
        store.shutdown()


@pytest.fixture
def begin(place: Place) -> Iterator[Callable[[str], Child]]:
    children: list[Child] = []

    def start_child(verb: str) -> Child:
        children.append(Child(verb, *place, script=__file__))
        return children[-1]

    yield start_child
    for child in children:
        child.end()


# -- steps ---------------------------------------------------------------------------------------------------------


def _add_note(tx: Tx) -> None:
    """Add a column and fill it; repeatable, as a step has to be."""
    if tx.database.kind == "mysql":
        tx.run("ALTER TABLE {runs} ADD COLUMN IF NOT EXISTS note VARCHAR(20)")
    else:
        tx.run("ALTER TABLE {runs} ADD COLUMN note TEXT")
    tx.run("UPDATE {runs} SET note = status")


def _leave_a_trace(number: int) -> Callable[[Tx], None]:
    def change(tx: Tx) -> None:
        time.sleep(0.2)  # long enough for the other processes to come to the same step
        tx.insert("lanes", ("name",), [(f"{number} by {os.getpid()}",)])

    return change


def _hang(tx: Tx) -> None:
    _add_note(tx)
    print("inside", flush=True)
    time.sleep(60)


NEXT = FIRST + 1
LAST = FIRST + 2
NOTE = Step(NEXT, _add_note, stops_older=False)
TRACES = [Step(NEXT, _leave_a_trace(NEXT), stops_older=False), Step(LAST, _leave_a_trace(LAST), stops_older=True)]


def _know(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> None:
    monkeypatch.setattr(migrations, "STEPS", list(steps))


def _meta(store: SQLAlchemyJobStore) -> dict[str, int]:
    found = store._read(lambda tx: tx.all("SELECT name, value FROM {meta}"))
    return {name: value for name, value in found if name in ("schema", "oldest_reader")}


def _notes(store: SQLAlchemyJobStore) -> list[str]:
    return sorted(note for (note,) in store._read(lambda tx: tx.all("SELECT note FROM {runs} WHERE note IS NOT NULL")))


# -- upgrading -----------------------------------------------------------------------------------------------------


def test_jobs_and_runs_live_through_an_upgrade(
    open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_store()
    add_job(old)
    held, waiting = start(old), add_run(old)
    assert _meta(old) == {"schema": FIRST, "oldest_reader": FIRST}
    _know(monkeypatch, NOTE)
    new = open_store()
    assert _meta(new) == {"schema": NEXT, "oldest_reader": FIRST}
    assert _notes(new) == ["pending", "running"]
    assert new.settle([succeed(new, held)]) == [True]
    assert [run.id for run in claim(new)] == [waiting.id]
    assert fire(new, due_one(new)) is not None
    assert stored(new).id == "job"


def test_a_store_made_by_a_newer_release_starts_at_its_schema(
    open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _know(monkeypatch, *TRACES)
    store = open_store()
    assert _meta(store) == {"schema": LAST, "oldest_reader": LAST}
    assert store.queues() == []


def test_a_step_that_fails_is_taken_again_by_the_next_to_open_the_store(
    open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store()

    def fail(tx: Tx) -> None:
        _add_note(tx)
        tx.run("UPDATE {runs} SET no_such_column = 1")

    _know(monkeypatch, Step(NEXT, fail, stops_older=False))
    with pytest.raises(StoreUnavailable, match="no_such_column"):
        open_store()
    _know(monkeypatch)
    assert _meta(open_store())["schema"] == FIRST
    _know(monkeypatch, NOTE)
    assert _meta(open_store())["schema"] == NEXT


def test_of_several_processes_each_step_is_taken_by_one(
    place: Place, open_store: Callable[..., SQLAlchemyJobStore], begin: Callable[[str], Child]
) -> None:
    store = open_store()
    children = [begin("upgrade") for _ in range(4)]
    assert [child.line() for child in children] == ["ready"] * 4
    for child in children:
        child.go()
    assert [child.answer() for child in children] == [{"schema": LAST, "oldest_reader": LAST}] * 4
    assert [queue.name[0] for queue in store.queues()] == [str(NEXT), str(LAST)]


def test_a_process_killed_inside_a_step_leaves_it_to_the_next(
    place: Place,
    open_store: Callable[..., SQLAlchemyJobStore],
    begin: Callable[[str], Child],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = open_store()
    run = add_run(old)
    child = begin("hang")
    assert child.line() == "inside"
    child.process.send_signal(signal.SIGKILL)
    child.process.wait()
    assert _meta(old)["schema"] == FIRST
    assert [one.id for one in claim(old)] == [run.id]  # what was done of the step harms no older node
    _know(monkeypatch, NOTE)
    new = open_store()
    assert _meta(new)["schema"] == NEXT
    assert _notes(new) == ["running"]


# -- older nodes ---------------------------------------------------------------------------------------------------


def test_an_older_node_stops_claiming_before_a_step_that_it_must_not_see(
    open_store: Callable[..., SQLAlchemyJobStore], begin: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = begin("work")
    assert older.line() == "works"
    told: list[str] = []
    _know(monkeypatch, Step(NEXT, lambda tx: told.append(older.line()), stops_older=True))
    store = open_store()
    assert "upgrade mainspring on this node" in told[0]
    assert f"reads {FIRST}" in told[0]
    run = add_run(store)
    older.go()
    assert older.answer() == "SchemaTooNew"
    assert [one.id for one in claim(store)] == [run.id]


def test_an_older_node_works_on_after_a_step_that_does_not_concern_it(
    open_store: Callable[..., SQLAlchemyJobStore], begin: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = begin("claim")
    assert older.line() == "ready"
    _know(monkeypatch, NOTE)
    run = add_run(open_store())
    older.go()
    assert older.answer() == [run.id]


def test_a_node_that_does_not_beat_any_more_holds_no_upgrade_up(
    open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_store()
    old.beat(_node(), 0.2)
    _know(monkeypatch, TRACES[1])
    assert _meta(open_store())["schema"] == LAST
    _know(monkeypatch)
    old.beat(_node(), 30)
    with pytest.raises(SchemaTooNew):
        claim(old)


# -- where the tables are ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", KINDS[1:], indirect=True)
def test_the_tables_are_made_used_and_migrated_in_the_schema_that_was_asked_for(
    place: Place, open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    _know(monkeypatch, NOTE)
    assert _meta(open_store(tableschema=schema))["schema"] == NEXT
    assert _meta(elsewhere)["schema"] == FIRST
    assert elsewhere.get_all_jobs() == []
    assert elsewhere.counters()["succeeded"] == 0
    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {schema}.{place[1]}")).scalar() == 1
    engine.dispose()


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_tables_left_half_made_are_completed_and_all_steps_are_taken(
    place: Place, open_store: Callable[..., SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = open_store()
    half._read(lambda tx: tx.run("DROP TABLE {meta}"))
    half._read(lambda tx: tx.run("DROP TABLE {nodes}"))
    half.shutdown()
    _know(monkeypatch, NOTE)
    store = open_store()
    assert _meta(store) == {"schema": NEXT, "oldest_reader": FIRST}
    assert _notes(store) == []
    store.beat(_node(), 30)
    assert [node.id for node in store.nodes()] == ["older"]


# -- the other processes -------------------------------------------------------------------------------------------


def _node() -> NodeInfo:
    return NodeInfo(id="older", host="h", pid=os.getpid(), started_at=1)


def _work(store: SQLAlchemyJobStore) -> str:
    """Claim and beat, as a node does, until that is forbidden; then try once more when told to."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.ERROR)
    said = False
    while True:
        try:
            store.beat(_node(), 30)
            claim(store)
        except SchemaTooNew:
            break
        if not said:
            print("works", flush=True)
            said = True
        time.sleep(0.01)
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        claim(store)
    except SchemaTooNew as error:
        return type(error).__name__
    return "claimed"


def _upgrade(store: SQLAlchemyJobStore) -> dict[str, int]:
    """Learn the steps and take them, at the same moment as the others."""
    migrations.STEPS.extend(TRACES)
    store._open()._upgrade()
    return _meta(store)


def _main(verb: str, url: str, tablename: str) -> None:
    if verb == "hang":
        migrations.STEPS.append(Step(NEXT, _hang, stops_older=False))
    store = SQLAlchemyJobStore(url, tablename=tablename)
    if verb in ("upgrade", "claim"):
        store.ping()
        print("ready", flush=True)
        sys.stdin.readline()
    verbs: dict[str, Callable[[SQLAlchemyJobStore], Any]] = {
        "upgrade": _upgrade,
        "hang": _meta,
        "work": _work,
        "claim": lambda store: [run.id for run in claim(store)],
    }
    print(json.dumps(verbs[verb](store)))
    store.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
