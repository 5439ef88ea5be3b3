"""The project's own tests, by Django's runner, on each database."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from mainspring.django.store import DjangoStore
from tests.django.conftest import added_database, fresh_database
from tests.servers import MariaDB, PostgreSQL

pytestmark = pytest.mark.timeout(300)  # processes of its own, which a loaded machine starts slowly

ROOT = Path(__file__).parents[2]


def manage(*words: str, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Django's for the project on a database."""
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.project.settings", "DJANGO_DATABASE": url}
    command = [sys.executable, "-W", "error::ResourceWarning", "-m", "django", *words]
    return subprocess.run(command, cwd=ROOT, env=environ | variables, capture_output=True, text=True, timeout=280)


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
    with added_database("migrated", url, tables=False) as alias:
        tables = connections[alias].introspection.table_names
        call_command("migrate", "mainspring", database=alias, verbosity=0)
        assert {"mainspring_runs", "mainspring_meta", "mainspring_schedule"} <= set(tables())
        call_command("migrate", "mainspring", "zero", database=alias, verbosity=0)
        assert set(tables()) == {"django_migrations"}
        shown = StringIO()
        call_command("sqlmigrate", "mainspring", "0001", database=alias, stdout=shown)
        assert "CREATE TABLE IF NOT EXISTS mainspring_runs" in shown.getvalue()
        call_command("migrate", "mainspring", database=alias, verbosity=0)
        store = DjangoStore(f"django://{alias}")
        assert store.beat() > 0
        store.shutdown()


def test_a_router_keeps_the_tables_out_of_other_databases(tmp_path: Path) -> None:
    with added_database("refused", f"sqlite:///{tmp_path}/db.sqlite3", tables=False) as alias:
        with override_settings(DATABASE_ROUTERS=["tests.django.test_project.Refuse"]):
            call_command("migrate", "mainspring", database=alias, verbosity=0)
        assert set(connections[alias].introspection.table_names()) == {"django_migrations"}


class Refuse:
    def allow_migrate(self, db: str, app_label: str, **_: object) -> bool:
        return db != "refused"
