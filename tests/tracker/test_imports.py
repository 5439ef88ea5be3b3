"""What the tracker needs to be installed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

sys.modules["greenlet"] = None  # as if it were not installed

from sqlalchemy import create_engine
from tests.tracker.kit import Base, Job, Step

engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
Job.create_and_save(engine, id="a", status=Step.pending)
with Step.start(engine, "a") as (job, updates):
    job.heartbeat()
    updates.set("size", 7)
assert Step.start_next(engine) is None
assert [job.size for job in Job.query_by_status(engine, Step.succeeded)] == [7]
try:
    Step.start("sqlite://", "a")
except TypeError as error:
    print(error)
"""


def test_without_greenlet_the_tracker_works_except_in_async_code() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "make one with sqlalchemy.create_engine" in done.stdout
