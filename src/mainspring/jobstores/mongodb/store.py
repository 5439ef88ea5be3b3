"""The job store in MongoDB, with APScheduler's constructor."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from pymongo import MongoClient

from mainspring.codec import Codec
from mainspring.jobstores.base import Health, JobStore
from mainspring.jobstores.mongodb.jobs import MongoJobs
from mainspring.jobstores.mongodb.runs import MongoRuns
from mainspring.jobstores.mongodb.server import TIMEOUT_MS, MongoServer
from mainspring.jobstores.opening import DEFAULT_NAME
from mainspring.jobstores.run_records import RunRecordStore
from mainspring.jobstores.split import RecordsJobStore, resolve

__all__ = ["MongoDBJobStore"]

APSCHEDULER_NAME = "apscheduler"
"""The database where APScheduler keeps its jobs by default."""


class MongoDBJobStore(RecordsJobStore):
    """A store of jobs and runs in a MongoDB database.

    `client` is a MongoClient, or a reference to one; it stays open when the store is shut down. Without it, the store
    connects by `url` or `connect_args`. `runs` is another store for the runs. APScheduler's `pickle_protocol` is
    accepted and has no effect: nothing is pickled.
    """

    def __init__(
        self,
        database: str = APSCHEDULER_NAME,
        collection: str = "jobs",
        client: Any = None,
        pickle_protocol: int | None = None,
        *,
        url: str | None = None,
        runs: JobStore | str | None = None,
        codec: Codec | None = None,
        keep_runs: int = 100_000,
        name: str = DEFAULT_NAME,
        **connect_args: Any,
    ) -> None:
        if not database:
            raise ValueError('The "database" parameter must not be empty')
        if not collection:
            raise ValueError('The "collection" parameter must not be empty')
        if url is not None and database == APSCHEDULER_NAME:
            database = unquote(urlsplit(url).path.strip("/")) or DEFAULT_NAME
        if name != DEFAULT_NAME:
            collection = f"{name}_{collection}"
        self.mongo = MongoServer(database, collection, resolve(client), lambda: _connect(url, connect_args), url)
        if runs is None:
            runs = RunRecordStore(MongoRuns(self.mongo), codec=codec, keep_runs=keep_runs)
        super().__init__(MongoJobs(self.mongo), runs=runs, codec=codec, name=name)

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The PyMongo client of this process."""
        return self.mongo.client

    @property
    def collection(self) -> Any:
        """The collection of the jobs."""
        return self.mongo.get()

    def health(self) -> Health:
        """Judge whether acknowledged writes survive; ask the store of the runs, too, if it is another one."""
        return self.mongo.health() if isinstance(self.runs, RunRecordStore) else super().health()


def _connect(url: str | None, connect_args: dict[str, Any]) -> MongoClient[dict[str, Any]]:
    """Make a client whose time-outs are shorter than a lease; given options override them."""
    times: dict[str, Any] = {
        "serverSelectionTimeoutMS": TIMEOUT_MS,
        "connectTimeoutMS": TIMEOUT_MS,
        "socketTimeoutMS": 2 * TIMEOUT_MS,
        "appname": "mainspring",
    }
    query = "" if url is None else urlsplit(url).query
    given = {key.lower() for key in connect_args} | {part.partition("=")[0].lower() for part in query.split("&")}
    args = {key: value for key, value in times.items() if key.lower() not in given} | connect_args
    return MongoClient(url, **args) if url is not None else MongoClient(**args)
