"""Wait for changes of a Redis store: subscribe to the channels of its shards, and read the counters behind them."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import redis
from redis.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.redis.connection import RedisConnection
from mainspring.jobstores.redis.errors import CONNECTION
from mainspring.locks import free_in_children

__all__ = ["Subscriptions"]

SUBSCRIBE_SECONDS: Final = 2.0
"""Wait this many seconds until a subscription is confirmed."""
_READS_IN_TIME: Final = "timeout" in inspect.signature(redis.Connection.read_response).parameters
"""True if `read_response` of this redis-py takes a time-out, as it does since version 8."""


class Subscriptions:
    """Subscriptions of one store, each used by one waiting thread at a time."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._sleepers: list[tuple[PubSub, int]] = []
        """The idle subscriptions, each with the count that it reported last."""
        self._lock = free_in_children(threading.Lock())
        self._pid = os.getpid()
        self._closes = 0

    def close(self) -> None:
        """Drop the idle subscriptions. A wait that is under way ends when the caller closes the connections."""
        with self._lock:
            self._closes += 1
            sleepers, self._sleepers = self._sleepers, []
        for sleeper, _ in sleepers:
            _drop(sleeper)

    def wait(self, channels: Sequence[str], cursor: int, timeout: float) -> int:
        """Sleep until the sum of the channels' counters is not `cursor`, or for `timeout` seconds; return the sum."""
        deadline = time.monotonic() + timeout
        if timeout <= 0:
            return self._count(channels)
        closes = self._closes
        sleeper, told = self._sleeper(channels)
        while True:
            try:
                return self._sleep(sleeper, channels, told, cursor, deadline)
            except StoreUnavailable:
                raise
            except (*CONNECTION, RedisError) as error:
                if self._closes != closes:
                    return cursor
                if told is None:
                    raise self._link.refused(error) from error
                # The kept subscription is dead, for example because the server was restarted: make a new one.
                sleeper, told = self._subscribe(channels), None

    def _sleep(self, sleeper: PubSub, channels: Sequence[str], told: int | None, cursor: int, deadline: float) -> int:
        keep = heard = True
        try:
            # Count only after subscribing: the subscription then reports every later change. A kept subscription whose
            # last report is the cursor needs no count.
            count = cursor if told == cursor else self._count(channels)
            while count == cursor and (left := deadline - time.monotonic()) > 0:
                word = _heard(sleeper, left)
                heard = word is not None
                told = _told(word)
                count = told if told is not None and len(channels) == 1 else self._count(channels)
            # The count changed without a message: the subscription is dead although its socket is alive.
            keep = heard or count == cursor
        except BaseException:
            keep = False
            raise
        finally:
            if keep:
                with self._lock:
                    self._sleepers.append((sleeper, count))
            else:
                _drop(sleeper)
        return count

    def _count(self, channels: Sequence[str]) -> int:
        if self._link.servers.spread:
            return sum(int(self._link.ask(channel, "GET", channel) or 0) for channel in channels)
        return sum(int(value or 0) for value in self._link.ask(channels[0], "MGET", *channels))

    def _sleeper(self, channels: Sequence[str]) -> tuple[PubSub, int | None]:
        """Return a subscription and the count that it reported last, or a new subscription and None."""
        with self._lock:
            if self._pid != os.getpid():  # the sockets of a fork's parent are not ours
                self._sleepers, self._pid = [], os.getpid()
            if self._sleepers:
                return self._sleepers.pop()
        return self._subscribe(channels), None

    def _subscribe(self, channels: Sequence[str]) -> PubSub:
        # Every server of a Redis Cluster passes on the messages that are published on the others.
        client = redis.Redis(connection_pool=self._link.pool(channels[0]))
        sleeper: PubSub = client.pubsub()  # type: ignore[no-untyped-call]
        try:
            sleeper.subscribe(*channels)
            for _ in channels:
                if sleeper.get_message(timeout=SUBSCRIBE_SECONDS) is None:
                    raise RedisTimeoutError("the subscription was not confirmed")
        except (*CONNECTION, RedisError) as error:
            _drop(sleeper)
            self._link.servers.doubt(error)
            raise self._link.refused(error) from error
        return sleeper


def _heard(sleeper: PubSub, timeout: float) -> Any:
    """Return the newest message that nobody has read yet, or wait for one; None if none comes.

    Read from the connection itself: a PubSub takes four times as long, and would silently subscribe again.
    """
    connection, word = sleeper.connection, None
    if connection is None:
        raise RedisConnectionError("the subscription is closed")
    while connection.can_read(timeout=0):
        word = connection.read_response(disconnect_on_error=False, push_request=True)
    return _next(connection, timeout) if word is None else word


def _next(connection: Any, timeout: float) -> Any:
    """Wait for a message; None if none comes."""
    if not _READS_IN_TIME:
        readable = connection.can_read(timeout=timeout)
        return connection.read_response(disconnect_on_error=False, push_request=True) if readable else None
    # Sleep in the read itself: `can_read` would look next whether the server has closed the connection.
    try:
        return connection.read_response(timeout=timeout, disconnect_on_error=False, push_request=True)
    except RedisTimeoutError:
        return None


def _told(word: Any) -> int | None:
    """Return the count in a message; None if there is no message, or it is not about a change."""
    return int(word[2]) if word is not None and word[0] in (b"message", "message") else None


def _drop(sleeper: PubSub) -> None:
    try:
        if sleeper.connection is not None:
            sleeper.connection.disconnect()
        sleeper.close()
    except (*CONNECTION, RedisError):
        pass
