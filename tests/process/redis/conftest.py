"""A Redis server for the tests of its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
import redis

from mainspring.jobstores.redis import RedisJobStore
from tests.servers import Redis

_names = count(1)


@pytest.fixture
def client(redis_server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield client
        client.flushdb()


@pytest.fixture
def make_store(redis_server: Redis, client: redis.Redis) -> Iterator[Callable[..., RedisJobStore]]:
    made: list[RedisJobStore] = []

    def make(name: str | None = None, **options: object) -> RedisJobStore:
        made.append(RedisJobStore(url=redis_server.url, name=name or f"own-{next(_names)}", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for store in made:
        store.shutdown()
