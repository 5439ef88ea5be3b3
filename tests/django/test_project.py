"""The project's own tests, by Django's runner, on each database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.django.conftest import fresh_database
from tests.servers import MariaDB, PostgreSQL

ROOT = Path(__file__).parents[2]


def manage(*words: str, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Django's for the project on a database."""
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.project.settings", "DJANGO_DATABASE": url}
    command = [sys.executable, "-W", "error::ResourceWarning", "-m", "django", *words]
    return subprocess.run(command, cwd=ROOT, env=environ | variables, capture_output=True, text=True, timeout=110)


def check(url: str) -> None:
    done = manage("test", "tests.django.project.shop.tests", "--noinput", url=url)
    assert done.returncode == 0, done.stderr
    assert "\nOK" in done.stderr


def test_the_project_passes_its_tests_on_sqlite() -> None:
    check("sqlite://")


def test_the_project_passes_its_tests_on_postgresql(postgresql_server: PostgreSQL) -> None:
    check(fresh_database(postgresql_server.url))


def test_the_project_passes_its_tests_on_mariadb(mariadb_server: MariaDB) -> None:
    check(fresh_database(mariadb_server.url))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_the_migrations_go_forth_and_back(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = None if kind == "sqlite" else request.getfixturevalue(f"{kind}_server")
    url = f"sqlite:///{tmp_path}/db.sqlite3" if server is None else fresh_database(server.url)
    for words in (["migrate", "-v", "0"], ["migrate", "mainspring", "zero", "-v", "0"], ["migrate", "-v", "0"]):
        done = manage(*words, url=url)
        assert done.returncode == 0, done.stderr
    shown = manage("sqlmigrate", "mainspring", "0001", url=url)
    assert "CREATE TABLE" in shown.stdout
    assert "mainspring_runs" in shown.stdout
    assert manage("check", "--database", "default", "--fail-level", "WARNING", url=url).returncode == 0
