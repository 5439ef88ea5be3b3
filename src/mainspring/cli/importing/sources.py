"""Read the id and the pickle of each job in each kind of APScheduler 3's stores. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import SCHEMES, store_scheme
from mainspring.errors import install_command, near

__all__ = ["SQL_TABLE", "Source", "read_source", "reported"]

APSCHEDULER_PATH: Final = "/apscheduler"
SQL_TABLE: Final = "apscheduler_jobs"
"""APScheduler's table in a SQL database."""


class Source(NamedTuple):
    """The place of APScheduler's jobs: a URL, and the names that each kind of store uses."""

    url: str
    table: str
    jobs_key: str
    run_times_key: str


def read_source(source: Source) -> list[tuple[str, bytes]]:
    """Return the id and the pickle of each job."""
    scheme = store_scheme(source.url)
    read = _READERS.get(SCHEMES[scheme].store if scheme in SCHEMES else "", _from_table)
    with reported(source.url):
        return read(source)


def _from_table(source: Source) -> list[tuple[str, bytes]]:
    url, table = source.url, source.table
    sqlalchemy = _driver("sqlalchemy", "sqlalchemy")
    address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        raise click.ClickException(f"there is no file {address.database!r}")  # opening it would create one
    engine = sqlalchemy.create_engine(address)
    try:
        names = sqlalchemy.inspect(engine).get_table_names()
        if table not in names:
            raise click.ClickException(f"{without_password(url)} has no table {table!r}{near(table, names)}")
        found = sqlalchemy.table(table, sqlalchemy.column("id"), sqlalchemy.column("job_state"))
        with engine.connect() as connection:
            rows = connection.execute(sqlalchemy.select(found).order_by(found.c.id))
            return [(str(job_id), bytes(state)) for job_id, state in rows]
    finally:
        engine.dispose()


def _from_redis(source: Source) -> list[tuple[str, bytes]]:
    url, jobs_key, run_times_key = source.url, source.jobs_key, source.run_times_key
    redis = _driver("redis", "redis")
    with redis.Redis.from_url(url) as client:
        kinds = {key: client.type(key).decode() for key in (jobs_key, run_times_key)}
        for key, kind in ((jobs_key, "hash"), (run_times_key, "zset")):
            if kinds[key] == "none" and key == run_times_key:  # every job is paused
                continue
            if kinds[key] != kind:
                what = "no key" if kinds[key] == "none" else f"a {kinds[key]}, not a {kind}, under"
                hint = near(key, [name.decode(errors="replace") for name in client.scan_iter("*jobs*", count=1000)])
                raise click.ClickException(f"{without_password(url)} has {what} {key!r}{hint}")
        return sorted((job_id.decode(), state) for job_id, state in client.hscan_iter(jobs_key))


def _from_zookeeper(source: Source) -> list[tuple[str, bytes]]:
    _driver("kazoo", "zookeeper")
    from kazoo.exceptions import NoNodeError

    from mainspring.jobstores.zookeeper import ZooKeeperJobStore

    # Use a plain client for the URL instead of the store: opening the store would write.
    client = ZooKeeperJobStore(url=source.url).client
    client.start(timeout=10.0)
    try:
        path = _path(source.url)
        if not client.exists(path):
            raise click.ClickException(f"{without_password(source.url)} has no {path!r}")
        found = []
        for name in sorted(client.get_children(path)):
            with suppress(NoNodeError):  # removed just now
                data = client.get(f"{path}/{name}")[0]
                if data:
                    found.append((name, data))
        return found
    finally:
        client.stop()
        client.close()


def _from_etcd(source: Source) -> list[tuple[str, bytes]]:
    from mainspring.jobstores.etcd import EtcdJobStore
    from mainspring.jobstores.etcd.client import unb64

    store, path = EtcdJobStore(url=source.url), _path(source.url)
    try:
        found = store.jobs.read_keys(f"{path}/", f"{path}0")
        return [(unb64(kv["key"]).decode()[len(path) + 1 :], unb64(kv.get("value", ""))) for kv in found]
    finally:
        store.shutdown()


def _from_mongodb(source: Source) -> list[tuple[str, bytes]]:
    pymongo = _driver("pymongo", "mongodb")
    database, collection = _path(source.url).strip("/"), _document_table(source)
    with pymongo.MongoClient(source.url, serverSelectionTimeoutMS=10_000) as client:
        names = client[database].list_collection_names()
        if collection not in names:
            raise click.ClickException(
                f"{without_password(source.url)} has no collection {database}.{collection}{near(collection, names)}"
            )
        rows = client[database][collection].find({"job_state": {"$exists": True}}, ["job_state"], sort=[("_id", 1)])
        return [(str(row["_id"]), bytes(row["job_state"])) for row in rows]


def _from_rethinkdb(source: Source) -> list[tuple[str, bytes]]:
    _driver("rethinkdb", "rethinkdb")
    from mainspring.jobstores.rethinkdb import RethinkDBJobStore

    database, table = _path(source.url).strip("/"), _document_table(source)
    store = RethinkDBJobStore(url=source.url)  # not opened: that would write
    r, connection = store.r, store.conn
    try:
        names = r.db(database).table_list().run(connection) if database in r.db_list().run(connection) else []
        if table not in names:
            raise click.ClickException(
                f"{without_password(source.url)} has no table {database}.{table}{near(table, names)}"
            )
        rows = r.db(database).table(table).filter(lambda row: row.has_fields("job_state")).run(connection)
        return sorted((str(row["id"]), bytes(row["job_state"])) for row in rows)
    finally:
        connection.close(noreply_wait=False)


def _document_table(source: Source) -> str:
    """Return APScheduler's name for a table of documents, unless the user gave another."""
    return "jobs" if source.table == SQL_TABLE else source.table


def _path(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path).rstrip("/") or APSCHEDULER_PATH


_READERS: Final[dict[str, Callable[[Source], list[tuple[str, bytes]]]]] = {
    "redis": _from_redis,
    "zookeeper": _from_zookeeper,
    "etcd": _from_etcd,
    "mongodb": _from_mongodb,
    "rethinkdb": _from_rethinkdb,
}
"""Readers by the name of the store; SQLAlchemy reads every other URL."""


def _driver(name: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise click.ClickException(f"this needs a driver: {install_command(extra)} ({error})") from error


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Report an error of a source or target in one line."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        raise click.ClickException(f"{without_password(url)}: {type(error).__name__}: {error}") from error
