"""One Redis server: connections, Lua scripts, what its errors mean, and waiting for its word."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.opening import without_password

__all__ = ["Link", "make_client"]

TIMEOUT: Final = 4.0
"""Seconds for which a call waits: less than a third of a lease."""
SUBSCRIBED: Final = 2.0
"""Seconds for which a subscription's confirmation is waited for."""
_encode = msgspec.msgpack.Encoder().encode
_CONNECTION: Final = (RedisConnectionError, RedisTimeoutError, OSError)
# The first word of an error by which the server says that it did nothing, and what that means.
_REFUSALS: Final = {
    "READONLY": "is a read-only replica; connect to the primary",
    "LOADING": "is still loading its data",
    "BUSY": "is busy with a script of somebody else's",
    "OOM": "is out of memory; raise maxmemory or delete data",
    "MASTERDOWN": "is a replica that has lost its primary",
    "MISCONF": "refuses writes because it could not save to disk",
    "NOREPLICAS": "refuses writes because too few replicas are connected",
    "CLUSTERDOWN": "belongs to a Redis Cluster that is down",
    "TRYAGAIN": "is moving these keys to another server",
    "NOPERM": "does not permit this user to do that",
    "NOAUTH": "wants a password",
    "WRONGPASS": "refuses the user name and password",
}


def make_client(url: str | None, db: int, options: dict[str, Any]) -> redis.Redis:
    """Make a client that connects when it is first used, answers in bytes and repeats nothing but connecting."""
    settings: dict[str, Any] = {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),  # a repeated write would hide that the first may have happened
        "protocol": 2,
        **options,
        "decode_responses": False,
    }
    if url is None:
        return redis.Redis(db=db, **settings)
    try:
        return redis.Redis.from_url(url, db=db, **settings)
    except ValueError as error:
        # Its text may quote a part of the password that was taken for the port.
        if not re.match(r"(redis|rediss|unix)://", url):
            raise ConfigurationError(
                f"{without_password(url)!r} is not a Redis URL; write redis://, rediss:// or unix://"
            ) from error
        raise ConfigurationError(
            "the Redis URL cannot be read; write it as redis://user:password@host:6379/0, with the signs / @ : # ? of "
            "a password percent-encoded"
        ) from None


@cache
def _script(name: str) -> tuple[str, bytes]:
    """Return the digest and the text of a script: the libraries that it names on its first line, then its own file."""
    folder = files("mainspring.jobstores") / "lua"
    own = (folder / f"{name}.lua").read_text(encoding="utf-8")
    parts = ["base"]
    if own.startswith("-- uses: "):
        parts += own.partition("\n")[0].removeprefix("-- uses: ").split()
    text = "\n".join([*((folder / f"lib_{part}.lua").read_text(encoding="utf-8") for part in parts), own])
    source = text.encode()
    return hashlib.sha1(source, usedforsecurity=False).hexdigest(), source


