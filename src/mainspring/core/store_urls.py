"""The URL schemes of stores: the back end that each names, its driver, and the extra that installs the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["SCHEMES", "STORE_CLASSES", "StoreScheme", "schemes_of", "sqlite_file", "store_scheme", "with_driver"]

STORE_CLASSES: Final = {
    "memory": "mainspring.jobstores.memory:MemoryJobStore",
    "sqlalchemy": "mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore",
    "redis": "mainspring.jobstores.redis:RedisJobStore",
    "zookeeper": "mainspring.jobstores.zookeeper:ZooKeeperJobStore",
    "etcd": "mainspring.jobstores.etcd:EtcdJobStore",
    "mongodb": "mainspring.jobstores.mongodb:MongoDBJobStore",
    "rethinkdb": "mainspring.jobstores.rethinkdb:RethinkDBJobStore",
}
"""The built-in stores, by their names in a configuration."""


class StoreScheme(NamedTuple):
    """The meaning of a scheme: a store in STORE_CLASSES, its driver and extra, and the dialect of a SQL store."""

    store: str
    extra: str
    driver: str = ""
    dialect: str = ""


SCHEMES: Final = {
    "memory": StoreScheme("memory", ""),
    "sqlite": StoreScheme("sqlalchemy", "sqlalchemy", "pysqlite", "sqlite"),
    "postgresql": StoreScheme("sqlalchemy", "postgresql", "psycopg", "postgresql"),
    "postgres": StoreScheme("sqlalchemy", "postgresql", "psycopg", "postgresql"),
    "mysql": StoreScheme("sqlalchemy", "mysql", "pymysql", "mysql"),
    "mariadb": StoreScheme("sqlalchemy", "mysql", "pymysql", "mariadb"),
    "redis": StoreScheme("redis", "redis", "redis"),
    "rediss": StoreScheme("redis", "redis", "redis"),
    "unix": StoreScheme("redis", "redis", "redis"),
    "zookeeper": StoreScheme("zookeeper", "zookeeper", "kazoo"),
    "etcd": StoreScheme("etcd", "etcd"),
    "etcds": StoreScheme("etcd", "etcd"),
    "mongodb": StoreScheme("mongodb", "mongodb", "pymongo"),
    "rethinkdb": StoreScheme("rethinkdb", "rethinkdb", "rethinkdb"),
}
"""The built-in schemes. Packages add more by entry points. The dialect is SQLAlchemy's name for the database."""


def store_scheme(url: str) -> str:
    """Return the scheme of a URL without its driver: `postgresql` for `postgresql+psycopg://host/db`."""
    return url.partition(":")[0].partition("+")[0]


def schemes_of(store: str) -> tuple[str, ...]:
    """Return the schemes of a built-in store."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.store == store)


def with_driver(scheme: str) -> str:
    """Return a SQL scheme with our driver, as SQLAlchemy writes it; unchanged if it already names a driver."""
    known = SCHEMES.get(scheme)
    return f"{known.dialect}+{known.driver}" if known is not None and known.dialect else scheme


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for a database in memory, and for all other URLs."""
    path = url.partition("://")[2].partition("?")[0]
    if store_scheme(url) != "sqlite" or path in ("", "/", "/:memory:") or not path.startswith("/"):
        return None
    return Path(path[1:])
