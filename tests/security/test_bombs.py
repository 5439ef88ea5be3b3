"""Little that wants to become much costs little: S6 of the checklist.

The most that zlib makes of a frame of 1 MiB, the largest that is read by default, is about 1,000 MiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from tests.security import bombs
from tests.servers import Redis

ROOT = Path(__file__).parents[2]
GROWTH = 32
"""MiB by which a process may grow that meets a bomb."""


def weigh(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", bombs.__name__, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_bombs_are_as_small_and_as_strong_as_they_can_be() -> None:
    assert len(bombs.bomb(1000)) < 1024 * 1024
    assert zlib.decompressobj().decompress(bombs.bomb(10)[:-4]) == bytes(10 * bombs.MIB)


def test_a_process_that_reads_bombs_hardly_grows() -> None:
    seen = weigh()
    reason, growth = seen.pop("200 MiB without limits")
    assert (reason, growth > 150) == ("bad_data", True)  # so the scale would have told
    # Of a frame of 10 MiB there are three copies at a time. Of the tuples with 15 MiB there are two, and the kernel may
    # give each of them a huge page of 2 MiB more than it needs.
    extra = {"10 GiB in a large frame": 30, "tuples in tuples": 4}
    allowed = {name: GROWTH + extra.get(name, 0) for name in seen}
    assert extra.keys() <= allowed.keys()
    assert len(seen) == 10
    assert {reason for reason, _ in seen.values()} == {"too_large"}
    assert {name: growth for name, (_, growth) in seen.items() if growth >= allowed[name]} == {}


def test_a_worker_sets_bombs_aside_and_hardly_grows(redis_server: Redis) -> None:
    seen = weigh(redis_server.url)
    assert sorted(seen) == ["bomb0", "bomb1"]
    for said, growth in seen.values():
        assert said.startswith("broken, too_large")
        assert growth < GROWTH
