"""The settings of the project that the tests use; DJANGO_DATABASE chooses its database by a URL."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def database(url: str) -> dict[str, Any]:
    """Return the entry of DATABASES for a store's URL."""
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[0]
    entry: dict[str, Any] = {"ENGINE": f"django.db.backends.{ENGINES[kind]}", "OPTIONS": {}}
    if kind == "sqlite":
        options = {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF",
            "timeout": 20,
        }
        return {**entry, "NAME": parts.path[1:] or ":memory:", "OPTIONS": options}
    if kind == "mysql":
        use_mysql_driver()
        entry["OPTIONS"]["charset"] = "utf8mb4"
    return {
        **entry,
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }


def use_mysql_driver() -> None:
    """Use mysqlclient, Django's own driver, if it is installed and wanted; else PyMySQL under its name."""
    if os.environ.get("DJANGO_MYSQL", "pymysql") == "mysqlclient":
        return
    import pymysql

    pymysql.version_info = (2, 2, 8, "final", 0)  # Django asks for a version of mysqlclient
    pymysql.install_as_MySQLdb()


SECRET_KEY = "a key that only the tests know, of some length"
ROOT_URLCONF = "tests.django.project.urls"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
LOGGING_CONFIG = None  # the tests look at what is logged
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": database(os.environ.get("DJANGO_DATABASE", "sqlite://"))}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mainspring.django",
    "tests.django.project.shop",
]
