"""Schedules, admin, signals and names on the servers, too: the same tests with another default database.

MAINSPRING_DJANGO=all python3 run.py test -- tests/django/q/test_other_databases.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.django.conftest import fresh_database

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("MAINSPRING_DJANGO") != "all", reason="CI runs them on SQLite"),
]

HERE = Path(__file__).parent
FILES = [str(HERE / f"test_{name}.py") for name in ("schedules", "admin", "signals", "names", "backend")]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_the_same_tests_pass_on_a_server(kind: str, request: pytest.FixtureRequest) -> None:
    url = fresh_database(request.getfixturevalue(f"{kind}_server").url)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *FILES]
    environ = {**os.environ, "DJANGO_DATABASE": url}
    done = subprocess.run(command, cwd=HERE.parents[2], env=environ, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout
