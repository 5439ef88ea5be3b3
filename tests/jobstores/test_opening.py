"""Opening a store by its URL."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, install_command
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryJobStore),
        ("sqlite:///jobs.db", SQLAlchemyJobStore),
        ("postgresql://u:secret@host/db", SQLAlchemyJobStore),
        ("postgresql+psycopg://u:secret@host/db", SQLAlchemyJobStore),
        ("mysql://u:secret@host/db", SQLAlchemyJobStore),
        ("mariadb://u:secret@host/db", SQLAlchemyJobStore),
        ("redis://:secret@host/0", RedisJobStore),
        ("rediss://u:secret@host/0", RedisJobStore),
        ("unix:///tmp/redis.sock", RedisJobStore),
    ],
)
def test_the_scheme_decides_and_nothing_is_opened_nor_shown_of_a_password(
    url: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url)
    assert type(store) is kind
    assert "secret" not in repr(store)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_passed_through() -> None:
    store = MemoryJobStore()
    assert open_store(store) is store
    with pytest.raises(TypeError, match="exists already"):
        open_store(store, name="x")


def test_options_reach_a_store_in_memory_and_unknown_ones_are_refused() -> None:
    store = open_store("memory://", codec=None, keep_runs=0)
    assert type(store) is MemoryJobStore
    with pytest.raises(ConfigurationError, match=r"takes no argument 'keep_run'.*keep_runs"):
        open_store("memory://", keep_run=5)


class NamedStore(MemoryJobStore):
    def __init__(self, url: str, codec: object, name: str = "mine") -> None:
        super().__init__()
        self.name = name


class NamelessStore(MemoryJobStore):
    def __init__(self, url: str, codec: object) -> None:
        super().__init__()


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[JobStore]], None]:
    """Have the scheme third:// open stores of a class."""

    def use(kind: type[JobStore]) -> None:
        point = EntryPoint("third", f"{__name__}:{kind.__name__}", "mainspring.jobstores")
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([point]))

    return use


def test_the_name_of_an_app_reaches_a_third_partys_store(plug_in: Callable[[type[JobStore]], None]) -> None:
    plug_in(NamedStore)
    names = [app.store.name for app in (Mainspring("third://x", name="billing"), Mainspring("third://x"))]  # type: ignore[attr-defined]
    assert names == ["billing", "mine"]


def test_an_app_with_a_name_is_refused_by_a_store_that_takes_none(plug_in: Callable[[type[JobStore]], None]) -> None:
    plug_in(NamelessStore)
    with pytest.raises(ConfigurationError, match="third:// takes no name, so the app 'billing' would share"):
        _ = Mainspring("third://x", name="billing").store
    assert type(Mainspring("third://x").store) is NamelessStore


def test_apps_of_different_names_cannot_have_the_same_store_object() -> None:
    store = MemoryJobStore()
    for _ in range(2):
        assert Mainspring(store, name="billing").store is store
    with pytest.raises(ConfigurationError, match="already belongs to the app 'billing', and the app 'mail'"):
        _ = Mainspring(store, name="mail").store


def test_an_unknown_scheme_names_the_near_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no store for postgressql://; did you mean 'postgresql'"):
        open_store("postgressql://u:secret@host/db")


def test_an_option_that_a_store_does_not_have_names_the_near_one() -> None:
    with pytest.raises(ConfigurationError, match="'sqlite://' takes no argument 'keep_run'; did you mean 'keep_runs'"):
        open_store("sqlite:///jobs.db", keep_run=3)


def test_an_option_in_a_url_that_the_driver_does_not_know_is_named_without_the_password() -> None:
    store = open_store("mysql://u:secret@localhost:1/db?shard=5")
    with pytest.raises(ConfigurationError, match=r"an option in the URL is wrong: .*'shard'") as caught:
        store.stats()
    assert "secret" not in str(caught.value)


def test_what_is_no_url_says_how_to_write_one() -> None:
    with pytest.raises(ConfigurationError, match=r"write it as sqlite:///jobs\.db"):
        open_store("jobs.db")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    for name in [name for name in sys.modules if name.startswith("mainspring.jobstores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match=re.escape(install_command("redis"))):
        open_store("redis://localhost")


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://me:secret@host/db", "psycopg", "postgresql"),
        ("postgres://me:secret@host/db", "psycopg", "postgresql"),
        ("mysql://me:secret@host/db", "pymysql", "mysql"),
        ("mariadb://me:secret@host/db", "pymysql", "mysql"),
    ],
)
def test_a_missing_driver_of_a_database_names_the_extra(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    for use in (lambda: open_store(url), lambda: Mainspring(url).enqueue("mainspring:collect", 0)):
        with pytest.raises(
            ConfigurationError, match=rf"needs {driver}, .*{re.escape(install_command(extra))}"
        ) as caught:
            use()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://jobs.db", "sqlite+pysqlite://jobs.db?timeout=3"])
def test_sqlite_with_two_slashes_says_that_three_are_meant_and_makes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)
    for use in (lambda: open_store(url), lambda: Mainspring(url).enqueue("mainspring:collect", 0)):
        with pytest.raises(ConfigurationError, match=r"three slashes for a relative path: sqlite:///jobs\.db"):
            use()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pass@host/0", "redis://:***@host/0"),
        ("postgresql://user:p@ss:w@host/db", "postgresql://user:***@host/db"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("zookeeper://host/path?auth=digest:ann:pass&tls=1", "zookeeper://host/path?auth=***&tls=1"),
        ("etcd://h/p?runs=redis%3A%2F%2Fu%3Apass%40h&timeout=3", "etcd://h/p?runs=redis%3A%2F%2Fu%3A***%40h&timeout=3"),
    ],
)
def test_a_password_is_masked(url: str, shown: str) -> None:
    assert without_password(url) == shown
