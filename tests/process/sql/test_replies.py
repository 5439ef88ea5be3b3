"""The database commits and its reply is lost: the caller is told so, and may say the same again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import make_url

from mainspring.core.run import Status
from mainspring.errors import ConflictingIdError, OutcomeUnknown
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    add_run,
    cancel_all,
    claim,
    due_one,
    make_job,
    make_run,
    new_id,
    new_token,
    start,
    step,
    succeed,
)
from tests.servers import MariaDB, PostgreSQL


class Proxy:
    """Passes bytes on between clients and a server, until it is told which words' answer to swallow."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.words: bytes | None = None
        self.swallowed = 0
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Hang up everywhere."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                self._threads.append(threading.Thread(target=self._pass_on, args=(client, server), daemon=True))
                self._threads[-1].start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        deaf = threading.Event()
        answers = threading.Thread(target=self._answer, args=(client, server, deaf), daemon=True)
        answers.start()
        with suppress(OSError):
            while said := client.recv(1 << 16):
                if self.words is not None and self.words in said:
                    self.words = None
                    deaf.set()
                server.sendall(said)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        answers.join(10)

    def _answer(self, client: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with suppress(OSError):
            while said := server.recv(1 << 16):
                if deaf.is_set():
                    self.swallowed += 1  # the server has answered, so what it was asked for is done
                    break
                client.sendall(said)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["postgresql", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(kind: str, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{kind}_server")
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def store(kind: str, proxy: Proxy, request: pytest.FixtureRequest) -> Iterator[SQLAlchemyJobStore]:
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{kind}_server")
    url = make_url(server.url).set(port=proxy.port)
    store = SQLAlchemyJobStore(url, tablename="replies_jobs")
    store.remove_all_jobs()
    cancel_all(store)
    yield store
    store.shutdown()


@pytest.fixture
def lose(proxy: Proxy) -> Callable[..., None]:
    """Do something and lose the reply to the words that make it last."""

    def act(words: bytes, act: Callable[[], Any]) -> None:
        proxy.words = words
        with pytest.raises(OutcomeUnknown):
            act()
        assert proxy.swallowed == 1

    return act


Lose = Callable[[bytes, Callable[[], Any]], None]
COMMIT = {"postgresql": b"COMMIT\0", "mariadb": b"COMMIT"}
# PostgreSQL adds, claims and ends runs and fires by one statement each, which commits itself.
ADD = {"postgresql": b"INSERT INTO", "mariadb": b"COMMIT"}
FIRE = {"postgresql": b"WITH jobs0", "mariadb": b"COMMIT"}
CLAIM = {"postgresql": b"SKIP LOCKED", "mariadb": b"COMMIT"}
END = {"postgresql": b"WITH ended", "mariadb": b"COMMIT"}


def test_a_run_added_again_is_there_once(store: SQLAlchemyJobStore, lose: Lose, kind: str) -> None:
    run = make_run(store, queue=new_id("queue"))
    lose(ADD[kind], lambda: store.add_runs([run]))
    assert store.add_runs([run]) == [run.id]
    assert [one.id for one in claim(store, run.queue)] == [run.id]


def test_a_run_with_a_key_added_again_is_there_once(store: SQLAlchemyJobStore, lose: Lose, kind: str) -> None:
    run = make_run(store, queue=new_id("queue"), unique=new_id("key"))
    lose(COMMIT[kind], lambda: store.add_runs([run]))
    assert store.add_runs([run]) == [run.id]
    assert [one.id for one in claim(store, run.queue)] == [run.id]


def test_a_job_added_again_is_found_to_be_there(store: SQLAlchemyJobStore, lose: Lose) -> None:
    job = make_job(store)
    lose(b"INSERT INTO", lambda: store.add_job(job))
    with pytest.raises(ConflictingIdError):
        store.add_job(job)
    assert [one.id for one in store.get_all_jobs()] == [job.id]


def test_a_claim_made_again_with_its_token_holds_the_same_runs(
    store: SQLAlchemyJobStore, lose: Lose, kind: str
) -> None:
    run, token = add_run(store, queue=new_id("queue")), new_token()
    lose(CLAIM[kind], lambda: claim(store, run.queue, token=token))
    assert [(one.id, one.attempt) for one in claim(store, run.queue, token=token)] == [(run.id, 1)]


def test_an_end_told_again_is_refused_and_counted_once(store: SQLAlchemyJobStore, lose: Lose, kind: str) -> None:
    before = store.stats().totals["succeeded"]
    outcome = succeed(store, start(store, queue=new_id("queue")))
    lose(END[kind], lambda: store.settle([outcome]))
    assert store.settle([outcome]) == [False]
    [run] = store.get_runs([outcome.run.id])
    assert run is not None
    assert run.status is Status.SUCCEEDED
    assert store.stats().totals["succeeded"] == before + 1


def test_a_fire_made_again_is_lost_and_its_run_is_there_once(store: SQLAlchemyJobStore, lose: Lose, kind: str) -> None:
    add_job(store)
    due = due_one(store)
    run = make_run(store, f"job@{due.incarnation}@{due.at}", job_id="job")
    fire = step(store, due.job, runs=(run,))
    lose(FIRE[kind], lambda: store.fire([fire], LEASE))
    assert store.fire([fire], LEASE) == [None]
    assert [one.id for one in store.find_runs(RunQuery(job_id="job", status=(Status.PENDING,)))] == [run.id]
