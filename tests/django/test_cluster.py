"""A cluster on the project's app: its processes are killed, and all sessions of the database are ended under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections, transaction

from mainspring.django.application import DjangoApp
from mainspring.django.conf import Conf
from tests.django.conftest import URLS, added_database, fresh_database
from tests.servers import PostgreSQL
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)  # processes of its own, which a loaded machine starts slowly

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
QUICK = "tests.django.project.shop.tasks:double"
SLOW = "tests.django.project.shop.tasks:nap"


@pytest.fixture(scope="module")
def migrated(postgresql_server: PostgreSQL) -> Iterator[str]:
    with added_database("cluster", fresh_database(postgresql_server.url), tables=False) as alias:
        call_command("migrate", "mainspring", database=alias, verbosity=0)  # a worker reads the schedules, too
        yield alias


@pytest.fixture(scope="module")
def app(migrated: str) -> Iterator[DjangoApp]:
    with DjangoApp(Conf(url=f"django://{migrated}", salt="mainspring")) as app:
        yield app


@pytest.fixture(scope="module")
def cluster(app: DjangoApp, migrated: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.django.project.settings",
        "DJANGO_DATABASE": URLS[migrated],
    }
    words = [sys.executable, "-m", "mainspring", "worker", "mainspring.django.app:app", "-p", "1", "--quiet"]
    process = subprocess.Popen(words, cwd=ROOT, env=environ)
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the worker processes, which name themselves as they were spawned."""
    found = []
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            found.append(int(child))
    return found


def end_all_sessions(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_runs_go_on_when_all_sessions_of_the_database_are_ended(
    app: DjangoApp, cluster: subprocess.Popen[bytes], migrated: str
) -> None:
    task = app.as_task(QUICK)
    with transaction.atomic(using=migrated):
        app.enqueue_many(task.call(number) for number in range(600))
    until(lambda: app.count(status="succeeded"))
    for _ in range(6):
        connections[migrated].close()
        end_all_sessions(URLS[migrated])
        seen = app.count(status="succeeded")
        app.enqueue_many(task.call(number) for number in range(100))
        until(lambda before=seen: app.count(status="succeeded") > before)  # type: ignore[misc]
    until(lambda: app.count(status="succeeded") == 1_200)
    assert app.count() == 1_200
    assert {run.record.attempt for run in app.find(limit=2_000)} == {1}  # none was started twice


def test_the_runs_of_a_killed_worker_are_executed_by_its_successor(
    app: DjangoApp, cluster: subprocess.Popen[bytes]
) -> None:
    handles = app.enqueue_many(app.as_task(SLOW).call(0.1) for _ in range(40))
    until(lambda: app.count(status="running"))
    os.kill(workers_of(cluster)[0], signal.SIGKILL)
    for handle in handles:
        assert handle.result(timeout=PATIENCE_SECONDS) == "slept"
