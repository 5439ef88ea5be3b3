"""The three databases, each with empty tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from tests.tracker.kit import Base


@pytest.fixture(scope="session")
def postgresql_tables(postgresql_server: Any) -> Iterator[Engine]:
    # Not UTC, so that a time that is the session's rather than UTC shows.
    yield from _tables(postgresql_server.url, connect_args={"options": "-c timezone=Asia/Tokyo"})


@pytest.fixture(scope="session")
def mariadb_tables(mariadb_server: Any) -> Iterator[Engine]:
    yield from _tables(mariadb_server.url, connect_args={"init_command": "SET time_zone = '+09:00'"})


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Each of the databases."""
    if request.param == "sqlite":
        yield from _tables(f"sqlite:///{tmp_path}/jobs.db")
    else:
        yield _emptied(request.getfixturevalue(f"{request.param}_tables"))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    """SQLite, for what does not depend on the database."""
    yield from _tables(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def postgresql(postgresql_tables: Engine) -> Engine:
    return _emptied(postgresql_tables)


def _tables(url: str, **options: Any) -> Iterator[Engine]:
    engine = create_engine(url, **options)
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def _emptied(engine: Engine) -> Engine:
    with engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())
    return engine
