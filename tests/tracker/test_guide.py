"""The guide's code and the example run as they are, and the guide says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.core import run
from mainspring.tracker import JobMixin, Tracker, table
from tests.docs.pages import program_of
from tests.servers import PostgreSQL

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "tracker.md").read_text()


def test_the_guides_code_runs(tmp_path: Path, postgresql_server: PostgreSQL) -> None:
    code = program_of("tracker.md").replace("postgresql+psycopg://localhost/files", postgresql_server.url)
    # What the guide leaves to the reader: an empty database, and the row that its async part starts.
    created = "        await connection.run_sync(Base.metadata.create_all)\n"
    assert created in code
    emptied = created.replace("create_all", "drop_all")
    filled = "        await connection.execute(File.__table__.insert().values(id='c.txt', status=10))\n"
    script = tmp_path / "guide.py"
    script.write_text(code.replace(created, emptied + created + filled))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a.txt has 6 words\n", "")


def test_the_example_prints_what_it_promises() -> None:
    path = ROOT / "examples" / "tracker_pipeline.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    published, given_up = done.stdout.splitlines()
    assert re.fullmatch(r"40: tracker_pipeline\.py has \d+ words", published)
    assert given_up.startswith("13: FileNotFoundError")


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("{} KiB of message", run.MESSAGE_CHARS // 1024),
        ("{} KiB of traceback", run.TRACEBACK_CHARS // 1024),
        ("`traceback_stack_limit` ({}) frames", Tracker.traceback_stack_limit),
        ("one SELECT of the oldest {}", table.CLAIM_CANDIDATES),
        ("counts as dead; {} unless", Tracker.expire),
        ("attempts; {} unless", Tracker.max_retry),
    ],
)
def test_the_guide_gives_the_bounds_that_hold(said: str, value: object) -> None:
    assert said.format(value) in GUIDE


def test_the_guide_names_the_columns_of_the_mixin() -> None:
    columns = list(JobMixin.__annotations__)
    assert f"adds {', '.join(columns)}" in GUIDE
