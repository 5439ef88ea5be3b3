"""Job records in ZooKeeper.

`<path>/jobs/<key>` holds a record. The names below `<path>/due` are the timetable, one for each record:
`<wake>,<version>,<key>`. A write deletes the name of the record that the caller has seen, in one multi with its other
changes. So it fails if another write came first. The znode's own version would not do: it starts again at 0 when a
znode is deleted and created.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from mainspring.errors import ConfigurationError, RecordTooLarge, StoreUnavailable, TooManyJobs
from mainspring.jobstores.health import Health, check_version
from mainspring.jobstores.split import JobRecord, WatchedRecords, is_due, wake_of, wake_text
from mainspring.jobstores.zookeeper.server import members_of, told, version_in, why_unreachable
from mainspring.locks import free_in_children

__all__ = ["ZooKeeperRecords"]

TIMEOUT_SECONDS: Final = 4.5
MOST_PAUSE_SECONDS: Final = 1.0
"""Pause at most this many seconds before the next attempt to connect."""
MOST_NAME_BYTES: Final = 900_000
"""The server lists all names of the timetable in one answer, which is limited to 1 MiB (`jute.maxbuffer`)."""
LONGEST_NAME: Final = 2000
OLDEST: Final = (3, 5)
_NEVER: Final = "never"
# Without this handler, a program that sets up no logging would print each attempt to connect. Our error says why it
# failed.
logging.getLogger("kazoo").addHandler(logging.NullHandler())
_LOST: Final = (NoNodeError, NodeExistsError, BadVersionError)
_ROLLED_BACK: Final = (RolledBackError, RuntimeInconsistency)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, int | None, bytes]).decode


class ZooKeeperRecords(WatchedRecords):
    """Records below one znode; `client` is the user's, or each process makes its own."""

    server: ClassVar[str] = "ZooKeeper"
    max_bytes: ClassVar[int | None] = 256 * 1024
    max_jobs: ClassVar[int | None] = 10_000
    unsure: ClassVar[tuple[type[BaseException], ...]] = (
        ConnectionLoss, SessionExpiredError, OperationTimeoutError, KazooTimeoutError,
    )  # fmt: skip
    refused: ClassVar[tuple[type[BaseException], ...]] = (KazooException,)

    def __init__(self, path: str, client: Any, connect_args: Mapping[str, Any], *, closes: bool) -> None:
        super().__init__()
        self.path = path
        self._given, self._closes = client, closes
        self._connect_args = dict(connect_args)
        self._opening, self._reading = free_in_children(threading.RLock()), free_in_children(threading.Lock())
        self._client: Any = None
        self._pid = 0
        self._is_open = False
        self._names: list[str] | None = None  # the timetable as it was read; None: read it again
        self._moves = 0  # how often the timetable has changed, or may have
        self._room = 0  # this many more names fit, however long they are
        self._lags = False  # true after a new connection: its server may be behind the others
        if client is None:
            self._make_client()  # now, so that wrong arguments raise an error in the constructor

    @property
    def place(self) -> str:
        return f"ZooKeeper at {self._connect_args.get('hosts', 'the address of its client')}"

    # -- connecting --------------------------------------------------------------------------------------------

    @property
    def client(self) -> Any:
        """The client of this process; it may not be connected yet."""
        with self._opening:
            if self._given is not None:
                return self._given
            if self._client is None or self._pid != os.getpid():  # a forked child does not have the client's threads
                self._make_client()
            return self._client

    def _make_client(self) -> None:
        retry = None if "connection_retry" in self._connect_args else self._often()
        client = KazooClient(**{"connection_retry": retry, **self._connect_args})
        self._client, self._pid, self._is_open = client, os.getpid(), False

    def _often(self) -> KazooRetry:
        """Return a policy that retries often: kazoo's own pauses double up to an hour, and could double an outage."""
        handler = self._connect_args.get("handler")
        sleep = time.sleep if handler is None else handler.sleep_func
        return KazooRetry(max_tries=-1, max_delay=MOST_PAUSE_SECONDS, sleep_func=sleep)

    def _connected(self) -> Any:
        """Return the client; on the first use in this process, connect it and create the two parent znodes."""
        if self._pid != os.getpid():
            if self._given is not None and self._pid:
                raise ConfigurationError(
                    "a KazooClient does not survive a fork; pass hosts= or url= instead of client="
                )
            self._names = None
        with self._opening:
            client = self.client
            if self._is_open and self._pid == os.getpid():
                return client
            self._pid = os.getpid()
            if not client.connected:
                try:
                    client.start(timeout=TIMEOUT_SECONDS)
                except client.handler.timeout_exception as error:
                    raise StoreUnavailable(f"{self.place} cannot be reached: {why_unreachable(client)}") from error
            client.add_listener(self._notice)
            check_version(self.place, version_in(told(client, b"srvr")), "ZooKeeper", OLDEST)
            try:
                self._refuse_strangers(client)
                for folder in ("jobs", "due"):
                    client.ensure_path(f"{self.path}/{folder}")
            except NoAuthError as error:
                raise ConfigurationError(
                    f"{self.place} does not let this client read and write {self.path}; give it an identity that may: "
                    "zookeeper://host/path?auth=digest:user:password"
                ) from error
            self._is_open = True
            return client

    def start(self) -> None:
        """Connect, and check the server."""
        with self.asked("read"):
            self._connected()

    def _refuse_strangers(self, client: Any) -> None:
        """Raise ConfigurationError if APScheduler has its jobs under this path."""
        names = client.get_children(self.path) if client.exists(self.path) else ()
        for name in names[:100]:
            with suppress(NoNodeError):
                if client.get(f"{self.path}/{name}")[0].startswith(b"\x80"):  # the first byte of every pickle
                    raise ConfigurationError(
                        f"{self.path} in {self.place} holds jobs of APScheduler ({name!r}); choose another path, and "
                        "take them over with `mainspring import`"
                    )

    def shutdown(self) -> None:
        """Stop listening; close our own client, or the user's if the user asked for that."""
        with self._opening:
            client, mine = (self._given, self._closes) if self._given is not None else (self._client, True)
            if client is not None and self._pid == os.getpid():
                client.remove_listener(self._notice)
                if mine:
                    client.stop()
                    client.close()
            self._is_open = False
            if self._given is None:
                self._client = None
        super().shutdown()

    # -- reading -----------------------------------------------------------------------------------------------

    def _job(self, key: str) -> str:
        return f"{self.path}/jobs/{quote(key, safe='')}"

    def _name(self, record: JobRecord) -> str:
        """Return the name of a record in the timetable."""
        wake = _NEVER if record.wake is None else wake_text(record.wake)
        return f"{wake},{record.version:014x},{quote(record.key, safe='')}"

    def _read(self, client: Any, names: Iterable[str]) -> list[JobRecord | None]:
        """Read records by the names of their znodes; send all requests before waiting for the first answer."""
        found: list[JobRecord | None] = []
        for name, answer in [(name, client.get_async(f"{self.path}/jobs/{name}")) for name in names]:
            try:
                found.append(JobRecord(unquote(name), *_decode(answer.get(timeout=TIMEOUT_SECONDS)[0])))
            except NoNodeError:
                found.append(None)
            except msgspec.DecodeError:
                found.append(self._damaged(name, answer.get()[0]))
        return found

    def _damaged(self, name: str, data: bytes) -> JobRecord | None:
        """Return an altered record with version and wake time from its name in the timetable, to be set aside."""
        for each in self._timetable():
            wake, version, key = each.split(",", 2)
            if key == name:
                return JobRecord(unquote(name), int(version, 16), None if wake == _NEVER else wake_of(wake), data)
        return None

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        with self.asked("read"):
            return self._read(self._connected(), [quote(key, safe="") for key in keys])

    def all(self) -> list[JobRecord]:
        with self.asked("read"):
            client = self._connected()
            found = self._read(client, client.get_children(f"{self.path}/jobs"))
        return [record for record in found if record is not None]

    def count(self) -> int:
        with self.asked("read"):
            stat = self._connected().exists(f"{self.path}/jobs")
        return 0 if stat is None else int(stat.numChildren)

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        """Read the due records, and the wake time of the next; the timetable is cached until it changes."""
        with self.asked("read"):
            names = self._timetable()
            wakes = [wake_of(name) for name in names[: limit + 1] if not name.startswith(_NEVER)]
            number = sum(wake <= until for wake in wakes[:limit])
            found = self._read(self._connected(), [name.split(",", 2)[2] for name in names[:number]])
        page = [record for record in found if record is not None and is_due(record, until)]
        return page, wakes[number] if len(wakes) > number else None

    def _timetable(self) -> list[str]:
        names, moves = self._names, self._moves
        if names is None:
            client = self._connected()
            if self._lags:
                self._lags = False
                client.sync(self.path)
            names = sorted(client.get_children(f"{self.path}/due", watch=self._stir))
            with self._reading:
                if self._moves == moves:  # otherwise it may have changed during the read: do not cache it
                    self._names = names
        return names

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        return self._write(writes)

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        return self._write([(None, record) for record in seen])

    def _write(self, writes: Sequence[tuple[JobRecord | None, JobRecord | None]]) -> list[bool]:
        try:
            with self.asked("write"):
                client = self._connected()
                steps = [self._step(client, record, seen).commit_async() for record, seen in writes]
                return [_is_done(step.get(timeout=TIMEOUT_SECONDS)) for step in steps]
        finally:
            self._stir()

    def _step(self, client: Any, record: JobRecord | None, seen: JobRecord | None) -> Any:
        step, due = client.transaction(), f"{self.path}/due"
        if seen is not None:
            step.delete(f"{due}/{self._name(seen)}")
        if record is None:
            assert seen is not None
            step.delete(self._job(seen.key))
            return step
        data = _encode((record.version, record.wake, record.data))
        if seen is None:
            step.create(self._job(record.key), data)
        else:
            step.set_data(self._job(record.key), data)
        step.create(f"{due}/{self._name(record)}")
        return step

    def check_size(self, record: JobRecord, job_id: str) -> None:
        super().check_size(record, job_id)
        if len(self._name(record)) > LONGEST_NAME:
            raise RecordTooLarge(job_id, len(self._name(record)), LONGEST_NAME, f"{self.place}, for the quoted id,")

    def check_room(self, new: Sequence[JobRecord]) -> None:
        """Raise TooManyJobs if there would be too many jobs, or too many bytes of names for one answer."""
        super().check_room(new)
        self._room -= len(new)
        if self._room < 0:  # count only now: reading all names for each new job would be slow
            with self.asked("read"):
                names = [*self._timetable(), *map(self._name, new)]
            number = sum(len(name) + 4 for name in names)  # the server sends each name with its length
            if number > MOST_NAME_BYTES:
                raise TooManyJobs(number, MOST_NAME_BYTES, self.place, "bytes of job ids")
            self._room = (MOST_NAME_BYTES - number) // (LONGEST_NAME + 4)

    # -- waking ------------------------------------------------------------------------------------------------

    def _stir(self, event: Any = None) -> None:
        """Drop the cached timetable, which has changed or may have, and wake the waiters."""
        with self._reading:
            self._names = None
            self._moves += 1
        self.changes.stir()

    def _notice(self, state: str) -> None:
        """Drop the cached timetable after each change of the session: the watches may be gone."""
        self._lags |= state == KazooState.CONNECTED
        self._stir()

    def wait(self, cursor: int, timeout: float) -> int:
        with self.asked("read"):
            self._timetable()  # a read sets the watch; a cached timetable has one already
        return super().wait(cursor, timeout)

    # -- health ------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Report durability: a majority of the servers has each write on disk before ZooKeeper acknowledges it."""
        with self.asked("read"):
            client = self._connected()
            said, measured = told(client, b"srvr"), told(client, b"mntr")
            members = members_of(client)
        version = version_in(said) or "of an unknown version"
        majority = f"{members // 2 + 1} of {members} servers have" if members > 1 else "the only server has"
        warnings = []
        synced = re.search(r"zk_synced_followers\s+(\d+)", measured)
        if synced and int(synced[1]) < members - 1:
            warnings.append(f"{synced[1]} of {members - 1} followers are in sync with the leader")
        return Health(
            durable=True,
            replicas=members // 2,
            reasons=(f"{majority} each write on disk before it is acknowledged (unless forceSync=no)",),
            version=f"ZooKeeper {version}",
            warnings=tuple(warnings),
        )


def _is_done(answers: Sequence[Any]) -> bool:
    """Return True if a multi was done, False if another writer came first; raise any other error."""
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    for error in errors:
        if not isinstance(error, (*_LOST, *_ROLLED_BACK)):
            raise error
    return not errors
