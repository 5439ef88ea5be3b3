"""Shops to act on: on SQLite, and on the servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import MetaData, create_engine

from tests.cli.kit import Shop
from tests.servers import PostgreSQL, Redis


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop on SQLite."""
    made = Shop(f"sqlite:///{tmp_path}/jobs.db")
    made.open()
    yield made
    made.app.close()


@pytest.fixture
def redis_shop(redis_server: Redis) -> Iterator[Shop]:
    """A shop on Redis."""
    made = Shop(redis_server.url, name="cli-shop")
    made.open()
    yield made
    made.app.close()
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(*client.scan_iter("*cli-shop*"))


@pytest.fixture
def postgresql_shop(postgresql_server: PostgreSQL) -> Iterator[Shop]:
    """A shop on PostgreSQL."""
    made = Shop(postgresql_server.url, name="cli_shop")
    made.open()
    yield made
    made.app.close()
    # Not emptied but dropped: the tables also keep the time, and the next test, minutes later, would see it jump.
    engine = create_engine(postgresql_server.url)
    tables = MetaData()
    tables.reflect(engine, only=lambda name, _: name.startswith("cli_shop"))
    tables.drop_all(engine)
    engine.dispose()


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def any_shop(request: pytest.FixtureRequest) -> Shop:
    """The same shop on each kind of store."""
    name = "shop" if request.param == "sqlite" else f"{request.param}_shop"
    found: Shop = request.getfixturevalue(name)
    return found
