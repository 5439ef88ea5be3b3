"""What a signal handler raises inside a store harms nobody's later call."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mainspring import Mainspring
from mainspring.errors import OutcomeUnknown
from tests.app.forking.interrupting import Interrupted, interrupted_everywhere
from tests.app.forking.test_forking import double
from tests.app.kit import KEY, MakeApp

SQL = tuple(f"mainspring.jobstores.sqlalchemy.{name}" for name in ("connections", "server", "sqlite.dialect"))


def undone(tx: Any) -> None:
    """Be a step that is undone."""
    tx.run("UPDATE {meta} SET value = value WHERE name = 'made'")
    raise ValueError("undone")


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb"], indirect=True)
def test_a_write_is_there_whatever_step_was_interrupted_before_it(app: Mainspring, url: str) -> None:
    task = app.task(double)
    task.enqueue(0)
    store: Any = app.store

    def commit() -> None:
        store.set_gate("some", 3)

    def undo() -> None:
        with pytest.raises(ValueError, match="undone"):
            store._write(undone)

    engine = create_engine(url)
    for work in (commit, undo):
        places = 0
        for place in interrupted_everywhere(work, SQL):
            places += 1
            run = task.enqueue(places)
            with engine.connect() as connection:
                found = connection.scalar(text(f"SELECT count(*) FROM {app.name}_runs WHERE id = '{run.id}'"))
            assert found == 1, f"the next run is lost after an interrupt at {place}"
        assert places > 5
    engine.dispose()


@pytest.mark.parametrize("url", ["redis"], indirect=True)
def test_nobody_reads_the_reply_to_an_interrupted_command(app: Mainspring) -> None:
    task = app.task(double)
    task.enqueue(0)
    link: Any = app.store._link  # type: ignore[attr-defined]

    def work() -> None:
        # Its reply comes too late to be seen on the connection when the next command takes it.
        link.ask("key", "BLPOP", "no such list", 0.05)

    places = 0
    for place in interrupted_everywhere(work, ("mainspring.jobstores.redis", "redis.")):
        places += 1
        assert link.ask("key", "ECHO", place) == place.encode()
    assert places > 20


class InterruptedCommit:
    """A connection whose commit happens, and is interrupted as it returns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str) -> Any:
        done = self._connection.execute(statement)
        if statement == "COMMIT":
            raise Interrupted
        return done


def test_others_in_an_interrupted_commit_learn_that_their_outcome_is_unknown(make_app: MakeApp, tmp_path: Path) -> None:
    database: Any = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY).store._open()  # type: ignore[attr-defined]
    errors: list[BaseException] = []

    def write() -> None:
        try:
            database.write(lambda tx: tx.run("UPDATE {meta} SET value = value WHERE name = 'made'"))
        except Exception as error:
            errors.append(error)

    other = threading.Thread(target=write)
    with database._turn:  # this thread leads the next group
        other.start()
        while not database._queue:
            time.sleep(0)
        group, database._queue = database._queue, []
        writer, database._writer = database._writer, InterruptedCommit(database._writer)
        with pytest.raises(Interrupted):
            database._lead(group)
        database._writer = writer
    other.join()
    assert [type(error) for error in errors] == [OutcomeUnknown]
