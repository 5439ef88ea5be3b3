"""The dialects on Django's connections; each imports its driver on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from django.db import connections

from mainspring.errors import ConfigurationError, near

if TYPE_CHECKING:
    from mainspring.django.store.database import DjangoDatabase

__all__ = ["VENDORS", "make_database"]


def _sqlite() -> type[DjangoDatabase]:
    from mainspring.django.store.sqlite import DjangoSQLite

    return DjangoSQLite


def _postgresql() -> type[DjangoDatabase]:
    from mainspring.django.store.postgresql import DjangoPostgreSQL

    return DjangoPostgreSQL


def _mysql() -> type[DjangoDatabase]:
    from mainspring.django.store.mariadb import DjangoMariaDB

    return DjangoMariaDB


VENDORS: Final[dict[str, Callable[[], type[DjangoDatabase]]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mysql,
}
"""The supported databases, by Django's vendor names."""


def make_database(alias: str, tablename: str) -> DjangoDatabase:
    """Return the database of an alias in `settings.DATABASES`, not yet opened."""
    if alias not in connections.databases:
        raise ConfigurationError(f"there is no database {alias!r} in DATABASES{near(alias, connections.databases)}")
    vendor = connections[alias].vendor
    if vendor not in VENDORS:
        raise ConfigurationError(
            f"DATABASES[{alias!r}] is {vendor}, for which there is no store; use SQLite, PostgreSQL or MariaDB, or "
            "give MAINSPRING a url"
        )
    return VENDORS[vendor]()(alias, tablename)
