from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis

from tests.servers import MariaDB, MissingServer, PostgreSQL, Redis, Server, Valkey

StartServer = Callable[[type[Server]], Server]
REPOSITORY = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def adopt_orphans() -> Iterator[None]:
    """Become the parent of grandchildren whose parent has died, so that their end can be waited for."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _write_redis(server: Server) -> None:
    with redis.Redis(port=server.port) as client:
        client.set("greeting", "good morning")


def _read_redis(server: Server) -> str:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        return str(client.get("greeting"))


def _write_postgresql(server: Server) -> None:
    with psycopg.connect(host="127.0.0.1", port=server.port, user="postgres") as connection:
        connection.execute("CREATE TABLE kept (greeting text)")
        connection.execute("INSERT INTO kept VALUES ('good morning')")


def _read_postgresql(server: Server) -> str:
    with psycopg.connect(host="127.0.0.1", port=server.port, user="postgres") as connection:
        row = connection.execute("SELECT greeting FROM kept").fetchone()
        return str(row and row[0])


def _write_mariadb(server: Server) -> None:
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="test") as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE kept (greeting text)")
            cursor.execute("INSERT INTO kept VALUES ('good morning')")
        connection.commit()


def _read_mariadb(server: Server) -> str:
    with (
        pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="test") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT greeting FROM kept")
        row = cursor.fetchone()
        return str(row and row[0])


@pytest.mark.parametrize(
    ("kind", "write", "read"),
    [
        pytest.param(Redis, _write_redis, _read_redis, id="redis"),
        pytest.param(Valkey, _write_redis, _read_redis, id="valkey"),
        pytest.param(PostgreSQL, _write_postgresql, _read_postgresql, id="postgresql"),
        pytest.param(MariaDB, _write_mariadb, _read_mariadb, id="mariadb"),
    ],
)
def test_a_killed_server_comes_back_on_its_port_with_what_was_written(
    start_server: StartServer, kind: type[Server], write: Callable[[Server], None], read: Callable[[Server], str]
) -> None:
    server = start_server(kind)
    port, pid = server.port, server.pid
    write(server)

    server.kill()
    assert not server.running
    server.restart()

    assert (server.port, server.pid != pid) == (port, True)
    assert read(server) == "good morning"


def test_a_stopped_server_leaves_neither_process_nor_folder() -> None:
    server = Valkey().start()
    pid, directory = server.pid, server.directory

    server.stop()

    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_dies_with_the_process_that_started_it(adopt_orphans: None) -> None:
    program = (
        "from tests.servers import Valkey; server = Valkey().start(); print(server.pid, server.directory); input()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()

    owner.send_signal(signal.SIGKILL)
    owner.communicate()

    ended, _ = os.waitpid(int(pid), 0)
    assert ended == int(pid)
    shutil.rmtree(directory)


def test_a_missing_server_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redis, "program", "redis-server-that-is-not-there")

    with pytest.raises(MissingServer, match=r"no redis-server-that-is-not-there .* apt-get install redis-server"):
        Redis()


@pytest.mark.parametrize(("strict", "outcome"), [("0", "1 skipped"), ("1", "1 error")])
def test_a_test_whose_server_is_missing_is_skipped_or_when_strict_fails(
    strict: str, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(redis_server): pass")
    environ = {"PATH": str(tmp_path), "MAINSPRING_STRICT": strict, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    command = [sys.executable, "-m", "pytest", "-rs", "-p", "tests.conftest", str(tmp_path)]
    said = subprocess.run(command, env=environ, cwd=REPOSITORY, capture_output=True, text=True).stdout

    assert outcome in said.splitlines()[-1]
    assert (
        said.count("Redis is missing: no redis-server on this machine. Install it: apt-get install redis-server") >= 2
    )
