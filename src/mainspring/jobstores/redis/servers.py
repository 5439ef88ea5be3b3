"""Find the primaries: a fixed Redis server, the one that Redis Sentinels name, or those of a Redis Cluster."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import redis
from redis.crc import key_slot
from redis.exceptions import MovedError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from mainspring.errors import ConfigurationError, StoreUnavailable, near
from mainspring.jobstores.redis.errors import CONNECTION
from mainspring.locks import free_in_children

__all__ = ["CALL_TIMEOUT_SECONDS", "Address", "ClusterServers", "FixedServer", "SentinelServers", "Servers"]

CALL_TIMEOUT_SECONDS: Final = 4.0
"""A call waits this many seconds for the server: less than a third of a lease."""
FAILOVER_PATIENCE_SECONDS: Final = 3.0
"""A call that has changed nothing yet waits this many seconds for a fail-over or a moving slot."""
DISCOVERY_TIMEOUT_SECONDS: Final = 1.0
"""Wait this many seconds to connect to one of several servers, or for its answer about the primary."""
SENTINEL_RECHECK_SECONDS: Final = 0.5
"""Ask the Sentinels again after this many seconds, even if the known primary answers: it may be cut off."""


class Address(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Servers(ABC):
    """The servers of a store; the primary of each key."""

    patience: float = FAILOVER_PATIENCE_SECONDS
    """A call may look for a server for this many seconds."""
    spread = False
    """Whether keys with different hash tags may be on different servers."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The addresses of the servers, without any secret."""

    @abstractmethod
    def pool(self, key: str) -> Any:
        """Return the connection pool of the primary that has the key."""

    @abstractmethod
    def doubt(self, error: Exception) -> None:
        """Look for the primary again before the next call: the server failed, or said that it is not the primary."""

    def replaced(self, pool: Any) -> bool:
        """Return True if these connections go to a server that is no longer the primary."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class FixedServer(Servers):
    """One server, through a client that knows its address."""

    patience = 0.0

    def __init__(self, client: redis.Redis) -> None:
        self._pool: Any = client.connection_pool

    @property
    def place(self) -> str:
        known = self._pool.connection_kwargs
        if known.get("path"):
            where = str(known["path"])
        elif "host" in known:
            where = f"{known['host']}:{known.get('port', 6379)}"
        else:
            where = str(getattr(self._pool, "service_name", "server"))
        return f"{where}/{known.get('db', 0)}"

    def pool(self, key: str) -> Any:
        return self._pool

    def doubt(self, error: Exception) -> None:
        """Close the idle connections: a Redis Sentinel client asks for the primary when it connects again."""
        self._pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self._pool.disconnect()


class _ServerGroup(Servers):
    """Servers that report which of them are primaries."""

    def __init__(self, hosts: Sequence[Address], settings: dict[str, Any]) -> None:
        self._hosts = hosts
        self._settings = {
            **settings,
            "socket_connect_timeout": settings.get("socket_connect_timeout", DISCOVERY_TIMEOUT_SECONDS),
        }
        self._pools: dict[Address, Any] = {}
        self._lock = free_in_children(threading.RLock())

    def close(self) -> None:
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.disconnect()

    def _pool_at(self, address: Address) -> Any:
        with self._lock:
            if address not in self._pools:
                client = redis.Redis(host=address.host, port=address.port, **self._settings)
                self._pools[address] = client.connection_pool
            return self._pools[address]

    def _told(self) -> str:
        return ",".join(map(str, self._hosts))


class SentinelServers(_ServerGroup):
    """The primary that Redis Sentinels name; a call asks them again after half a second, or if the primary failed."""

    def __init__(
        self, hosts: Sequence[Address], service: str, settings: dict[str, Any], own: dict[str, Any] | None = None
    ) -> None:
        super().__init__(hosts, settings)
        self._service = service
        quick = {
            **self._settings,
            "db": 0,
            "username": None,
            "password": None,
            "socket_timeout": DISCOVERY_TIMEOUT_SECONDS / 2,
        }
        quick |= {"socket_connect_timeout": DISCOVERY_TIMEOUT_SECONDS / 2} | (own or {})
        self._sentinels = {
            address: redis.Redis(host=address.host, port=address.port, **quick).connection_pool for address in hosts
        }
        self._primary: Address | None = None
        self._ask_at = 0.0

    @property
    def place(self) -> str:
        """The Sentinels, their service, and its primary if known."""
        primary = f", primary {self._primary}" if self._primary else ""
        return f"{self._told()}/{self._service} (Sentinel{primary})"

    def pool(self, key: str) -> Any:
        primary = self._primary
        if primary is None or time.monotonic() >= self._ask_at:
            primary = self._find()
        return self._pools[primary]

    def doubt(self, error: Exception) -> None:
        """Ask the Sentinels before the next call."""
        with self._lock:
            if self._primary is not None:
                self._pools[self._primary].disconnect(inuse_connections=False)
            self._primary = None

    def replaced(self, pool: Any) -> bool:
        """Ask the Sentinels, at most twice a second, whether they name another server by now."""
        try:
            return self.pool("") is not pool
        except (StoreUnavailable, ConfigurationError):  # the Sentinels name none
            return False

    def close(self) -> None:
        super().close()
        for pool in self._sentinels.values():
            pool.disconnect()

    def _find(self) -> Address:
        with self._lock:
            if self._primary is not None and time.monotonic() < self._ask_at:
                return self._primary  # another thread has just asked
            named = self._named()
            if named != self._primary:
                self._check_role(named)
                if self._primary is not None:
                    self._pools[self._primary].disconnect(inuse_connections=False)
                self._primary = named
            self._ask_at = time.monotonic() + SENTINEL_RECHECK_SECONDS
            return named

    def _named(self) -> Address:
        """Return the primary that the first Sentinel names; the known primary if no Sentinel names any."""
        silent, ignorant = [], []
        for address, pool in list(self._sentinels.items()):
            try:
                answer = ask(pool, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except (*CONNECTION, RedisError) as error:
                silent.append(f"{address} ({error})")
                self._sentinels[address] = self._sentinels.pop(address)  # ask it last from now on
                continue
            if answer:
                return Address(answer[0].decode(), int(answer[1]))
            ignorant.append(address)
        if self._primary is not None:
            return self._primary
        if ignorant:
            raise self._unknown(ignorant)
        raise StoreUnavailable(f"no Redis Sentinel answers for the service {self._service!r}: {', '.join(silent)}")

    def _unknown(self, ignorant: Sequence[Address]) -> ConfigurationError:
        try:
            masters = ask(self._sentinels[ignorant[0]], "SENTINEL", "MASTERS")
            known = [dict(zip(said[::2], said[1::2], strict=True)) for said in masters]
            hint = near(self._service, [said[b"name"].decode() for said in known])
        except (*CONNECTION, RedisError, KeyError, ValueError, TypeError):
            hint = ""
        told = ", ".join(map(str, ignorant))
        return ConfigurationError(f"the Redis Sentinels {told} know no service {self._service!r}{hint}")

    def _check_role(self, address: Address) -> None:
        """Raise StoreUnavailable unless the server says that it is a primary: a Sentinel may lag behind."""
        pool = self._pool_at(address)
        try:
            role = ask(pool, "ROLE", timeout=DISCOVERY_TIMEOUT_SECONDS)[0]
        except ResponseError:  # this user may not ask; a replica will refuse the first write
            return
        except (*CONNECTION, RedisError) as error:
            raise StoreUnavailable(
                f"{address}, the primary of {self._service!r} by Redis Sentinel, does not answer: {error}"
            ) from error
        if role != b"master":
            raise StoreUnavailable(
                f"{address}, the primary of {self._service!r} by Redis Sentinel, is still a replica: a fail-over is "
                "under way"
            )


class ClusterServers(_ServerGroup):
    """The primaries of a Redis Cluster, by hash slot."""

    spread = True

    def __init__(self, hosts: Sequence[Address], settings: dict[str, Any]) -> None:
        super().__init__(hosts, settings)
        self._slots: dict[str, int] = {}
        self._ranges: list[tuple[int, int, Address]] = []
        self._owners: dict[int, Address] = {}

    @property
    def place(self) -> str:
        """The hosts in the URL."""
        return f"{self._told()} (Cluster)"

    def pool(self, key: str) -> Any:
        """Return the connections to the primary of the key's slot."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = key_slot(key.encode())
        owner = self._owners.get(slot) or self._find(slot)
        return self._pools[owner]

    def doubt(self, error: Exception) -> None:
        """Follow a moved slot; after any other error, ask for all slots again."""
        with self._lock:
            if isinstance(error, MovedError) and error.host:
                address = Address(error.host.strip("[]"), error.port)
                self._pool_at(address)
                self._owners[error.slot_id] = address
            else:
                self._ranges, self._owners = [], {}

    def _find(self, slot: int) -> Address:
        with self._lock:
            if not self._ranges:
                self._ranges = self._asked_ranges()
            for first, last, owner in self._ranges:
                if first <= slot <= last:
                    self._pool_at(owner)
                    self._owners[slot] = owner
                    return owner
            self._ranges = []
        raise StoreUnavailable(f"no server of the Redis Cluster {self._told()} has the slot {slot}")

    def _asked_ranges(self) -> list[tuple[int, int, Address]]:
        """Ask the servers in turn; return the first slot, last slot and primary of each range."""
        problems = []
        for address in dict.fromkeys([*self._hosts, *self._pools]):
            try:
                ranges = ask(self._pool_at(address), "CLUSTER", "SLOTS", timeout=DISCOVERY_TIMEOUT_SECONDS)
            except ResponseError as error:
                if "cluster support disabled" in str(error):
                    raise ConfigurationError(
                        f"Redis at {address} is no part of a Redis Cluster; write redis://{address} for it"
                    ) from None
                problems.append(f"{address} ({error})")
            except (*CONNECTION, RedisError) as error:
                problems.append(f"{address} ({error})")
            else:
                if ranges:
                    return [
                        (first, last, Address((host or b"").decode() or address.host, port))
                        for first, last, (host, port, *_), *_ in ranges
                    ]
                problems.append(f"{address} (no slots are assigned)")
        raise StoreUnavailable(f"no server of the Redis Cluster answers: {', '.join(problems)}")


def ask(pool: Any, *command: Any, timeout: float | None = None) -> Any:
    """Send one command and return the reply; let redis-py's errors through."""
    connection = pool.get_connection()
    try:
        connection.send_command(*command)
        # Before redis-py 8, `read_response` takes no timeout.
        if timeout is not None and not connection.can_read(timeout=timeout):
            raise RedisTimeoutError(f"no answer within {timeout:.0f} s")
        return connection.read_response()
    except ResponseError:
        raise
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)
