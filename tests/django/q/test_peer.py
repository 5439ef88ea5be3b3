"""django-q2's own tests on the drop-in: those that need nothing of its engine. The others are in decision 047.

They run from the installed package, under `peer/in_place.py`. To run all of them, take `-k` away below; without the one
that sends SIGTERM to the process of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[3]
PASSING: Final = (
    "test_iter",
    "test_iter_default_cache_timeout",
    "test_sync",
    "test_sync_raise_exception",
    "test_pre_enqueue_signal",
    "test_qcluster",
    "test_qmonitor",
    "test_qinfo",
    "test_qmemory",
    "test_info",
    "test_schedule_save_sets_next_run_for_cron",
    "test_redis_connection",
)


@pytest.mark.timeout(300)
def test_their_tests_pass(tmp_path: Path) -> None:
    folder = distribution("django-q2").locate_file("django_q/tests")
    words = [sys.executable, "-m", "pytest", "-q", "-rA", "-c", os.devnull, f"--rootdir={tmp_path}"]
    plugins = ["--disable-plugin-autoload", "-ptests.django.peer.in_place", "-ppytest_django.plugin"]
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.django.peer.settings",
        "DJANGO_DATABASE": "sqlite://",
        "PYTHONPATH": str(ROOT),
    }
    command = [*words, *plugins, "-k", " or ".join(PASSING), "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    passed = {line.rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("PASSED")}
    assert (done.returncode, passed) == (0, {*PASSING}), done.stdout
