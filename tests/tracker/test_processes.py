"""Eight processes drain a table while some of them are killed: each job succeeds once, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from mainspring.tracker.sessions import committed, run
from tests.tracker.kit import LONG_AGO, Drained

JOBS = 2000
HOLDS = (3, 40, 80, 0, 0, 0, 0, 0)
VICTIMS = {0: 3, 1: 4}
"""Who is killed, wherever it is, when this worker is killed in the middle of its job."""


@contextmanager
def workers(engine: Engine, *holds: int) -> Iterator[tuple[Iterator[list[str]], IO[str]]]:
    """Start workers; give what they say, word by word, until they have all ended, and their gate."""
    url = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.tracker.drainer", url, *map(str, holds)]
    nursery = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    try:
        yield (line.split() for line in nursery.stdout), nursery.stdin
    finally:
        with suppress(ProcessLookupError):
            os.killpg(nursery.pid, signal.SIGKILL)
        nursery.wait()
        nursery.stdin.close()
        nursery.stdout.close()


@pytest.fixture
def table(engine: Engine) -> Engine:
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.execute(text("PRAGMA journal_mode = WAL"))
    with Session(engine) as session:
        session.add_all(Drained.create(number, 10) for number in range(1, JOBS + 1))
        session.commit()
    return engine


def expire_all(engine: Engine) -> None:
    """Let every lock be past its time, those of the living too; repeat it if it collides with one of them."""
    statement = update(Drained).where(Drained.status == 20).values(lock_at=LONG_AGO)
    run(engine, lambda session: committed(session, lambda session: session.execute(statement)))


def test_every_job_succeeds_once_whoever_is_killed(table: Engine) -> None:
    pids: dict[int, int] = {}
    ended: dict[int, int] = {}
    held: list[int] = []
    with workers(table, *HOLDS) as (said, gate):
        for event, worker, value in ((word, int(worker), int(value)) for word, worker, value in said):
            if event == "started":
                pids[worker] = value
            elif event == "ended":
                ended[worker] = value
            else:
                held.append(value)
                for doomed in {worker, VICTIMS.get(worker, worker)} - ended.keys():
                    os.kill(pids[doomed], signal.SIGKILL)
                if worker in VICTIMS:
                    expire_all(table)
                if len(held) == len(HOLDS) - HOLDS.count(0):
                    gate.close()
    killed = {worker for worker, status in ended.items() if status == signal.SIGKILL}
    assert {worker: ended[worker] for worker in ended.keys() - killed} == dict.fromkeys(ended.keys() - killed, 0)
    assert killed >= {0, 1, 2}
    expire_all(table)  # those whom the dead left behind after the last of the others had ended
    with workers(table, 0) as (said, gate):
        gate.close()
        assert [words[0] for words in said] == ["started", "ended"]
    with Session(table) as session:
        jobs = session.scalars(select(Drained)).all()
    assert Counter((job.status, job.successes, job.lock) for job in jobs) == {(40, 1, None): JOBS}
    attempts = {job.id: job.data["attempts"] for job in jobs}
    assert len(held) == 3
    assert all(attempts[id_] >= 2 for id_ in held)
