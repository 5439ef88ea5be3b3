"""A project changes from the real django-q2 to mainspring.django_q: each step of the guide, on one database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)  # processes of its own, which a loaded machine starts slowly

ROOT = Path(__file__).parents[3]


class Project:
    """The project in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.hostile = folder / "hostile"
        self._environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.django.dropin.settings",
            "DJANGO_DATABASE": f"sqlite:///{folder}/db.sqlite3",
            "HOSTILE": str(self.hostile),
        }

    def run(self, *words: str, **variables: str) -> str:
        command = [sys.executable, "-m", *words]
        environ = self._environ | variables
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("dropin"))
    made.run("tests.django.dropin.fill", TAKEN_BY="django_q")
    made.hostile.unlink(missing_ok=True)  # django-q unpickles what it is given
    return made


@pytest.fixture(scope="module")
def taken(project: Project) -> Any:
    return json.loads(project.run("tests.django.dropin.take"))


def test_the_schedules_stay_where_they_were(taken: Any) -> None:
    assert taken["names"][0] == ["by a migration", "by hand"]
    assert taken["pages"] == [200, 200, 200, 200]


def test_a_dry_run_writes_nothing_and_says_what_is_refused(taken: Any) -> None:
    assert taken["before"] == 0
    assert taken["dry run"][0] == "would be taken over: 5 queued, 4 finished, 0 schedules"
    refused = "\n".join(line for line in taken["dry run"] if line.startswith("refused: queued"))
    assert "argument[0] is a collections.OrderedDict" in refused
    assert "argument[0] is a pathlib.Path.touch" in refused
    assert "no function" in refused or "missing" in refused
    assert "signature" in refused


def test_tasks_are_taken_over_once(taken: Any) -> None:
    assert taken["written"][0] == "taken over: 5 queued, 4 finished, 0 schedules"
    assert taken["again"][0] == "taken over: 0 queued, 0 finished, 0 schedules"
    assert taken["names"][1] == ["by function", "hook of plain", "instance", "plain", "slow", "typed"]
    assert taken["names"][2] == ["counter", "done", "hostile"]
    assert taken["names"][3] == ["bad"]
    assert taken["results"] == [3, "a" * 32, "<it is a collections.Counter>", False]


@pytest.mark.usefixtures("taken")
def test_nothing_that_a_pickle_names_was_called(project: Project) -> None:
    assert not project.hostile.exists()


@pytest.mark.usefixtures("taken")
def test_a_cluster_executes_what_was_taken_over(project: Project) -> None:
    found = json.loads(project.run("tests.django.dropin.serve"))
    assert found["done"]
    assert found["cluster"] == [True, 1, True]
    assert found["state"] == [True, False, False]
    assert found["stopped"] == [True, True, False]
    runs = found["runs"]
    assert runs["plain"] == ["succeeded", "3"]
    assert runs["hook of plain"] == ["succeeded", "plain: True 3 work 1"]
    assert runs["by function"] == ["succeeded", "2026-01-02!"]
    assert runs["instance"] == ["succeeded", "ann"]
    assert runs["slow"][0] == "failed"
    assert "1 s" in runs["slow"][1] or "time" in runs["slow"][1].lower()
    assert runs["by hand"] == ["succeeded", "3"]
    assert runs["by a migration"] == ["succeeded", "23"]
    assert found["schedules"] == {"by hand": 2, "by a migration": -1}
