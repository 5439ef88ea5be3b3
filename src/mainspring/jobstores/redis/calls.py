"""Call scripts on shards; the first call sets the shards up, or checks that they belong to this store."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mainspring.codec import Codec
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.base import Generation
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.redis.connection import RedisConnection
from mainspring.jobstores.redis.servers import Servers
from mainspring.jobstores.redis.shards import Shard, Shards
from mainspring.jobstores.redis.waiting import Subscriptions
from mainspring.locks import free_in_children

__all__ = ["REDIS_SCHEMA", "RedisCalls"]

REDIS_SCHEMA: Final = 5


class RedisCalls(RecordStore):
    """The shards of a store, and the connection to their servers."""

    def __init__(self, codec: Codec | None, name: str, shards: Shards, servers: Servers, replicas: int) -> None:
        super().__init__(codec)
        self.name = name
        self._shards, self._servers = shards, servers
        self._link = RedisConnection(servers, shards.channels, replicas, (REDIS_SCHEMA, len(shards.all)))
        self._subscriptions, self._ends = Subscriptions(self._link), Subscriptions(self._link)
        self._opened = False
        self._opening = free_in_children(threading.Lock())

    def _call(self, shard: Shard, script: str, args: Sequence[Any] = (), *, reads: bool = False) -> Any:
        if not self._opened:
            self._open()
        return self._link.call(script, shard, args, reads=reads)

    def _stream(self, shard: Shard, script: str, batches: Iterable[Sequence[Any]]) -> list[Any]:
        if not self._opened:
            self._open()
        return self._link.stream(script, shard, batches)

    def generations(self) -> tuple[Generation, ...]:
        """Return the identity of each shard, by which callers notice lost data; set up a shard that lost everything."""
        return self._open()

    def _open(self) -> tuple[Generation, ...]:
        """Write the identity of each shard that has none; check that of the others."""
        found = []
        with self._opening:
            number = len(self._shards.all)
            for shard in self._shards.all:
                # Repeating this script changes nothing, so it counts as a read: its outcome is never unknown.
                schema, known, made, version = self._link.call("open", shard, [REDIS_SCHEMA, number], reads=True)
                if schema < 0:
                    key, owner = made.decode(), version.decode()
                    raise ConfigurationError(
                        f"the key {key!r} in Redis at {self._link.place} belongs to another store, whose keys begin "
                        f"with {owner!r}; give each store its own jobs_key and run_times_key, or delete "
                        f"{f'{key}:owner'!r} if that store is no longer used"
                    )
                if schema == 0:
                    raise ConfigurationError(
                        f"the keys {shard.jobs!r} and {shard.times!r} in Redis at {self._link.place} hold data that "
                        "mainspring did not write; choose other keys, or take the data over with `mainspring import`"
                    )
                if schema < REDIS_SCHEMA:
                    raise ConfigurationError(
                        f"the store {self.name!r} in Redis at {self._link.place} has schema {schema}, of before the "
                        f"first release, and this version of mainspring knows {REDIS_SCHEMA} only; choose another name "
                        f"or delete the keys that begin with {shard.prefix!r}"
                    )
                if schema > REDIS_SCHEMA:
                    raise StoreUnavailable(
                        f"the store {self.name!r} in Redis at {self._link.place} has schema {schema} and this version "
                        f"of mainspring knows {REDIS_SCHEMA} at most; upgrade it"
                    )
                if known != number:
                    raise ConfigurationError(
                        f"the store {self.name!r} in Redis at {self._link.place} was made with shards={known}, not "
                        f"shards={number}; their number cannot be changed"
                    )
                found.append(Generation(made.decode(), int(version)))
            self._opened = True
        return tuple(found)
