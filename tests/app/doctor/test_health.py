"""What stores say of their durability, asked of real servers with each setting that matters."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine, text

from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.health import Health, check_requirement, enforce, lacks
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.redis.store import REDIS_SCHEMA
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy import health as sql_health
from mainspring.jobstores.sqlalchemy.meta import SQL_SCHEMA
from mainspring.testing.conformance.helpers import new_id
from tests.servers import MariaDB, PostgreSQL, Redis, Server, Valkey

Start = Callable[[type[Server]], Server]


class Foreign(MemoryJobStore):
    """A store that lasts and has no word to say of it."""

    volatile = False


def _said(health: Health) -> str:
    return "; ".join(health.reasons)


def test_a_store_in_memory_is_volatile_and_one_that_does_not_say_is_unknown() -> None:
    assert MemoryJobStore().health().level == "volatile"
    assert Foreign().health().level == "unknown"


# -- SQLite --------------------------------------------------------------------------------------------------------


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have files be on a file system of some kind, wherever the tests run."""
    return lambda kind: monkeypatch.setattr(sql_health, "file_system", lambda path: kind)


def _sqlite(url: str, **options: Any) -> Health:
    store = SQLAlchemyJobStore(url, **options)
    try:
        return store.health()
    finally:
        store.shutdown()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS keeps data in the drive")
