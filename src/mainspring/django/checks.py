"""System checks: `manage.py check` reports faults in the settings; with `--database`, also in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from mainspring.codec.keyring import MIN_KEY_BYTES
from mainspring.django.conf import conf
from mainspring.django.store.databases import VENDORS, make_database
from mainspring.errors import MainspringError, near
from mainspring.jobstores.sqlalchemy.meta import SQL_SCHEMA, number

__all__ = ["check_backends", "check_settings", "check_tables"]

TEST_DATABASE = "file:memorydb_"
"""The prefix of the in-memory databases of Django's test runner."""
PEERS = ("mainspring.django", "mainspring.django_q", "django_q")


@register()
def check_settings(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Check MAINSPRING, Q_CLUSTER, the database and the keys."""
    found = conf()
    return [*found.messages, *_check_peers(), *_check_database(), *_check_keys(), *_check_inline()]


def _check_peers() -> list[CheckMessage]:
    installed = [name for name in PEERS if apps.is_installed(name)]
    if len(installed) < 2:
        return []
    return [
        Error(
            f"INSTALLED_APPS has {' and '.join(installed)}, which do the same work",
            hint="Keep one of them: mainspring.django_q takes the place of django_q.",
            id="mainspring.E003",
        )
    ]


def _check_database() -> list[CheckMessage]:
    alias = conf().alias
    if alias is None:
        outbox = conf().outbox
        return [] if outbox is None or outbox in connections.databases else [_unknown_alias(outbox, "outbox")]
    if alias not in connections.databases:
        return [_unknown_alias(alias, "database")]
    connection = connections[alias]
    if connection.vendor not in VENDORS:
        hint = "Use SQLite, PostgreSQL, MariaDB or MySQL, or give MAINSPRING a 'url'."
        text = f"the store has no statements for {connection.vendor} (DATABASES[{alias!r}])"
        return [Error(text, hint=hint, id="mainspring.E004")]
    if connection.vendor == "postgresql" and not _is_psycopg3():
        text = "Django uses psycopg2, and the store's statements are written for psycopg 3"
        return [Error(text, hint='pip install "psycopg[binary]"', id="mainspring.E005")]
    return _check_sqlite(connection) if connection.vendor == "sqlite" else []


def _unknown_alias(alias: str, key: str) -> Error:
    text = f"there is no database {alias!r} in DATABASES{near(alias, connections.databases)}"
    return Error(text, hint=f"Correct MAINSPRING[{key!r}].", id="mainspring.E004")


def _is_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)


def _check_sqlite(connection: Any) -> list[CheckMessage]:
    given = connection.settings_dict
    name, options = str(given["NAME"]), given["OPTIONS"]
    if name.startswith(TEST_DATABASE):
        return []
    if ":memory:" in name or "mode=memory" in name:
        text = "the database is in memory: worker processes cannot see it"
        return [Warning(text, hint="Use a file, or mainspring.django.testing.run_queue().", id="mainspring.W015")]
    wal = "journal_mode" in str(options.get("init_command", "")).lower()
    if wal and str(options.get("transaction_mode", "")).upper() == "IMMEDIATE":
        return []
    return [
        Warning(
            f"DATABASES[{connection.alias!r}] is a SQLite file without a write-ahead log or IMMEDIATE transactions",
            hint='OPTIONS = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"} lets '
            "processes write beside each other, four times as fast.",
            id="mainspring.W012",
        )
    ]


def _check_keys() -> list[CheckMessage]:
    if conf().secret_key is not None:
        return []
    try:
        key = settings.SECRET_KEY
    except ImproperlyConfigured:
        key = ""
    if len(key if isinstance(key, bytes) else key.encode()) >= MIN_KEY_BYTES:
        return []
    text = f"SECRET_KEY is missing or shorter than {MIN_KEY_BYTES} bytes, and runs are signed with a key made of it"
    return [Error(text, hint="Set SECRET_KEY, or MAINSPRING['secret_key'].", id="mainspring.E006")]


def _check_inline() -> list[CheckMessage]:
    if not conf().inline or settings.DEBUG:
        return []
    text = "calls are executed in the process that makes them ('inline' or Q_CLUSTER's 'sync'), and DEBUG is off"
    return [Warning(text, hint="Leave it to the settings of your tests.", id="mainspring.W013")]


@register()
def check_backends(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Check that a worker serves the queues in Django's TASKS."""
    served = {conf().default_queue, "default", *conf().queues}
    messages: list[CheckMessage] = []
    for alias, backend in getattr(settings, "TASKS", {}).items():
        if "mainspring" in str(backend.get("BACKEND", "")):
            missing = sorted(set(backend.get("QUEUES") or ()) - served) if conf().queues else []
            messages += [
                Warning(
                    f"TASKS[{alias!r}] has the queue {queue!r}, which no worker of this project serves",
                    hint="Name it in MAINSPRING['queues'].",
                    id="mainspring.W016",
                )
                for queue in missing
            ]
    return messages


@register(Tags.database)
def check_tables(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the tables have this release's schema."""
    found = conf()
    if not databases or found.alias not in databases or found.alias is None:
        return []
    if any(message.id in ("mainspring.E004", "mainspring.E005") for message in _check_database()):
        return []
    database = make_database(found.alias, found.tablename)
    try:
        database.open()
        schema = database.read(lambda tx: number(tx, "schema"))
    except MainspringError:
        return []  # there are no tables yet: the first use says to migrate
    finally:
        database.close()
    if schema == SQL_SCHEMA:
        return []
    text = f"the tables have schema {schema}, and this version of mainspring knows only {SQL_SCHEMA}"
    newer = schema is not None and schema > SQL_SCHEMA
    hint = "Upgrade mainspring here." if newer else "Run: manage.py migrate"
    return [Warning(f"{text}: no run is claimed and no job fires", hint=hint, id="mainspring.W011")]
