"""The stores under torment, from outside: started, taken away and given back, written into behind mainspring's back."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import redis
from sqlalchemy import create_engine, text

from tests.servers import MariaDB, PostgreSQL, Redis, Server

LOCKS = Path("/proc/locks")


class Back(ABC):
    """One store's server, or file."""

    outage: ClassVar[str]
    """What an outage is here."""

    port: int | None = None
    """Where the server listens, if it is one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the store."""

    @property
    @abstractmethod
    def version(self) -> str:
        """What is tested."""

    @abstractmethod
    def go_away(self, seconds: float) -> None:
        """Be unusable for about so long, without warning."""

    def locked_by(self, pid: int) -> bool:
        """Tell whether a process that has been stopped keeps all others from writing."""
        return False

    @abstractmethod
    def frame(self, run_id: str) -> bytes | None:
        """Read the bytes of a run's call."""

    @abstractmethod
    def spoil(self, run_id: str, frame: bytes) -> None:
        """Overwrite them."""

    @abstractmethod
    def close(self) -> None:
        """End the server and delete its data."""


class SQLBack(Back):
    """A database, its table written into with SQL."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._made: Any = None

    @property
    def _engine(self) -> Any:
        if self._made is None:
            self._made = create_engine(self.url, pool_pre_ping=True)
        return self._made

    def frame(self, run_id: str) -> bytes | None:
        with self._engine.connect() as connection:
            found = connection.execute(text("SELECT payload FROM mainspring_runs WHERE id = :id"), {"id": run_id})
            row = found.one_or_none()
        return None if row is None else bytes(row[0])

    def spoil(self, run_id: str, frame: bytes) -> None:
        with self._engine.begin() as connection:
            update = text("UPDATE mainspring_runs SET payload = :frame WHERE id = :id")
            connection.execute(update, {"id": run_id, "frame": frame})

    def close(self) -> None:
        if self._made is not None:
            self._made.dispose()


class SQLiteBack(SQLBack):
    """A file. Nothing can be restarted, so an outage is another program that locks it."""

    outage = "locked by another program"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'chaos.db'}"

    @property
    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def go_away(self, seconds: float) -> None:
        connection = sqlite3.connect(self.folder / "chaos.db", timeout=60, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def locked_by(self, pid: int) -> bool:
        # With a write-ahead log, the right to write is a lock on byte 120 of the file of shared memory.
        inode = (self.folder / "chaos.db-shm").stat().st_ino
        for line in LOCKS.read_text().splitlines() if LOCKS.exists() else ():
            _, *_, kind, holder, file, begin, end = line.split()
            ours = (kind, holder) == ("WRITE", str(pid)) and file.endswith(f":{inode}")
            if ours and end != "EOF" and int(begin) <= 120 <= int(end):
                return True
        return False


class ServerBack:
    """What is common to servers: killed by SIGKILL, and started again on the same data."""

    outage = "SIGKILL and restart"
    kind: ClassVar[type[Server]]
    server: Server
    port: int | None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)  # type: ignore[call-arg]
        self.server = self.kind(durable=True).start()
        self.port = self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def version(self) -> str:
        return f"{self.kind.name} {self.server.version}"

    def go_away(self, seconds: float) -> None:
        self.server.kill()
        time.sleep(seconds)
        self.server.restart()

    def close(self) -> None:
        super().close()  # type: ignore[misc]
        self.server.stop()


class PostgreSQLBack(ServerBack, SQLBack):
    """A PostgreSQL server that waits for its disk."""

    kind = PostgreSQL


class MariaDBBack(ServerBack, SQLBack):
    """A MariaDB server that waits for its disk."""

    kind = MariaDB


class RedisKeys(Back):
    """Redis's side of a store, its hash written into."""

    _client: Any = None

    @property
    def _connection(self) -> Any:
        if self._client is None:
            self._client = redis.Redis.from_url(self.url)
        return self._client

    def frame(self, run_id: str) -> bytes | None:
        found = self._connection.hget("{mainspring:0}:calls", run_id)
        return None if found is None else bytes(found)

    def spoil(self, run_id: str, frame: bytes) -> None:
        self._connection.hset("{mainspring:0}:calls", run_id, frame)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class RedisBack(ServerBack, RedisKeys):
    """A Redis server that writes an append-only file."""

    kind = Redis


BACKS: dict[str, type[Back]] = {
    "sqlite": SQLiteBack,
    "postgresql": PostgreSQLBack,
    "mariadb": MariaDBBack,
    "redis": RedisBack,
}
