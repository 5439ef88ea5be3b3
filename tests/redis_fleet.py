"""Start a Redis primary with replicas and Sentinels, or a Redis Cluster, for the tests of fail-over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import redis

from tests.servers import HOST, Redis, ServerFailed, free_port

SECONDS = 90.0


class FleetRedis(Redis):
    """A Redis server with more settings."""

    def __init__(self, *settings: str) -> None:
        super().__init__()
        self.settings = settings

    def _command(self) -> list[str | Path]:
        # Replicas are given all at once and at once, not after five seconds.
        return [*super()._command(), "--repl-diskless-sync-delay", "0", *self.settings]

    def client(self) -> redis.Redis:
        """Return a client of this very server."""
        return redis.Redis(host=HOST, port=self.port, socket_timeout=10.0)

    def ask(self, *words: Any) -> Any:
        """Send one command."""
        with self.client() as client:
            return client.execute_command(*words)

    def ask_raw(self, command: str) -> bytes:
        """Send one command and return its text as it is."""
        with self.client() as client:
            client.response_callbacks.pop(command, None)
            said: bytes = client.execute_command(command)
            return said


class SentinelServer(FleetRedis):
    """A Redis Sentinel; it writes down what it learns in its own settings."""

    name: ClassVar[str] = "Sentinel"

    def __init__(self, service: str, primary: FleetRedis, quorum: int) -> None:
        super().__init__()
        self._watches = f"sentinel monitor {service} {HOST} {primary.port} {quorum}", service

    def _command(self) -> list[str | Path]:
        watch, service = self._watches
        conf = self.directory / "sentinel.conf"
        conf.write_text(
            f"port {self.port}\nbind {HOST}\ndir {self.directory}\n{watch}\n"
            f"sentinel down-after-milliseconds {service} 1000\nsentinel failover-timeout {service} 2000\n"
        )
        return [self.binary, conf, "--sentinel"]


class ClusterServer(FleetRedis):
    """A server of a Redis Cluster; its second port is chosen too, since 10000 above the first others may be."""

    bus = 0

    def _command(self) -> list[str | Path]:
        self.bus = self.bus or free_port()
        settings = {"enabled": "yes", "port": str(self.bus), "node-timeout": "1500", "replica-validity-factor": "0"}
        return [
            *super()._command(),
            *(word for name, value in settings.items() for word in (f"--cluster-{name}", value)),
        ]


class _Fleet:
    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[FleetRedis] = []

    def _start(self, server: FleetRedis) -> FleetRedis:
        self._stack.enter_context(server)
        return server

    def __enter__(self) -> Self:
        with self._stack:
            self._build()
            self._stack = self._stack.pop_all()
        return self

    def _build(self) -> None:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class SentinelFleet(_Fleet):
    """A primary, two replicas, three Sentinels that take a server for dead after a second."""

    service = "main"

    def _build(self) -> None:
        primary = self._start(FleetRedis())
        at = f"{HOST} {primary.port}"
        replicas = [self._start(FleetRedis("--replicaof", at)) for _ in range(2)]
        self.servers = [primary, *replicas]
        until(lambda: primary.client().info("replication")["connected_slaves"] == 2, "the replicas are connected")
        until(lambda: all(replica.client().info("replication")["master_link_status"] == "up" for replica in replicas))
        self.sentinels = [self._start(SentinelServer(self.service, primary, 2)) for _ in range(3)]
        until(self._acquainted, "the Sentinels know each other and the replicas")

    def _acquainted(self) -> bool:
        known = [_seen_by(sentinel, self.service) for sentinel in self.sentinels]
        return {(said["num-other-sentinels"], said["num-slaves"]) for said in known} == {(2, 2)}

    @property
    def url(self) -> str:
        """The URL for a store."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}/0"

    def complete(self) -> None:
        """Start again what was killed, and wait until there are two replicas that have everything."""
        primary = self.primary()
        for server in self.servers:
            if not server.running:
                server.restart()
            if server is not primary:
                server.ask("REPLICAOF", HOST, primary.port)  # the Sentinels would take ten seconds to say so
        until(self._whole, "the primary has two replicas")

    def kill_primary(self) -> None:
        """Cut the primary off from its replicas, kill it once it has taken writes that they do not have."""
        primary = self.primary()
        others = [server for server in self.servers if server is not primary and server.running]
        for server in others:
            server.ask("CONFIG", "SET", "masterauth", "none was wanted")  # with which they are refused
        primary.ask("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: primary.client().info("replication")["connected_slaves"] == 0, "the replicas are cut off")
        cut = _offset(primary)
        until(lambda: _offset(primary) > cut + 1000, "the primary has more than its replicas")
        primary.kill()
        for server in others:
            server.ask("CONFIG", "SET", "masterauth", "")

    def epoch(self) -> int:
        """Return the number of the last fail-over."""
        found: int = max(_seen_by(sentinel, self.service)["config-epoch"] for sentinel in self.sentinels)
        return found

    def _whole(self) -> bool:
        primary = self.primary()
        if primary.client().info("replication")["connected_slaves"] != 2 or not self._acquainted():
            return False
        others = [server for server in self.servers if server is not primary]
        if any(server.client().info("replication").get("master_link_status") != "up" for server in others):
            return False
        # The Sentinels look for themselves, now and then, and promote nobody whom they have not seen well.
        return all(_is_good(replica) for each in self.sentinels for replica in _replicas_of(each, self.service))

    def primary(self) -> FleetRedis:
        """Return the server that the Sentinels name."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(port))


def _offset(server: FleetRedis) -> int:
    with server.client() as client:
        return int(client.info("replication")["master_repl_offset"])


def _seen_by(sentinel: FleetRedis, service: str) -> Any:
    with sentinel.client() as client:
        return client.sentinel_master(service)


def _replicas_of(sentinel: FleetRedis, service: str) -> list[Any]:
    with sentinel.client() as client:
        return list(client.sentinel_slaves(service))


def _is_good(replica: Any) -> bool:
    return bool(replica["flags"] == "slave" and replica["master-link-status"] == "ok")


class ClusterFleet(_Fleet):
    """Three primaries with a replica each, among which the slots are spread."""

    def _build(self) -> None:
        servers = [ClusterServer() for _ in range(6)]
        self.servers = [self._start(server) for server in servers]
        first = servers[0]
        for number, server in enumerate(self.servers):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if server is not first:
                server.ask("CLUSTER", "MEET", HOST, first.port, first.bus)
        ids = [server.ask("CLUSTER", "MYID") for server in self.servers]
        for number, start in enumerate((0, 5461, 10923)):
            end = (5460, 10922, 16383)[number]
            self.servers[number].ask("CLUSTER", "ADDSLOTSRANGE", start, end)
        until(lambda: all(self._sees_all(server) for server in self.servers), "the servers know each other")
        for number in range(3):
            self.servers[number + 3].ask("CLUSTER", "REPLICATE", ids[number])
        until(self.healthy, "the cluster is complete")

    def _sees_all(self, server: FleetRedis) -> bool:
        return len(self.nodes(server)) == len(self.servers)

    def nodes(self, server: FleetRedis) -> dict[int, tuple[str, str]]:
        """Return the id and the flags of each node by its port, as one of them sees it."""
        lines = server.ask_raw("CLUSTER NODES").decode().splitlines()
        words = [line.split() for line in lines]
        return {int(word[1].partition("@")[0].rpartition(":")[2]): (word[0], word[2]) for word in words}

    def healthy(self) -> bool:
        """Tell whether all slots are served and each running replica has all that its primary has."""
        for server in self.servers:
            if not server.running:
                continue
            said = server.client().info("replication")
            if b"cluster_state:ok" not in server.ask_raw("CLUSTER INFO"):
                return False
            if said["role"] == "slave" and said["master_link_status"] != "up":
                return False
        roles = [server.client().info("replication") for server in self.servers if server.running]
        return [said["role"] for said in roles].count("master") == 3

    @property
    def url(self) -> str:
        """The URL for a store: a part of the servers is enough."""
        return "redis+cluster://" + ",".join(f"{HOST}:{server.port}" for server in self.servers[:3])

    def owner(self, key: str) -> FleetRedis:
        """Return the primary of a key."""
        with next(server for server in self.servers if server.running).client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", key)
        for server in self.servers:
            if server.running:
                for line in server.ask_raw("CLUSTER NODES").decode().splitlines():
                    words = line.split()
                    if "myself" in words[2] and "master" in words[2] and _has(words[8:], slot):
                        return server
        raise ServerFailed(f"nobody has the slot {slot}")

    def move(self, key: str, target: FleetRedis, meanwhile: Callable[[], object]) -> None:
        """Move the slot of a key to another primary, as redis-cli does; half of its keys go before `meanwhile`."""
        source = self.owner(key)
        slot = source.ask("CLUSTER KEYSLOT", key)
        ids = self.nodes(source)
        source_id, target_id = ids[source.port][0], ids[target.port][0]
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        half = source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) // 2
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", HOST, target.port, keys[0], 0, 5000)
            if source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == half:
                meanwhile()
        for server in (target, source):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def _has(ranges: list[str], slot: int) -> bool:
    for text in ranges:
        first, _, last = text.partition("-")
        if not text.startswith("[") and int(first) <= slot <= int(last or first):
            return True
    return False


def until(true: Callable[[], bool], what: str = "") -> float:
    """Wait until something is true; return how many seconds that took."""
    start = time.monotonic()
    while True:
        try:
            if true():
                return time.monotonic() - start
        except (redis.RedisError, OSError, ServerFailed):
            pass
        if time.monotonic() > start + SECONDS:
            raise ServerFailed(f"not within {SECONDS:.0f} s: {what}")
        time.sleep(0.02)
