"""How far a call travels: our own Python calls, the files they are in, and the jumps from one file to another.

`python3 run.py bench hops` prints them for one enqueue, one run in a worker, one fire and one result, on SQLite. They
are counts, not times, so they do not depend on how busy the machine is.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import mainspring
from mainspring import Mainspring

OURS = str(Path(mainspring.__file__).parent)
TRIES = 5


class Hops:
    """Counts calls while `begin` to `end`, in this thread or in all others."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._files: dict[int, list[str]] | None = None
        self._here = True

    def begin(self, *, here: bool) -> None:
        self._here, self._files = here, {}

    def end(self) -> tuple[int, int, int]:
        """Return the number of calls, of files, and of jumps between files, thread by thread."""
        found, self._files = self._files or {}, None
        paths = list(found.values())
        jumps = sum(before != after for path in paths for before, after in pairwise(path))
        return sum(map(len, paths)), len({file for path in paths for file in path}), jumps

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        files, thread = self._files, threading.get_ident()
        if files is None or event != "call" or (thread == self._main) is not self._here:
            return
        if frame.f_code.co_filename.startswith(OURS):
            files.setdefault(thread, []).append(frame.f_code.co_filename)


def least(count: Callable[[], tuple[int, int, int]]) -> tuple[int, int, int]:
    """Return the smallest of several counts: the first calls open and cache, and a tick may come in between."""
    return min(count() for _ in range(TRIES))


def main() -> None:
    hops = Hops()
    threading.setprofile(hops)  # for the threads that are started from now on
    with tempfile.TemporaryDirectory() as folder, Mainspring(f"sqlite:///{folder}/jobs.db") as app:

        @app.task
        def work(number: int) -> int:
            return number

        def here(act: Callable[[], object]) -> tuple[int, int, int]:
            hops.begin(here=True)
            sys.setprofile(hops)
            try:
                act()
            finally:
                sys.setprofile(None)
            return hops.end()

        def elsewhere(act: Callable[[], object]) -> tuple[int, int, int]:
            time.sleep(0.3)  # what went before is written by now
            hops.begin(here=False)
            act()
            time.sleep(0.3)
            return hops.end()

        enqueue = least(lambda: here(lambda: work.enqueue(1)))
        app.start(work=True)
        run = least(lambda: elsewhere(lambda: work.enqueue(1).result(timeout=30)))
        job = app.add_job(work, "interval", days=1, args=[1])
        fire = least(lambda: elsewhere(lambda: app.modify_job(job.id, next_run_time="2026-01-01T00:00:00+00:00")))
        ended = work.enqueue(1)
        ended.result(timeout=30)
        result = least(lambda: here(lambda: ended.result(timeout=30)))
        app.stop()
    print(f"{'':<34}{'calls':>7}{'files':>7}{'jumps':>7}")
    for name, counts in (("enqueue", enqueue), ("a run, in the worker", run), ("a due job and its run", fire)):
        print(f"{name:<34}{counts[0]:>7}{counts[1]:>7}{counts[2]:>7}")
    print(f"{'the result of a run that ended':<34}{result[0]:>7}{result[1]:>7}{result[2]:>7}")


if __name__ == "__main__":
    main()
