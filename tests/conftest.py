"""What every test may use: the servers, and Hypothesis without randomness."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NoReturn, TypeVar

import pytest
from hypothesis import settings

from tests.servers import SERVERS, MariaDB, MissingServer, PostgreSQL, Redis, Server, Valkey

AnyServer = TypeVar("AnyServer", bound=Server)

settings.register_profile("ci", derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("MAINSPRING_HYPOTHESIS", "ci"))

STRICT = os.environ.get("MAINSPRING_STRICT") == "1"
_started: set[str] = set()


def _do_without(missing: MissingServer) -> NoReturn:
    """Skip on a laptop, fail where every server has to be there."""
    if STRICT:
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))


def _start(kind: type[AnyServer], *, durable: bool = False) -> AnyServer:
    try:
        server = kind(durable=durable).start()
    except MissingServer as missing:
        _do_without(missing)
    _started.add(kind.name)
    return server


def _for_the_session(kind: type[AnyServer]) -> Iterator[AnyServer]:
    server = _start(kind)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis server shared by all tests: leave it running and clean up your keys."""
    yield from _for_the_session(Redis)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """A Valkey server shared by all tests."""
    yield from _for_the_session(Valkey)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    """A PostgreSQL server shared by all tests."""
    yield from _for_the_session(PostgreSQL)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    """A MariaDB server shared by all tests."""
    yield from _for_the_session(MariaDB)


@pytest.fixture
def start_server() -> Iterator[Callable[[type[Server]], Server]]:
    """Start a durable server for this test alone, which may kill it."""
    with ExitStack() as stack:

        def start(kind: type[Server]) -> Server:
            server = _start(kind, durable=True)
            stack.callback(server.stop)
            return server

        yield start


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the servers: which version was tested against, and what is missing."""
    terminalreporter.section("servers")
    for kind in SERVERS:
        try:
            used = "tested against" if kind.name in _started else "not needed by these tests"
            terminalreporter.write_line(f"{kind.name:<11} {kind.find_version():<10} {used}")
        except MissingServer as missing:
            terminalreporter.write_line(f"{kind.name:<11} MISSING    {missing}", red=True, bold=True)
