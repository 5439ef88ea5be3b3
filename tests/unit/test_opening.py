"""Opening a store by its URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainspring.errors import ConfigurationError
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.opening import open_store, without_password
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
    with pytest.raises(TypeError, match="made already"):
        open_store(store, name="x")


def test_an_unknown_scheme_names_the_near_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no store is known for postgressql://; did you mean 'postgresql'"):
        open_store("postgressql://u:secret@host/db")


def test_what_is_no_url_says_how_to_write_one() -> None:
    with pytest.raises(ConfigurationError, match=r"write it as sqlite:///jobs\.db"):
        open_store("jobs.db")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "mainspring.jobstores.redis")
    with pytest.raises(ConfigurationError, match=r'pip install "mainspring\[redis\]"'):
        open_store("redis://localhost")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pass@host/0", "redis://:***@host/0"),
        ("postgresql://user:p@ss:w@host/db", "postgresql://user:***@host/db"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_a_password_is_masked(url: str, shown: str) -> None:
    assert without_password(url) == shown
