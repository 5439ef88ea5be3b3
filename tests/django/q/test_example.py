"""The example project: it passes its own tests, and a cluster serves it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # processes of its own, which a loaded machine starts slowly

EXAMPLE = Path(__file__).parents[3] / "examples" / "django"


def manage(*words: str, database: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environ |= {"SHOP_DATABASE": str(database), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "manage.py", *words]
    done = subprocess.run(command, cwd=EXAMPLE, env=environ, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done


def test_the_example_passes_its_tests(tmp_path: Path) -> None:
    done = manage("test", "--noinput", "-v", "0", database=tmp_path / "db.sqlite3")
    assert "\nOK" in done.stderr


def test_the_commands_serve_the_example(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite3"
    code = (
        "from django.core.management import call_command; call_command('migrate', verbosity=0); "
        "from shop.models import Order; from shop.tasks import send_receipt; "
        "send_receipt.enqueue(Order.objects.create(text='tea').pk)"
    )
    manage("shell", "-v", "0", "-c", code, database=database)
    log = manage("qcluster", "--run-once", database=database).stderr
    assert "send_receipt(1)" in log
    assert "WARNING" not in log
    code = (
        "from django.core.management import call_command; call_command('qinfo'); call_command('qinfo', '--config'); "
        "call_command('qinfo', '--ids'); call_command('qmonitor', '--run-once'); call_command('qmemory', '--run-once')"
    )
    shown = manage("shell", "-v", "0", "-c", code, database=database).stdout
    assert "1 succeeded" in shown
    assert "send_receipt(1)" in shown
    assert "threads: 4" in shown
    assert "no cluster is running" in shown
