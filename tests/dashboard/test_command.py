"""`mainspring dashboard`: accounts in a file, an address that is safe, and a sentence where it is not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.dashboard import Accounts

LIMIT = 120.0


def test_an_account_is_added_and_changed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    command = ["dashboard", "--users", str(file), "--add-user"]
    for name, role, password in (
        ("ann", "admin", "a password"),
        ("bob", "view", "b password"),
        ("ann", "view", "c word 8"),
    ):
        done = CliRunner().invoke(main, [*command, name, "--role", role], input=f"{password}\n{password}\n")
        assert done.exit_code == 0, done.output
        assert f"{name} may {role}" in done.output
    accounts = Accounts(file=file)
    found = accounts.check("ann", "c word 8")
    assert found is not None
    assert found.role == "view"
    assert accounts.check("ann", "a password") is None
    assert "password" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--add-user", "ann"], "say which file"),
        (["--users", "U", "--add-user", "two words"], "no spaces"),
        (["--host", "0.0.0.0", "--app", "memory://"], "has no accounts"),
        (["--users", "/nowhere/users", "--app", "memory://"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_said(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["dashboard", *arguments])
    assert done.exit_code != 0
    assert message in done.output


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mainspring", "dashboard", "--app", f"sqlite:///{tmp_path}/jobs.db", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://localhost:\d+/", line)
        assert found is not None, line
        with urllib.request.urlopen(f"{found[0]}live?view=/queues", timeout=LIMIT) as stream:
            assert stream.readline() == b"retry: 1000\n"
            process.send_signal(signal.SIGTERM)  # a page that follows must not keep it from ending
            assert process.wait(LIMIT) == 0
