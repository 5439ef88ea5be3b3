from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import redis

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.testing.conformance import StoreConformance
from tests.conformance.parts import ScriptsPart
from tests.redis_fleet import ClusterFleet
from tests.servers import Redis, Valkey

_names = count(1)


def _empty_store(server: Redis, shards: int = 1) -> Iterator[JobStore]:
    store = RedisJobStore(url=server.url, name=f"conformance-{next(_names)}", shards=shards)
    yield store
    store.shutdown()
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()


@pytest.fixture(scope="module")
def redis_cluster(redis_server: Redis) -> Iterator[ClusterFleet]:
    with ClusterFleet() as fleet:
        yield fleet


class TestRedisJobStore(StoreConformance):
    @pytest.fixture
    def store(self, redis_server: Redis) -> Iterator[JobStore]:
        yield from _empty_store(redis_server)


class TestValkeyJobStore(ScriptsPart):
    @pytest.fixture
    def store(self, valkey_server: Valkey) -> Iterator[JobStore]:
        yield from _empty_store(valkey_server)


class TestShardedRedisJobStore(StoreConformance):
    @pytest.fixture
    def store(self, redis_server: Redis) -> Iterator[JobStore]:
        yield from _empty_store(redis_server, shards=3)


class TestRedisClusterJobStore(ScriptsPart):
    @pytest.fixture
    def store(self, redis_cluster: ClusterFleet) -> Iterator[JobStore]:
        store = RedisJobStore(url=redis_cluster.url, name=f"conformance-{next(_names)}", shards=3, replicas=1)
        yield store
        store.shutdown()
