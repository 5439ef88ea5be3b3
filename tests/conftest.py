"""What every test may use: the servers, and Hypothesis without randomness."""

from __future__ import annotations

import logging
import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NoReturn, TypeVar

import pytest
import redis
from hypothesis import settings
from sqlalchemy import create_engine, text

from tests.servers import SERVERS, Etcd, MariaDB, MissingServer, PostgreSQL, Redis, Server, Valkey, ZooKeeper
from tests.stand_ins import Reqlite, SecantusDB

AnyServer = TypeVar("AnyServer", bound=Server)

settings.register_profile("ci", derandomize=True, deadline=None, database=None)
settings.register_profile("brief", max_examples=10, derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("MAINSPRING_HYPOTHESIS", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's `&` starts us so, and the programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

STRICT = os.environ.get("MAINSPRING_STRICT") == "1"
_versions: dict[str, str] = {"SQLite": sqlite3.sqlite_version, "memory": ""}
"""What the servers that were started said of themselves."""
_counts: dict[str, Counter[str]] = {}
_started_for_one = pytest.StashKey[set[str]]()


@pytest.fixture(autouse=True)
def default_log_level(request: pytest.FixtureRequest) -> Iterator[None]:
    """Show a test the log as it is by default: a Django project, once it is set up, sets its level for good."""
    logger = logging.getLogger("mainspring")
    level = logger.level
    if "django" not in request.node.nodeid:
        logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(level)


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
    _versions.setdefault(kind.name, _asked_version(server))
    return server


def _asked_version(server: Server) -> str:
    """Return the version that a running server states."""
    if isinstance(server, Redis):
        with redis.Redis.from_url(server.url) as client:
            info = client.info("server")
        return str(info.get("valkey_version") or info["redis_version"])
    if not isinstance(server, PostgreSQL | MariaDB):
        return server.version
    engine = create_engine(server.url)
    with engine.connect() as connection:
        said = str(connection.scalar(text("SELECT version()")))
    engine.dispose()
    number = re.search(r"\d+(\.\d+)+", said)
    return said if number is None else number.group()


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


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeper]:
    """A ZooKeeper server shared by all tests: each has a path of its own."""
    yield from _for_the_session(ZooKeeper)


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Etcd]:
    """An etcd server shared by all tests: each has a path of its own."""
    yield from _for_the_session(Etcd)


@pytest.fixture(scope="session")
def secantusdb_server() -> Iterator[SecantusDB]:
    """A stand-in for MongoDB, shared by all tests."""
    yield from _for_the_session(SecantusDB)


@pytest.fixture(scope="session")
def reqlite_server() -> Iterator[Reqlite]:
    """A stand-in for RethinkDB, shared by all tests."""
    yield from _for_the_session(Reqlite)


@pytest.fixture
def start_server(request: pytest.FixtureRequest) -> Iterator[Callable[[type[Server]], Server]]:
    """Start a durable server for this test alone, which may kill it."""
    with ExitStack() as stack:

        def start(kind: type[Server]) -> Server:
            server = _start(kind, durable=True)
            request.node.stash.setdefault(_started_for_one, set()).add(kind.name)
            stack.callback(server.stop)
            return server

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note on each test which servers it used, or SQLite or memory if it is named after them."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    fixtures = set(getattr(item, "fixturenames", ()))
    used = {kind.name for kind in SERVERS if f"{kind.name.lower()}_server" in fixtures}
    started: set[str] = item.stash.get(_started_for_one, set[str]())
    used |= started
    # Tests that choose their server by a parameter name it in their id.
    chosen = item.nodeid.lower()
    named = (*(kind.name for kind in SERVERS if f"[{kind.name.lower()}" in chosen), "SQLite", "memory")
    used |= {name for name in named if name.lower() in chosen}
    # Between processes only text that can be encoded travels, and some tests log what cannot.
    report.sections = [(title, told.encode(errors="replace").decode()) for title, told in report.sections]
    report.user_properties += [("server", [name, _versions.get(name, "")]) for name in sorted(used)]
    return report  # type: ignore[return-value]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count, also what a process of a parallel run reports."""
    if report.when != "call" and report.outcome == "passed":
        return
    outcome = "failed as expected" if hasattr(report, "wasxfail") else report.outcome
    for key, value in report.user_properties:
        if key == "server" and isinstance(value, list):
            name, version = map(str, value)
            _counts.setdefault(name, Counter())[outcome] += 1
            if version:
                _versions[name] = version


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran on which version of which server, and what is missing."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    terminalreporter.section("servers")
    for name in (*(kind.name for kind in SERVERS), "SQLite", "memory"):
        counted = _counts.get(name)
        if counted:
            told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items()))
            terminalreporter.write_line(f"{name:<11} {_versions.get(name, 'MISSING'):<10} {told}")
    for kind in SERVERS:
        try:
            kind.find()
        except MissingServer as missing:
            terminalreporter.write_line(f"{kind.name:<11} MISSING    {missing}", red=True, bold=True)
