"""The job store in RethinkDB, with APScheduler's constructor."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mainspring.codec import Codec
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.opening import DEFAULT_NAME
from mainspring.jobstores.rethinkdb.records import RethinkDBRecords
from mainspring.jobstores.split import RecordsJobStore, resolve

__all__ = ["RethinkDBJobStore"]

APSCHEDULER_NAME = "apscheduler"
"""The database where APScheduler keeps its jobs by default."""


class RethinkDBJobStore(RecordsJobStore):
    """A store of jobs in a RethinkDB table; `runs` is the store of their runs.

    `client` is a connection, or a reference to one; it serves one thread at a time, and stays open when the store is
    shut down. APScheduler's `pickle_protocol` is accepted and has no effect: nothing is pickled.
    """

    jobs: RethinkDBRecords

    def __init__(
        self,
        database: str = APSCHEDULER_NAME,
        table: str = "jobs",
        client: Any = None,
        pickle_protocol: int | None = None,
        *,
        url: str | None = None,
        runs: JobStore | str | None = None,
        codec: Codec | None = None,
        name: str = DEFAULT_NAME,
        **connect_args: Any,
    ) -> None:
        if not database:
            raise ValueError('The "database" parameter must not be empty')
        if not table:
            raise ValueError('The "table" parameter must not be empty')
        if url is not None:
            place = urlsplit(url)
            if database == APSCHEDULER_NAME:
                database = unquote(place.path.strip("/")) or DEFAULT_NAME
            found = {"host": place.hostname, "port": place.port, "user": place.username, "password": place.password}
            decoded = {key: unquote(value) if isinstance(value, str) else value for key, value in found.items()}
            connect_args = {key: value for key, value in decoded.items() if value is not None} | connect_args
            options = dict(parse_qsl(place.query))
            runs = options.pop("runs", None) if runs is None else runs
            if options:
                raise ConfigurationError(f"rethinkdb:// has no option {next(iter(options))!r}; it has 'runs'")
        if name != DEFAULT_NAME:
            table = f"{name}_{table}"
        records = RethinkDBRecords(database, table, resolve(client), connect_args, url)
        super().__init__(records, runs=runs, codec=codec, name=name)
        self.r, self.table = records.r, records.table

    @property
    def conn(self) -> Any:
        """The connection that the user gave, or this thread's own."""
        return self.jobs.conn

    def __repr__(self) -> str:
        return f"<{type(self).__name__} (connection={self.jobs._given or self.jobs.place})>"
