"""Several processes on one SQL store. Run as a script, this file is one of those processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Status
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_run, claim, make_job, make_run, new_token, succeed
from tests.servers import MariaDB, PostgreSQL

ROOT = Path(__file__).parents[3]
PROCESSES = 4


class Child:
    """One of the other processes, doing one of the verbs below."""

    def __init__(self, verb: str, *words: str, script: str = __file__) -> None:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        self.process = subprocess.Popen(
            [sys.executable, script, verb, *words], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=env
        )

    def line(self) -> str:
        """Wait for a line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        """Let it begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for its end; return what it said last."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return json.loads(out.strip().splitlines()[-1])

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[Any]:
    children: list[Child] = []

    def begin(verb: str, *words: str) -> Child:
        children.append(Child(verb, *words))
        return children[-1]

    yield begin
    for child in children:
        child.end()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A URL and a table name that no other test uses."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db", "mainspring_jobs"
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return server.url, f"p{new_token().replace('-', '')}{os.getpid()}_jobs"


@pytest.fixture
def store(place: tuple[str, str]) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(place[0], tablename=place[1])
    yield store
    store.shutdown()


def _together(start: Any, verb: str, place: tuple[str, str], number: int = PROCESSES) -> list[Any]:
    children = [start(verb, *place) for _ in range(number)]
    assert [child.line() for child in children] == ["ready"] * number
    for child in children:
        child.go()
    return [child.answer() for child in children]


def test_each_run_is_claimed_by_one_process(store: SQLAlchemyJobStore, place: tuple[str, str], start: Any) -> None:
    runs = [make_run(store) for _ in range(400)]
    store.add_runs(runs)
    claimed = _together(start, "claim", place)
    assert sorted(run_id for mine in claimed for run_id in mine) == sorted(run.id for run in runs)
    assert store.stats().totals["succeeded"] == len(runs)


def test_each_due_job_is_fired_by_one_process(store: SQLAlchemyJobStore, place: tuple[str, str], start: Any) -> None:
    store.add_jobs([make_job(store, f"job-{n}", due_in=-30, every=3600) for n in range(300)])
    fired = [run_id for mine in _together(start, "fire", place) for run_id in mine]
    assert len(fired) == len(set(fired)) == 300
    assert {run.id for run in store.find_runs(RunQuery(), limit=1000)} == set(fired)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_several_processes_create_the_tables_at_once(
    kind: str, start: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/new.db"
    else:
        server: PostgreSQL | MariaDB = request.getfixturevalue(f"{kind}_server")
        url = server.url
    versions = _together(start, "create", (url, f"new{os.getpid()}_jobs"), 3)
    assert len(set(versions)) == 3


def test_a_forked_child_opens_connections_of_its_own(start: Any, place: tuple[str, str]) -> None:
    child = start("fork", *place)
    assert child.answer() == {"child": 25, "parent": 25}


def test_a_process_killed_inside_a_transaction_leaves_nothing_of_it(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    kept = add_run(store)
    child = start("hang", f"sqlite:///{path}", "mainspring_jobs")
    assert child.line() == "inside"
    child.process.send_signal(signal.SIGKILL)
    child.process.wait()
    assert [run.id for run in store.find_runs(RunQuery())] == [kept.id]
    after = add_run(store)
    assert {run.id for run in claim(store)} == {kept.id, after.id}
    store.shutdown()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_change_in_another_process_wakes_a_sleeper(
    store: SQLAlchemyJobStore, place: tuple[str, str], start: Any
) -> None:
    child = start("add", *place)
    assert child.line() == "ready"
    cursor = store.wait(store.wait(0, 0), 0)
    # Only a message counts here, not a look of the sleeper's own; MariaDB has no messages.
    database = store._open()
    if database.kind != "mysql":
        database.waker.look_every = None
    child.go()
    assert store.wait(cursor, 50) != cursor
    [run_id] = child.answer()
    assert [run.id for run in claim(store)] == [run_id]


def test_the_socket_of_a_dead_process_is_swept_away(tmp_path: Path, start: Any) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = SQLAlchemyJobStore(url)
    store.wait(0, 0)
    child = start("wait", url, "mainspring_jobs")
    assert child.line() == "ready"
    folder = tmp_path / "jobs.db-wake"
    assert len(list(folder.iterdir())) == 2
    child.end()
    add_run(store)
    assert len(list(folder.iterdir())) == 1
    store.shutdown()
    assert not folder.exists()


# -- the other processes -------------------------------------------------------------------------------------------


def _claim(store: SQLAlchemyJobStore) -> list[str]:
    mine: list[str] = []
    while store.stats(RunQuery(status=(Status.PENDING,))).matching:
        runs = claim(store, limit=7, node=str(os.getpid()), token=f"{os.getpid()}-{new_token()}")
        assert all(store.settle([succeed(store, run) for run in runs]))
        mine += [run.id for run in runs]
    return mine


def _fire(store: SQLAlchemyJobStore) -> list[str]:
    mine: list[str] = []
    while (first := store.due(0, 0).next_at) is not None and first <= store.beat():
        page = store.due(20, 0)  # hidden for no time at all, so that the schedulers really meet
        steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
        mine += [run_id for answer in store.fire(steps, 60) for run_id in answer or ()]
    return mine


def _create(store: SQLAlchemyJobStore) -> int:
    job = make_job(store, f"job-{os.getpid()}")
    store.add_job(job)
    return job.version


def _add(store: SQLAlchemyJobStore) -> list[str]:
    return [str(run_id) for run_id in store.add_runs([make_run(store, f"from-{os.getpid()}")])]


def _fork(store: SQLAlchemyJobStore) -> dict[str, int]:
    store.add_runs([make_run(store) for _ in range(50)])
    store.wait(0, 0)
    reader, writer = os.pipe()
    pid = os.fork()
    done = 0
    for number in range(25):
        runs = claim(store, limit=1, node=str(os.getpid()), token=f"{os.getpid()}-{number}")
        done += sum(store.settle([succeed(store, run) for run in runs]))
    if pid == 0:
        store.shutdown()
        os.write(writer, str(done).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    add_run(store)  # the parent's connections still work after the child has gone
    return {"child": int(os.read(reader, 10)), "parent": done}


def _hang(store: SQLAlchemyJobStore) -> None:
    def work(tx: Any) -> None:
        tx.run("DELETE FROM {runs}")
        print("inside", flush=True)
        time.sleep(60)

    store._write(work)


def _main(verb: str, url: str, tablename: str) -> None:
    store = SQLAlchemyJobStore(url, tablename=tablename)
    if verb == "wait":
        store.wait(0, 0)
        print("ready", flush=True)
        store.wait(2, 60)
        return
    if verb in ("claim", "fire", "create", "add"):
        if verb != "create":
            store.beat()
        print("ready", flush=True)
        sys.stdin.readline()
    verbs = {"claim": _claim, "fire": _fire, "create": _create, "add": _add, "fork": _fork, "hang": _hang}
    print(json.dumps(verbs[verb](store)))
    store.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