def test_sqlite_is_durable_with_full_sync_on_a_local_disk_only(tmp_path: Path, on: Callable[[str], None]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    on("ext4")
    health = _sqlite(url)
    assert (health.level, health.schema, health.version[:8]) == ("durable", SQL_SCHEMA, "SQLite 3")
    assert _said(health) == "journal_mode is wal and synchronous is FULL, on a local disk (ext4)"
    normal = _sqlite(url, synchronous="NORMAL")
    assert normal.level == "volatile"
    assert "synchronous is NORMAL: it survives kill -9" in _said(normal)
    for kind, words in (
        ("tmpfs", "which is memory"),
        ("nfs4", "network file system"),
        ("fuse.sshfs", ""),
    ):
        on(kind)
        health = _sqlite(url)
        assert health.level == "volatile"
        assert words in _said(health)
    on("overlay")
    health = _sqlite(url)
    assert health.level == "durable"
    assert any("lost with its container" in warning for warning in health.warnings)


def test_sqlite_in_memory_is_volatile() -> None:
    health = _sqlite("sqlite://")
    assert health.level == "volatile"
    assert "name a file" in _said(health)


def test_a_disk_that_is_nearly_full_is_a_warning(
    tmp_path: Path, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on("ext4")
    monkeypatch.setattr(sql_health, "FREE_DISK_BYTES", 1 << 62)
    assert "are free on the disk of" in _sqlite(f"sqlite:///{tmp_path}/jobs.db").warnings[0]


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="only Linux tells")
def test_the_file_system_of_a_file_is_that_of_the_innermost_mount() -> None:
    assert sql_health.file_system("/proc/self/status") == "proc"
    assert sql_health.file_system("/proc-not") == sql_health.file_system("/")


# -- PostgreSQL ----------------------------------------------------------------------------------------------------


def test_postgresql_is_what_its_settings_make_it(start_server: Start) -> None:
    server = start_server(PostgreSQL)
    store = SQLAlchemyJobStore(server.url)
    health = store.health()
    assert (health.level, health.warnings, health.schema) == ("durable", (), SQL_SCHEMA)
    assert health.version.startswith("PostgreSQL 1")
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT")

    def told(name: str, value: str, level: str) -> Health:
        with engine.connect() as connection:
            connection.execute(text(f"ALTER SYSTEM SET {name} = '{value}'"))
            connection.execute(text("SELECT pg_reload_conf()"))
        # A back end learns of it between two statements, when the signal has reached it.
        deadline = time.monotonic() + 30
        while (health := store.health()).level != level:
            assert time.monotonic() < deadline, health
            time.sleep(0.01)
        return health

    assert "synchronous_commit is off" in _said(told("synchronous_commit", "off", "volatile"))
    told("synchronous_commit", "on", "durable")
    assert "full_page_writes is off" in _said(told("full_page_writes", "off", "volatile"))
    told("full_page_writes", "on", "durable")
    health = told("synchronous_standby_names", "FIRST 2 (a, b, c)", "replicated(2)")
    assert "waits for 2 of the standbys" in _said(health)
    assert health.warnings == ("0 of 2 synchronous standbys are connected: commits wait for more",)
    told("synchronous_commit", "local", "durable")
    engine.dispose()
    store.shutdown()


def test_postgresql_without_fsync_is_volatile_and_missing_time_outs_are_told(postgresql_server: PostgreSQL) -> None:
    bare = {"connect_args": {"options": ""}}
    store = SQLAlchemyJobStore(postgresql_server.url, tablename=f"{new_id('h')}_jobs", engine_options=bare)
    health = store.health()
    assert health.level == "volatile"
    assert "fsync is off" in _said(health)
    assert "full_page_writes is off" in _said(health)
    assert [warning.split()[0] for warning in health.warnings] == ["statement_timeout", "plan_cache_mode"]
    store.shutdown()


@pytest.mark.parametrize(
    ("names", "number"),
    [("", 0), ("a", 1), ("a, b", 1), ("2 (a, b)", 2), ("FIRST 3 (*)", 3), ("any 2(a,b,c)", 2), ('"3 (x)"', 1)],
)
def test_the_standbys_that_a_commit_waits_for_are_counted(names: str, number: int) -> None:
    assert sql_health.standbys(names) == number


# -- MariaDB -------------------------------------------------------------------------------------------------------


def test_mariadb_is_what_its_settings_make_it(mariadb_server: MariaDB) -> None:
    store = SQLAlchemyJobStore(mariadb_server.url, tablename=f"{new_id('h')}_jobs")
    health = store.health()
    assert (health.level, health.schema) == ("volatile", SQL_SCHEMA)
    assert health.version.startswith("MariaDB 1")
    assert "innodb_flush_log_at_trx_commit is 2: it survives kill -9" in _said(health)
    engine = create_engine(mariadb_server.url)
    with engine.connect() as connection:
        connection.execute(text("SET GLOBAL innodb_flush_log_at_trx_commit = 1"))
        try:
            health = store.health()
        finally:
            connection.execute(text("SET GLOBAL innodb_flush_log_at_trx_commit = 2"))
    engine.dispose()
    store.shutdown()
    assert (health.level, health.warnings) == ("durable", ())
    assert _said(health) == "innodb_flush_log_at_trx_commit is 1, there is no binlog"


def test_a_binary_log_that_waits_or_has_statements_is_told() -> None:
    class Tx:
        settings = {  # noqa: RUF012
            "innodb_flush_log_at_trx_commit": "1",
            "log_bin": "ON",
            "sync_binlog": "0",
            "binlog_format": "STATEMENT",
            "version": "8.0.36",
        }

        database = SimpleNamespace(names={})

        def all(self, statement: str, *params: Any) -> Any:
            return [(0,)] if "sum(data_length" in statement else self.settings.items()

        many = list

        def one(self, statement: str, *params: Any) -> Any:
            return (1,)

        def raw(self, statement: str, *params: Any) -> Any:
            return [(b"2",)]

    health = sql_health._mariadb(Tx())  # type: ignore[arg-type]
    assert (health.level, health.version) == ("volatile", "MySQL 8.0.36")
    assert "sync_binlog is 0" in _said(health)
    assert "SKIP LOCKED" in health.warnings[0]


# -- Redis ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(start_server: Start) -> Server:
    return start_server(Redis)


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def _redis(server: Server, url: str | None = None, **options: Any) -> Health:
    store = RedisJobStore(url=url or server.url, **options)
    try:
        return store.health()
    finally:
        store.shutdown()


def test_redis_is_what_its_append_only_file_makes_it(server: Server, client: redis.Redis) -> None:
    client.config_set("appendfsync", "everysec")
    health = _redis(server)
    assert (health.level, health.schema, health.warnings) == ("volatile", REDIS_SCHEMA, ())
    assert _said(health) == (
        "appendfsync is everysec: a power failure costs about the last second, and kill -9 up to two seconds if the "
        "disk is slow; set appendfsync always"
    )
    client.config_set("appendfsync", "always")
    health = _redis(server)
    assert (health.level, _said(health)) == ("durable", "appendonly is yes and appendfsync is always")
    assert health.version.startswith("Redis ")
    client.config_set("no-appendfsync-on-rewrite", "yes")
    assert "while the file is rewritten" in _said(_redis(server))
    client.config_set("appendfsync", "no")
    assert "some 30 s" in _said(_redis(server))
    client.config_set("appendonly", "no")
    health = _redis(server)
    assert (health.level, _said(health)[:16]) == ("volatile", "appendonly is no")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert "throws jobs and runs away" in _redis(server).warnings[0]


def test_a_user_who_may_not_ask_redis_is_told_what_is_not_known(server: Server, client: redis.Redis) -> None:
    for name, rules in (("some", ("-config",)), ("none", ("-config", "-info"))):
        client.execute_command("ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all", *rules)  # type: ignore[no-untyped-call]
    some, none = (_redis(server, server.url.replace("//", f"//{name}:pw@")) for name in ("some", "none"))
    assert some.level == none.level == "unknown"
    assert "may not ask for appendfsync by CONFIG GET" in _said(some)
    assert "may not ask by INFO" in _said(none)


def test_writes_that_wait_for_replicas_are_replicated(server: Server, client: redis.Redis) -> None:
    client.config_set("appendfsync", "everysec")
    health = _redis(server, replicas=2)
    assert health.level == "replicated(2)"
    assert _said(health).startswith("each write waits until 2 replicas have it; appendfsync is everysec")
    assert health.warnings == ("0 of 2 replicas are connected: nothing is acknowledged without them",)


def test_a_redis_server_that_is_gone_is_unavailable(server: Server) -> None:
    store = RedisJobStore(url=server.url)
    assert store.health().level == "volatile"
    server.kill()
    with pytest.raises(StoreUnavailable):
        store.health()
    server.restart()
    assert store.health().level == "volatile"
    store.shutdown()


def test_valkey_is_called_by_its_name(valkey_server: Valkey) -> None:
    assert _redis(valkey_server).version.startswith("Valkey ")


# -- what may be required ------------------------------------------------------------------------------------------


def test_durable_asks_for_the_disk_and_replicated_for_other_servers() -> None:
    volatile, unknown, durable = (Health(durable=value) for value in (False, None, True))
    both, memory = Health(durable=True, replicas=2), Health(durable=False, replicas=1)
    wanted = {
        "durable": [volatile, unknown, memory],
        "replicated": [volatile, unknown, durable],
        "replicated(2)": [volatile, unknown, durable, memory],
    }
    for require, lacking in wanted.items():
        for health in (volatile, unknown, durable, both, memory):
            assert lacks(health, require) is (health in lacking), (require, health)


@pytest.mark.parametrize("word", ["durabel", "volatile", "replicated(0)", "replicated(100)", "replicated()", "", 1])
def test_a_level_that_is_none_is_named(word: Any) -> None:
    with pytest.raises(ConfigurationError, match="it can be 'durable', 'replicated' or"):
        check_requirement(word)
    assert [check_requirement(right) for right in ("durable", "replicated", "replicated(12)")]


def test_a_store_below_what_is_required_is_refused_with_the_reason_and_the_setting(tmp_path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db", synchronous="NORMAL")
    with pytest.raises(ConfigurationError, match=r"require='durable', and <SQL.*> is volatile: .* set synchronous="):
        enforce(store, "durable")
    store.shutdown()
