"""`manage.py qcluster`: one of several clusters by its name, and a new start when a file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import override_settings
from msgspec.structs import replace

from mainspring.django.application import DjangoApp
from mainspring.django.conf import read
from mainspring.django.management.commands.qcluster import cluster_settings
from mainspring.django.tasks import async_task, result
from tests.django.conftest import added_database
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)  # a process of its own, which a loaded machine starts slowly

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 120.0
CLUSTERS = {"name": "shop", "workers": 1, "timeout": 10, "ALT_CLUSTERS": {"long": {"timeout": 1000, "workers": 2}}}
SETTINGS = """
from pathlib import Path
from tests.django.project.settings import *
BASE_DIR = Path(__file__).parent
DATABASES = {"default": database(f"sqlite:///{BASE_DIR}/db.sqlite3")}
INSTALLED_APPS = ["django.contrib.contenttypes", "mainspring.django"]
TASKS = {}
"""


def test_a_cluster_has_the_settings_of_its_name() -> None:
    with override_settings(Q_CLUSTER=CLUSTERS):
        made = cluster_settings({"cluster_name": "long"})
        assert (made.queues, made.processes) == ({"long": None}, 2)
        usual = cluster_settings({})
        assert (usual.queues, usual.processes) == ({"default": None}, 1)
        assert (cluster_settings({"queues": "mail:3"}).queues, cluster_settings({"run_once": True}).burst) == (
            {"mail": 3},
            True,
        )


def test_a_cluster_does_not_start_with_wrong_settings() -> None:
    with override_settings(MAINSPRING={"treads": 3}), pytest.raises(CommandError, match="did you mean 'threads'"):
        call_command("qcluster", run_once=True)


@pytest.mark.usefixtures("project")
def test_in_a_test_the_queue_is_executed_in_its_own_transaction() -> None:
    first = async_task("tests.django.project.shop.tasks.double", 4)
    other = async_task("tests.django.project.shop.tasks.double", 5, cluster="other")
    call_command("qcluster", run_once=True, queues="default")
    assert (result(first), result(other)) == (8, None)
    call_command("qcluster", run_once=True)
    assert result(other) == 10
    with pytest.raises(CommandError, match="worker processes cannot see this database"):
        call_command("qcluster")


def test_a_named_cluster_serves_its_queue_and_starts_again_when_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_settings.py").write_text(f"{SETTINGS}Q_CLUSTER = {CLUSTERS}\n")
    (tmp_path / "answers.py").write_text("def answer(): return 'old'\n")
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    words = [sys.executable, "-m", "django", "qcluster", "--reload", "-n", "long", "--processes", "1"]
    with (
        override_settings(Q_CLUSTER=CLUSTERS),
        added_database("reloaded", f"sqlite:///{tmp_path}/db.sqlite3", tables=False) as alias,
        DjangoApp(replace(read(), url=f"django://{alias}")) as app,
    ):
        call_command("migrate", "mainspring", database=alias, verbosity=0)
        ask = app.as_task("answers:answer").options(queue="long")
        other = app.as_task("answers:answer").options(queue="shop").enqueue()
        process = subprocess.Popen(words, cwd=tmp_path, env=environ)
        try:
            assert ask.enqueue().result(timeout=PATIENCE_SECONDS) == "old"
            (tmp_path / "answers.py").write_text("def answer(): return 'a newer one'\n")
            until(lambda: ask.enqueue().result(timeout=PATIENCE_SECONDS) == "a newer one")
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_SECONDS)
        assert code == 0
        assert other.status() == "pending"
        connections[alias].close()
