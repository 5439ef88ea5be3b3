"""Run Lua scripts on Redis servers, turn their errors into ours, and wait for replicas."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

import msgspec
import redis
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError

from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.redis.errors import CONNECTION, PASSING, REFUSALS, refusal
from mainspring.jobstores.redis.servers import Servers
from mainspring.locks import free_in_children

__all__ = ["RedisConnection"]

REPLICATION_SECONDS: Final = 2.0
"""Wait this many seconds for replicas."""
SERVER_LOOK_SECONDS: Final = 0.25
"""Check the server this often while waiting for replicas: a replaced server no longer has any."""
RETRY_PAUSE_SECONDS: Final = 0.1
"""Pause this many seconds between retries of a call that found no server; the first retry is immediate."""
P = ParamSpec("P")
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
# The writes of these scripts need not survive a fail-over: they are hints, heartbeats, or steps that nodes repeat.
_UNCONFIRMED: Final = frozenset(["beat", "clear_outbox", "due", "lapsed", "peek", "shift_clock", "take_outbox"])


@cache
def _files() -> dict[str, Traversable]:
    """Return the files in the folders of lua/ by name, without the ending; names are unique across the folders."""
    rooms = (room for room in (files("mainspring.jobstores.redis") / "lua").iterdir() if room.is_dir())
    return {file.name.removesuffix(".lua"): file for room in rooms for file in room.iterdir()}


@cache
def _script(name: str) -> tuple[str, bytes]:
    """Return the digest and the text of a script: the libraries named on its first line, then its own file.

    A file `<name>_first` comes right after lib/base, before the other libraries. It answers the plain cases, for which
    defining the functions of the libraries would take longer than the work itself.
    """
    first, _, _ = _files()[name].read_text(encoding="utf-8").partition("\n")
    uses = first.removeprefix("-- uses: ").split() if first.startswith("-- uses: ") else []
    parts = ["base", f"{name}_first", "tools", *uses, name]
    source = b"\n".join(_files()[part].read_bytes() for part in parts if part in _files())
    return hashlib.sha1(source, usedforsecurity=False).hexdigest(), source


def _packed(*words: Any) -> bytes:
    """Encode a command for the wire."""
    texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


@lru_cache(maxsize=1024)
def _head(name: str, keys: tuple[str, ...]) -> bytes:
    """Encode the command that runs a script, up to its one argument, which comes last."""
    words = _packed("EVALSHA", _script(name)[0], len(keys), *keys)
    count, _, rest = words.partition(b"\r\n")
    return b"*%d\r\n%b" % (int(count[1:]) + 1, rest)


def _command(name: str, keys: tuple[str, ...], args: bytes) -> bytes:
    return b"%b$%d\r\n%b\r\n" % (_head(name, keys), len(args), args)


class RedisConnection:
    """The way to the servers: it runs each script on the server of its keys, and raises the store's errors."""

    def __init__(self, servers: Servers, homes: Sequence[str], replicas: int = 0, preface: Sequence[Any] = ()) -> None:
        """Use `servers` for keys with the hash tags of `homes`.

        `preface` is the list of arguments for the `open` script, which sets up a server that is new or lost its data.
        """
        self.servers = servers
        self._homes = homes if servers.spread else homes[:1]
        self._preface = preface
        self._replicas = replicas
        self._spare: dict[Any, Any] = {}
        """One ready connection per pool: getting and returning one costs as much as packing a call."""
        self._lock = free_in_children(threading.Lock())
        self._closes = 0
        _links.add(self)

    @property
    def place(self) -> str:
        """The addresses of the servers, without any secret."""
        return self.servers.place

    def close(self) -> None:
        """Close all connections, including those on which a thread waits; the next call opens new ones."""
        with self._lock:
            self._closes += 1
            spare, self._spare = self._spare, {}
        for pool, connection in spare.items():
            pool.release(connection)
        self.servers.close()

    # -- scripts -----------------------------------------------------------------------------------------------

    def call(self, name: str, keys: tuple[str, ...], args: Sequence[Any] = (), *, reads: bool) -> Any:
        """Run a script; raise StoreUnavailable if the server did nothing, OutcomeUnknown if it may have done the work.

        `reads` says that the script changes nothing, or nothing on repetition, so a lost reply leaves no doubt.
        """
        return self._patiently(self._run, name, keys, _encode(args), reads)

    def _patiently(self, act: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call `act`; while no server takes the call, repeat it until patience ends, then raise StoreUnavailable."""
        closes, deadline = self._closes, time.monotonic() + self.servers.patience
        last, again = not self.servers.patience, False
        while True:
            try:
                return act(*args, **options)
            except ResponseError as error:
                word = refusal(error)
                if not word:
                    raise
                self.servers.doubt(error)
                if last or word not in PASSING:
                    raise self.refused(error) from error
            except StoreUnavailable as error:
                self.servers.doubt(error)
                if last or isinstance(error, OutcomeUnknown):
                    raise
            if again:  # the wrong server may have named the right one, so the first retry is immediate
                time.sleep(RETRY_PAUSE_SECONDS)
            again = True
            last = time.monotonic() >= deadline or self._closes != closes

    @sheltered
    def _run(self, name: str, keys: tuple[str, ...], packed: bytes, reads: bool) -> Any:
        pool = self._pool(keys[0])
        confirm = self._replicas > 0 and not reads and name not in _UNCONFIRMED
        try:
            return self._send(pool, _command(name, keys, packed), reads, confirm)
        except NoScriptError:  # the server was restarted, somebody flushed its scripts, or another server took over
            if self._preface:
                preface = _packed("EVAL", _script("open")[1], len(keys), *keys, _encode(self._preface))
                self._send(pool, preface, reads=True)
            return self._send(pool, _packed("EVAL", _script(name)[1], len(keys), *keys, packed), reads, confirm)

    @sheltered
    def stream(self, name: str, keys: tuple[str, ...], batches: Iterable[Sequence[Any]]) -> list[Any]:
        """Run a writing script for each batch in turn; build the next batch while the server works on the last one.

        Unlike `call`, raise OutcomeUnknown instead of StoreUnavailable once the server has written a batch.
        """
        waiting = iter(batches)
        # Send the first batch alone: that call finds a living connection and loads the script.
        replies = [self.call(name, keys, args, reads=False) for args in islice(waiting, 1)]
        connection, asked, pool, clean = None, None, None, False
        try:
            for args in waiting:
                if self._replicas:  # `call` waits for the replicas after each batch
                    replies.append(self.call(name, keys, args, reads=False))
                    continue
                command = _command(name, keys, _encode(args))
                if connection is None or asked is None:
                    pool = self.pool(keys[0])
                    connection = self._sent(pool, command)
                else:
                    self._send_on(connection, command)
                    replies.append(self._streamed(connection, name, keys, asked))
                asked = args
            if connection is not None and asked is not None:
                replies.append(self._streamed(connection, name, keys, asked))
            clean = True
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"a part was written and the rest was not: {error}") from error
        finally:
            if connection is not None and pool is not None:
                if not clean:  # a reply may be left on the connection
                    connection.disconnect()
                pool.release(connection)
        return replies

    def _streamed(self, connection: Any, name: str, keys: tuple[str, ...], args: Sequence[Any]) -> Any:
        try:
            return self._reply(connection, reads=False)
        except ResponseError as error:
            if isinstance(error, NoScriptError) or refusal(error):
                return self.call(name, keys, args, reads=False)  # nothing was done
            raise

    def clients(self) -> dict[str, redis.Redis]:
        """Return a client for each primary that has a shard, by address."""
        found = {}
        for key in self._homes:
            pool = self._patiently(self.pool, key)
            known = pool.connection_kwargs
            place = f"{known['host']}:{known['port']}" if self.servers.spread else self.place
            found[place] = redis.Redis(connection_pool=pool)
        return found

    def exists(self, keys: Sequence[str]) -> int:
        """Count the keys that exist; return 0 if this user may not read them."""
        try:
            return sum(int(self.ask(key, "EXISTS", key)) for key in keys)
        except ResponseError:
            return 0

    @sheltered
    def info(self) -> dict[str, dict[str, str]]:
        """Return the INFO of each primary by address, empty if the server does not permit this user to ask."""
        told = {}
        for place, client in self.clients().items():
            try:
                said = self._send(client.connection_pool, _packed("INFO"), reads=True)
            except ResponseError:
                said = b""
            lines = said.decode("utf-8", "replace").splitlines()
            told[place] = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return told

    @sheltered
    def pool(self, key: str) -> Any:
        """Return the connection pool of the server that has a key; raise StoreUnavailable if no server is known."""
        return self._pool(key)

    def _pool(self, key: str) -> Any:
        try:
            return self.servers.pool(key)
        except StoreUnavailable:
            raise
        except (*CONNECTION, RedisError) as error:
            raise self.refused(error) from error

    def ask(self, key: str, *command: Any) -> Any:
        """Send a read-only command to the server that has a key."""
        return self._patiently(self._ask, key, _packed(*command))

    @sheltered
    def _ask(self, key: str, command: bytes) -> Any:
        return self._send(self._pool(key), command, reads=True)

    def _send(self, pool: Any, command: bytes, reads: bool, confirm: bool = False) -> Any:
        """Send a command; return the reply once enough replicas have the write."""
        connection = self._sent(pool, command)
        try:
            reply = self._reply(connection, reads)
            if confirm:
                self._confirm(pool, connection)
        except Exception:
            pool.release(connection)
            raise
        except BaseException:  # after an interrupt, the next command would read this reply as its own
            connection.disconnect()
            pool.release(connection)
            raise
        if self._spare.setdefault(pool, connection) is not connection:
            pool.release(connection)
        return reply

    def _connection(self, pool: Any) -> Any:
        """Return a connection that appears to be alive."""
        connection = self._spare.pop(pool, None)
        if connection is not None:
            try:
                if not connection.can_read():  # readable now means that the server has closed it
                    return connection
            except CONNECTION:
                pass
            connection.disconnect()
            pool.release(connection)
        return pool.get_connection()

    def _confirm(self, pool: Any, connection: Any) -> None:
        """Wait until enough replicas have everything that the server wrote up to its last reply on this connection."""
        # WAIT works only after another command on the same connection; alone, it answers at once.
        try:
            self._send_on(connection, _packed("WAIT", self._replicas, int(REPLICATION_SECONDS * 1000)))
            while not self._can_read(connection):
                if self.servers.replaced(pool):
                    raise StoreUnavailable("another server is the primary by now")
            number = int(self._reply(connection, reads=False))
        except (StoreUnavailable, ResponseError) as error:  # also if the server has just become a replica
            connection.disconnect()
            raise OutcomeUnknown(
                f"Redis at {self.place} took the request and failed before {self._replicas} replicas were known to "
                f"have it ({error}); repeating it is safe"
            ) from error
        if number < self._replicas:
            raise OutcomeUnknown(
                f"Redis at {self.place} took the request, but after {REPLICATION_SECONDS:.0f} s only {number} of "
                f"replicas={self._replicas} have it, so that a fail-over may lose it; repeating it is safe"
            )

    def _can_read(self, connection: Any) -> bool:
        """Wait a moment for a reply; return True if there is one."""
        try:
            return bool(connection.can_read(timeout=SERVER_LOOK_SECONDS))
        except CONNECTION as error:
            raise self.refused(error) from error

    def _sent(self, pool: Any, command: bytes) -> Any:
        """Send a command on a pooled connection, or on another if that is dead; return the one that gets the reply."""
        for last in (False, True):
            try:
                connection = self._connection(pool)
            except (*CONNECTION, RedisError) as error:
                raise self.refused(error) from error
            try:
                self._send_on(connection, command)
                return connection
            except Exception as error:
                pool.release(connection)
                if last or not isinstance(error, StoreUnavailable):
                    raise
            except BaseException:
                connection.disconnect()
                pool.release(connection)
                raise
        raise AssertionError("unreachable")

    def _send_on(self, connection: Any, command: bytes) -> None:
        try:
            connection.send_packed_command((command,))
        except Exception as error:
            # A server does not execute a partial command, so nothing was done.
            connection.disconnect()
            if isinstance(error, CONNECTION):
                raise self.refused(error) from error
            raise

    def _reply(self, connection: Any, reads: bool) -> Any:
        try:
            return connection.read_response()
        except ResponseError:
            raise
        except CONNECTION as error:
            connection.disconnect()
            if reads or isinstance(error, BusyLoadingError):
                raise self.refused(error) from error
            raise OutcomeUnknown(
                f"Redis at {self.place} took the request and its reply was lost ({error}); repeating it is safe"
            ) from error
        except Exception:  # half a reply was read
            connection.disconnect()
            raise

    def refused(self, error: BaseException) -> StoreUnavailable:
        """Return the error for a call that changed nothing."""
        word = refusal(error)
        if word:
            return StoreUnavailable(f"Redis at {self.place} {REFUSALS[word]} ({error})")
        return StoreUnavailable(f"Redis at {self.place} does not answer: {error}")


_links: Final[WeakSet[RedisConnection]] = WeakSet()


def _forget_connections() -> None:
    """Drop ready connections in a forked child: they belong to the parent."""
    for link in _links:
        link._spare = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
