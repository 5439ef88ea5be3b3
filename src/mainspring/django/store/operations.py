"""The migration operation that makes the store's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation
from sqlalchemy import Table
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from mainspring.django.store.databases import make_database
from mainspring.jobstores.sqlalchemy.meta import first_rows

__all__ = ["StoreTables", "creating", "dropping"]


class StoreTables(Operation):
    """Make the store's tables in this release's form; `schema` is the schema that the migration is for.

    A later schema has its own migration. A fresh database gets the newest tables at once, so the later migrations have
    nothing left to do.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, schema: int, tablename: str = "mainspring_jobs") -> None:
        self.schema, self.tablename = schema, tablename

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change nothing: the migration says which tables are models."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if router.allow_migrate(alias, app_label):
            for statement in creating(alias, self.tablename):
                schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if router.allow_migrate(alias, app_label):
            for statement in dropping(alias, self.tablename):
                schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        """Describe the operation for `migrate --plan`."""
        return f"Make mainspring's own tables (schema {self.schema})"


def creating(alias: str, tablename: str = "mainspring_jobs") -> Iterator[str]:
    """Yield the statements that make the tables; ask a connection of the alias for its version."""
    dialect, tables, names = _tables(alias, tablename)
    for table in tables:
        yield str(CreateTable(table, if_not_exists=True).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            # MySQL has no IF NOT EXISTS for indexes.
            yield str(CreateIndex(index, if_not_exists=dialect.name != "mysql").compile(dialect=dialect))
    for name, value in first_rows():
        yield f"INSERT INTO {names['meta']} (name, value) VALUES ('{name}', {value})"


def dropping(alias: str, tablename: str = "mainspring_jobs") -> Iterator[str]:
    """Yield the statements that drop the tables."""
    _, _, names = _tables(alias, tablename)
    return (f"DROP TABLE {names[word]}" for word in reversed(names))


def _tables(alias: str, tablename: str) -> tuple[Dialect, list[Table], dict[str, str]]:
    database = make_database(alias, tablename)
    try:
        return database.connections.dialect, database.describe().all(), database.names
    finally:
        database.close()
