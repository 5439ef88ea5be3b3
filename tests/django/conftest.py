"""Django in this process: the test project's settings, and databases that tests add under aliases of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.project.settings")

import django
import pytest
from django.db import connections, transaction
from sqlalchemy import create_engine, text

from mainspring.django.store.operations import creating
from mainspring.tasks import set_app
from tests.django.project.settings import database
from tests.servers import MariaDB, PostgreSQL

django.setup()
set_app(None)  # other tests of this process make apps of their own

TABLES = ("jobs", "runs", "edges", "limits", "broken", "gone", "queues", "nodes", "totals", "acts", "tallies")


URLS: dict[str, str] = {}
"""The URL of each alias that was added."""
_numbers = count(1)


def fresh_database(url: str) -> str:
    """Make an empty database on a server, and return its URL."""
    name = f"django_{next(_numbers)}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return engine.url.set(database=name).render_as_string(hide_password=False)


@contextmanager
def added_database(alias: str, url: str, *, tables: bool = True, **changes: Any) -> Iterator[str]:
    """Add a database to Django's, with the store's tables."""
    entry = {**database(url), **changes}
    URLS[alias] = url
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: entry})[alias]
    with connections[alias].cursor() as cursor:
        for statement in creating(alias) if tables else ():
            cursor.execute(statement)
    yield alias
    connections[alias].close()
    del connections.settings[alias]
    del connections[alias]


class ClosingThreads(ThreadPoolExecutor):
    """Threads that close their connections of Django's after each call, as the end of a request does."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def closing() -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                connections.close_all()

        return super().submit(closing)


class ClosingThread(Thread):
    """A thread that closes its connections of Django's at its end."""

    def run(self) -> None:
        try:
            super().run()
        finally:
            connections.close_all()


def emptied(alias: str) -> None:
    """Delete everything that tests have stored."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM mainspring_{table}")
        cursor.execute("UPDATE mainspring_meta SET value = 0 WHERE name = 'clock'")


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with added_database("file", f"sqlite:///{tmp_path_factory.mktemp('django')}/db.sqlite3") as alias:
        yield alias


@pytest.fixture(scope="module")
def on_postgresql(postgresql_server: PostgreSQL) -> Iterator[str]:
    with added_database("postgresql", fresh_database(postgresql_server.url)) as alias:
        yield alias


@pytest.fixture(scope="module")
def on_mariadb(mariadb_server: MariaDB) -> Iterator[str]:
    with added_database("mysql", fresh_database(mariadb_server.url)) as alias:
        yield alias