class Link:
    """Runs scripts on one server and turns what goes wrong into the store's errors."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._pool: Any = client.connection_pool
        self._sleepers: list[PubSub] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closes = 0

    @property
    def place(self) -> str:
        """Where the server is, without any secret."""
        known = self._pool.connection_kwargs
        if known.get("path"):
            where = str(known["path"])
        elif "host" in known:
            where = f"{known['host']}:{known.get('port', 6379)}"
        else:
            where = str(known.get("service_name", "server"))
        return f"{where}/{known.get('db', 0)}"

    def close(self) -> None:
        """Close all connections and let go who waits; the next call opens new ones."""
        with self._lock:
            self._closes += 1
            sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            _drop(sleeper)
        self._pool.disconnect()

    # -- scripts -----------------------------------------------------------------------------------------------

    def call(self, name: str, keys: Sequence[str], args: Sequence[Any] = (), *, reads: bool) -> Any:
        """Run a script; raise StoreUnavailable if nothing was done, OutcomeUnknown if it cannot be told.

        `reads` says that the script changes nothing, so that a lost reply leaves nothing open.
        """
        digest, source = _script(name)
        rest = (len(keys), *keys, _encode(args))
        try:
            try:
                return self._send(("EVALSHA", digest, *rest), reads)
            except NoScriptError:  # the server was restarted, or its scripts were flushed
                return self._send(("EVAL", source, *rest), reads)
        except ResponseError as error:
            raise self._meaning(error) from error

    def stream(self, name: str, keys: Sequence[str], batches: Iterable[Sequence[Any]]) -> list[Any]:
        """Run a script that writes for each batch, in turn; the next batch is made while the server has the one before.

        Unlike those of `call`, a StoreUnavailable is an OutcomeUnknown once something was done.
        """
        waiting = iter(batches)
        # The first goes alone: it finds a connection that lives, and loads the script.
        replies = [self.call(name, keys, args, reads=False) for args in islice(waiting, 1)]
        connection, asked = None, None
        try:
            for args in waiting:
                command = ("EVALSHA", _script(name)[0], len(keys), *keys, _encode(args))
                if connection is None or asked is None:
                    connection = self._sent(command)
                else:
                    self._send_on(connection, command)
                    replies.append(self._streamed(connection, name, keys, asked))
                asked = args
            if connection is not None and asked is not None:
                replies.append(self._streamed(connection, name, keys, asked))
                asked = None
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"a part was written and the rest was not: {error}") from error
        finally:
            if connection is not None:
                if asked is not None:  # a reply may be left over
                    connection.disconnect()
                self._pool.release(connection)
        return replies

    def _streamed(self, connection: Any, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return self._reply(connection, reads=False)
        except NoScriptError:
            return self.call(name, keys, args, reads=False)
        except ResponseError as error:
            raise self._meaning(error) from error

    def _meaning(self, error: ResponseError) -> Exception:
        """Return the store's error for one by which the server says that it did nothing, any other as it is."""
        word = str(error).partition(" ")[0]
        if word in _REFUSALS or type(error).__name__ in ("ReadOnlyError", "OutOfMemoryError", "NoPermissionError"):
            # A client of Redis Sentinel asks where the primary is when it connects.
            self._pool.disconnect(inuse_connections=False)
            return self._refused(error)
        return error

    def ping(self) -> bool:
        """Tell whether the server answers."""
        try:
            return bool(self._send(("PING",), reads=True) in (b"PONG", "PONG", True))
        except ResponseError as error:
            raise self._refused(error) from error

    def exists(self, *keys: str) -> int:
        """Count the keys that are there; none if this user may not look at them."""
        try:
            return int(self._send(("EXISTS", *keys), reads=True))
        except ResponseError:
            return 0

    def info(self) -> dict[str, str]:
        """Return what the server says of itself; nothing if this user may not ask."""
        try:
            said = self._send(("INFO",), reads=True)
        except ResponseError:
            return {}
        lines = said.decode("utf-8", "replace").splitlines()
        return {name: value for name, _, value in (line.partition(":") for line in lines)}

    def _send(self, command: tuple[Any, ...], reads: bool) -> Any:
        """Send a command and return the reply."""
        connection = self._sent(command)
        try:
            return self._reply(connection, reads)
        finally:
            self._pool.release(connection)

    def _sent(self, command: tuple[Any, ...]) -> Any:
        """Send a command on a pooled connection, on a fresh one if that is dead; return the one that has the reply."""
        for last in (False, True):
            try:
                connection = self._pool.get_connection()
            except (*_CONNECTION, RedisError) as error:
                raise self._refused(error) from error
            try:
                self._send_on(connection, command)
                return connection
            except BaseException as error:
                self._pool.release(connection)
                if last or not isinstance(error, StoreUnavailable):
                    raise
        raise AssertionError("unreachable")

    def _send_on(self, connection: Any, command: tuple[Any, ...]) -> None:
        try:
            connection.send_command(*command)
        except BaseException as error:
            # A command that was not sent whole is not executed: nothing was done.
            connection.disconnect()
            if isinstance(error, _CONNECTION):
                raise self._refused(error) from error
            raise

    def _reply(self, connection: Any, reads: bool) -> Any:
        try:
            return connection.read_response()
        except ResponseError:
            raise
        except _CONNECTION as error:
            connection.disconnect()
            if reads:
                raise self._refused(error) from error
            raise OutcomeUnknown(
                f"Redis at {self.place} took the request and its reply was lost ({error}); repeating it is safe"
            ) from error
        except BaseException:  # an interrupted read would leave its reply to the next command
            connection.disconnect()
            raise

    def _refused(self, error: BaseException) -> StoreUnavailable:
        said = str(error)
        word, kind = said.partition(" ")[0], type(error).__name__
        # redis-py takes the first word off some of the errors that it knows.
        named = {"ReadOnlyError": "READONLY", "OutOfMemoryError": "OOM", "BusyLoadingError": "LOADING"}.get(kind, word)
        if named in _REFUSALS:
            return StoreUnavailable(f"Redis at {self.place} {_REFUSALS[named]} ({said})")
        return StoreUnavailable(f"Redis at {self.place} does not answer: {said}")

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait(self, channels: Sequence[str], cursor: int, timeout: float) -> int:
        """Sleep until the sum of the channels' counters is not `cursor`, or for a while; return it."""
        deadline = time.monotonic() + timeout
        if timeout <= 0:
            return self._count(channels)
        closes = self._closes
        sleeper, fresh = self._sleeper(channels)
        while True:
            try:
                return self._sleep(sleeper, channels, cursor, deadline)
            except StoreUnavailable:
                raise
            except (*_CONNECTION, RedisError) as error:
                if self._closes != closes:
                    return cursor
                if fresh:
                    raise self._refused(error) from error
                # The server was restarted since the subscription was made.
                sleeper, fresh = self._subscribe(channels), True

    def _sleep(self, sleeper: PubSub, channels: Sequence[str], cursor: int, deadline: float) -> int:
        keep = heard = True
        try:
            # Read after subscribing: what changes later is heard.
            while (count := self._count(channels)) == cursor and (left := deadline - time.monotonic()) > 0:
                heard = sleeper.get_message(timeout=left) is not None
            # It changed and we were not told: the subscription is dead though its socket is not.
            keep = heard or count == cursor
        except BaseException:
            keep = False
            raise
        finally:
            if keep:
                with self._lock:
                    self._sleepers.append(sleeper)
            else:
                _drop(sleeper)
        return count

    def _count(self, channels: Sequence[str]) -> int:
        return sum(int(value or 0) for value in self._send(("MGET", *channels), reads=True))

    def _sleeper(self, channels: Sequence[str]) -> tuple[PubSub, bool]:
        """Return a subscription, kept from an earlier wait or new, and whether it is new."""
        with self._lock:
            if self._pid != os.getpid():  # the sockets of a fork's parent are not ours
                self._sleepers, self._pid = [], os.getpid()
            if self._sleepers:
                return self._sleepers.pop(), False
        return self._subscribe(channels), True

    def _subscribe(self, channels: Sequence[str]) -> PubSub:
        sleeper: PubSub = self.client.pubsub()  # type: ignore[no-untyped-call]
        try:
            sleeper.subscribe(*channels)
            for _ in channels:
                if sleeper.get_message(timeout=SUBSCRIBED) is None:
                    raise RedisTimeoutError("the subscription was not confirmed")
        except (*_CONNECTION, RedisError) as error:
            _drop(sleeper)
            raise self._refused(error) from error
        return sleeper


def _drop(sleeper: PubSub) -> None:
    try:
        if sleeper.connection is not None:
            sleeper.connection.disconnect()
        sleeper.close()
    except (*_CONNECTION, RedisError):
        pass
