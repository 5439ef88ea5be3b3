"""What is done to a store is known exactly, or the checks would blame the wrong one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.backs import LOCKS, SQLiteBack

WRITE = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE other (id)")
print("in", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not LOCKS.exists(), reason="the system does not tell who holds a lock")
def test_who_is_in_the_middle_of_a_write_to_sqlite_is_known(tmp_path: Path) -> None:
    back = SQLiteBack(tmp_path)
    with closing(sqlite3.connect(tmp_path / "chaos.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE one (id)")
        writer = subprocess.Popen([sys.executable, "-c", WRITE, tmp_path / "chaos.db"], stdout=subprocess.PIPE)
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"in\n"
            assert back.locked_by(writer.pid)
            assert not back.locked_by(1)
        finally:
            writer.kill()
            writer.communicate()
        assert not back.locked_by(writer.pid)
