"""The settings of the project that the tests use; DJANGO_DATABASE chooses its database by a URL."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

import django

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
    "django.contrib.admin",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.messages",
    "django.contrib.sessions",
    "mainspring.django",
    "tests.django.project.shop",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth"]
PROCESSORS.append("django.contrib.messages.context_processors.messages")
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": PROCESSORS},
    }
]
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick
TASKS = {"default": {"BACKEND": "mainspring.django.backend.MainspringBackend", "QUEUES": []}}
