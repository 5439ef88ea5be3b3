"""Alter one value, member or score of a Redis store behind its back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import redis

from mainspring.codec import Codec, Keyring
from mainspring.jobstores.redis import RedisJobStore
from tests.security.altered import KEY

__all__ = ["Alteration", "Keys", "alterations"]

NAME: Final = "altered"
VALUES: Final = (b"", b"abc", b"-1", b"1.5", b"9" * 20, b"\xff\x00", b"x" * 5000)
SCORES: Final = (-1.0, 0.0, 1e18, 1e300, float("inf"), float("-inf"))


class Alteration(NamedTuple):
    """One place of one key, and what is put there; a field of None is the key itself."""

    key: bytes
    field: bytes | None
    value: Any
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key!r} {self.field!r:.80} becomes {self.value!r:.40}"


class Keys:
    """The keys of a store, to be looked at, put back and altered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = redis.Redis.from_url(url)
        self._dumped: dict[bytes, bytes] = {}

    def open(self) -> RedisJobStore:
        """Open the store as a new process does."""
        store = RedisJobStore(url=self.url, name=NAME, codec=Codec(Keyring([KEY])))
        store.start(None, "default")
        return store

    def save(self) -> None:
        """Remember what there is."""
        self._dumped = {key: self.client.dump(key) for key in sorted(self.client.keys("*"))}

    def put_back(self) -> None:
        """Make everything as it was."""
        self.client.flushdb()
        with self.client.pipeline() as pipe:
            for key, dumped in self._dumped.items():
                pipe.restore(key, 0, dumped)
            pipe.execute()

    def alter(self, change: Alteration) -> None:
        """Write one value."""
        key, field, value, kind = change
        if kind == "string":
            self.client.set(key, value)
        elif kind == "hash":
            self.client.hset(key, field, value)
        elif kind == "hash field":
            self.client.hset(key, value, self.client.hget(key, field))
            self.client.hdel(key, field)
        elif kind == "score":
            self.client.zadd(key, {field: value})
        elif kind == "zset":
            self.client.zadd(key, {value: self.client.zscore(key, field)})
            self.client.zrem(key, field)
        else:
            self.client.srem(key, field)
            self.client.sadd(key, value)

    def close(self) -> None:
        """Close all connections."""
        self.client.close()


def alterations(keys: Keys, chance: random.Random) -> Iterator[Alteration]:
    """Yield every alteration to try; what belongs to the neighbours is left alone."""
    client = keys.client
    for key in sorted(client.keys("*")):
        kind = client.type(key).decode()
        if kind == "string":
            value = client.get(key)
            yield from (Alteration(key, None, each, kind) for each in (*VALUES, *_flipped(value, chance)))
        elif kind == "hash":
            for field, value in sorted(client.hgetall(key).items()):
                if b"good" not in key + field + value:
                    yield from (Alteration(key, field, each, kind) for each in (*VALUES, *_flipped(value, chance)))
                    yield from (Alteration(key, field, each, "hash field") for each in _flipped(field, chance)[:1])
        elif kind == "zset":
            for member, _ in client.zrange(key, 0, -1, withscores=True):
                if b"good" not in member:
                    yield from (Alteration(key, member, score, "score") for score in SCORES)
                    yield from (
                        Alteration(key, member, each, kind) for each in (*VALUES[:4], *_flipped(member, chance))
                    )
        else:
            for member in sorted(client.smembers(key)):
                if b"good" not in member:
                    yield from (
                        Alteration(key, member, each, kind) for each in (*VALUES[:4], *_flipped(member, chance))
                    )


def _flipped(value: bytes, chance: random.Random) -> list[bytes]:
    """Return a value with one bit changed, at some places, and cut off."""
    found = []
    for place in sorted(chance.sample(range(len(value)), min(len(value), 30))):
        found.append(value[:place] + bytes([value[place] ^ (1 << chance.randrange(8))]) + value[place + 1 :])
    return [*found, value[: len(value) // 2]] if value else []
