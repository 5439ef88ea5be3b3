"""Jobs in RethinkDB: one document per record; one expression compares its version and replaces it.

The comparison is inside the write, so both are one atomic step. A filter before the write would not be: the document
could change in between. A wake time is text: numbers in RethinkDB are doubles, and the instants of far years need more
than 53 bits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Literal

from rethinkdb import RethinkDB
from rethinkdb.errors import ReqlAuthError, ReqlDriverError, ReqlError, ReqlOpIndeterminateError, ReqlTimeoutError

from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.health import Health
from mainspring.jobstores.split import JobRecord, WatchedRecords, wake_of, wake_text
from mainspring.locks import free_in_children

__all__ = ["RethinkDBRecords"]

TIMEOUT_SECONDS: Final = 5
FEED_SECONDS: Final = 0.5


class RethinkDBRecords(WatchedRecords):
    """Records in one table. Each thread has its own connection, because threads cannot share one of this driver."""

    server: ClassVar[str] = "RethinkDB"
    max_bytes: ClassVar[int | None] = 4 * 1024 * 1024
    refused: ClassVar[tuple[type[BaseException], ...]] = (ReqlError,)
    unsure: ClassVar[tuple[type[BaseException], ...]] = (ReqlOpIndeterminateError, ReqlDriverError, OSError)

    def __init__(
        self, database: str, table: str, client: Any, connect_args: Mapping[str, Any], url: str | None = None
    ) -> None:
        super().__init__()
        self.database, self.table_name, self.url = database, table, url
        self.connect_args = {"timeout": TIMEOUT_SECONDS, **connect_args}
        self.r = RethinkDB()
        self.table = self.r.db(database).table(table)
        self._given = client
        self._one = free_in_children(threading.Lock())  # the user's connection serves one thread at a time
        self._own = threading.local()
        self._opened: list[Any] = []
        self._ready = 0

    @property
    def place(self) -> str:
        return f"RethinkDB ({without_password(self.url)})" if self.url else "RethinkDB"

    @property
    def conn(self) -> Any:
        """The connection that the user gave, or this thread's own."""
        if self._given is not None:
            return self._given
        found, pid = getattr(self._own, "conn", (None, 0))
        if found is None or pid != os.getpid() or not found.is_open():
            found = self._connect()
            self._own.conn = found, os.getpid()
            self._opened.append(found)
        return found

    def _connect(self) -> Any:
        try:
            return self.r.connect(db=self.database, **self.connect_args)
        except ReqlAuthError as error:
            said = f"{error.message}; correct the user or the password"
            raise StoreUnavailable(f"{self.place} refused the log-in: {said}") from error
        except (ReqlDriverError, OSError) as error:
            raise StoreUnavailable(f"{self.place} cannot be reached: {without_password(str(error))}") from error

    # -- asking ------------------------------------------------------------------------------------------------

    def _ask(self, query: Any, what: Literal["read", "write"] = "read") -> Any:
        with self.asked(what):
            self._prepare()
            return self._send(query)

    def _send(self, query: Any) -> Any:
        if self._given is not None:
            with self._one:
                return _whole(query.run(self._given))
        try:
            return _whole(query.run(self.conn))
        except (ReqlDriverError, OSError):
            self._own.conn = None, 0  # the next use connects anew
            raise

    def _prepare(self) -> None:
        """Create the database, the table and its index if they are missing; refuse a table with APScheduler's jobs.

        Do this once in each process.
        """
        if self._ready == os.getpid():
            return
        r, database = self.r, self.r.db(self.database)
        if self.database not in self._send(r.db_list()):
            _ignore_twins(lambda: self._send(r.db_create(self.database)))
        if self.table_name not in self._send(database.table_list()):
            _ignore_twins(lambda: self._send(database.table_create(self.table_name, durability="hard")))
        stranger = self._send(self.table.filter(lambda row: row.has_fields("job_state")).limit(1))
        if stranger:
            raise ConfigurationError(
                f"the table {self.database}.{self.table_name} holds jobs of APScheduler, such as "
                f"{stranger[0]['id']!r}; give this store another table, and take the jobs over with `mainspring import`"
            )
        if "wake" not in self._send(self.table.index_list()):
            _ignore_twins(lambda: self._send(self.table.index_create("wake")))
        self._send(self.table.index_wait("wake"))
        self._ready = os.getpid()

    def start(self) -> None:
        """Connect, and create the database, table and index that are missing."""
        self._ask(self.r.expr(1))

    def shutdown(self) -> None:
        """Stop listening; close our own connections."""
        super().shutdown()
        opened, self._opened = self._opened, []
        for connection in opened:
            with suppress(Exception):  # the server may be gone
                connection.close(noreply_wait=False)
        self._ready = 0

    # -- records -----------------------------------------------------------------------------------------------

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        found = self._ask(self.table.get_all(*dict.fromkeys(keys))) if keys else []
        records = {each["id"]: _record(each) for each in found}
        return [records.get(key) for key in keys]

    def all(self) -> list[JobRecord]:
        return [_record(each) for each in self._ask(self.table)]

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        r = self.r
        timed = self.table.between(r.minval, r.maxval, index="wake").order_by(index="wake").limit(limit + 1)
        found = [_record(each) for each in self._ask(timed)]
        number = sum(each.wake is not None and each.wake <= until for each in found[:limit])
        return found[:number], found[number].wake if len(found) > number else None

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        return [self._put(record, seen) for record, seen in writes]

    def _put(self, record: JobRecord, seen: JobRecord | None) -> bool:
        document = {
            "id": record.key,
            "v": record.version,
            "wake": None if record.wake is None else wake_text(record.wake),
            "data": self.r.binary(record.data),
        }
        if seen is None:
            done = self._write(self.table.insert(document, conflict="error", durability="hard"))
            return bool(done["inserted"] == 1)
        same, branch = seen.version, self.r.branch
        step = self.table.get(record.key).update(
            lambda old: branch(old["v"].eq(same), document, {}), durability="hard", return_changes=False
        )
        return bool(self._write(step)["replaced"] == 1)

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        return [self._delete(each.key, each.version) for each in seen]

    def _delete(self, key: str, version: int) -> bool:
        branch = self.r.branch
        step = self.table.get(key).replace(lambda old: branch(old["v"].eq(version), None, old), durability="hard")
        return bool(self._write(step)["deleted"] == 1)

    def _write(self, step: Any) -> Any:
        done = self._ask(step, "write")
        error = done.get("first_error") or ""
        # Two errors mean that another node came first: the comparison fails on null if the document is gone, and an
        # insert fails if the key exists.
        if done.get("errors") and "null" not in error and "Duplicate primary key" not in error:
            raise StoreUnavailable(f"{self.place} refused a write: {error}")
        return done

    # -- waking and health -------------------------------------------------------------------------------------

    def follow(self, stopped: threading.Event) -> None:
        """Listen to the table on a separate connection; do not listen if the user gave the connection."""
        if self._given is not None:  # a connection serves one query at a time
            stopped.wait()
            return
        connection = self._connect()
        try:
            feed = self.table.changes().run(connection)
            self.changes.stir()
            while not stopped.is_set():
                with suppress(ReqlTimeoutError):
                    feed.next(wait=FEED_SECONDS)
                    self.changes.stir()
        finally:
            with suppress(Exception):
                connection.close(noreply_wait=False)

    def health(self) -> Health:
        """Judge by the settings of the table whether acknowledged writes survive."""
        reason = "each write is asked for with hard durability"
        self.start()
        try:
            config = self._ask(self.table.config())
        except StoreUnavailable:  # this user may not read the settings
            warning = "the settings of the table cannot be read"
            return Health(durable=True, reasons=(reason,), version=self.server, warnings=(warning,))
        if config.get("write_acks") == "single":
            reason = 'the table has write_acks "single"; set it to "majority"'
            return Health(durable=False, reasons=(reason,), version=self.server)
        replicas = max((len(shard.get("replicas", ())) for shard in config.get("shards", ())), default=1)
        return Health(durable=True, replicas=replicas // 2, reasons=(reason,), version=self.server)


def _whole(answer: Any) -> Any:
    """Read a cursor to its end, while no other thread uses the connection."""
    return answer if isinstance(answer, dict | list | int | str | None) else list(answer)


def _ignore_twins(make: Callable[[], Any]) -> None:
    """Call `make`; ignore the error that another node has made the same database, table or index first."""
    try:
        make()
    except ReqlError as error:
        if "already exists" not in str(error):
            raise


def _record(document: Mapping[str, Any]) -> JobRecord:
    wake = document.get("wake")
    return JobRecord(
        document["id"], int(document["v"]), None if wake is None else wake_of(wake), bytes(document["data"])
    )
