"""How far a call travels: our own Python calls, the files they are in, and the jumps from one file to another.

`python3 run.py bench hops` prints them for one enqueue, one run in a worker, one fire and two results, on SQLite. They
are counts, not times, so they do not depend on how busy the machine is. `--path` prints each call in order: its depth,
its file and its function.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import mainspring
from mainspring import Mainspring

OURS = str(Path(mainspring.__file__).parent)
TRIES = 12


class Step(NamedTuple):
    """One call: where it is, and how many of our calls it is inside."""

    file: str
    function: str
    depth: int


class Route:
    """The calls that were made, of each thread in order."""

    def __init__(self, threads: list[list[Step]]) -> None:
        self.threads = threads
        calls = [step.file for steps in threads for step in steps]
        jumps = sum(before.file != after.file for steps in threads for before, after in pairwise(steps))
        self.counts = len(calls), len(set(calls)), jumps

    def show(self) -> None:
        for number, step in enumerate((step for steps in self.threads for step in steps), 1):
            print(f"{number:>4}  {'  ' * step.depth}{Path(step.file).relative_to(OURS)}  {step.function}")


class Hops:
    """Records calls while `begin` to `end`, in this thread or in all others."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._calls: dict[int, list[Step]] | None = None
        self._here = True

    def begin(self, *, here: bool) -> None:
        self._here, self._calls = here, {}

    def end(self) -> Route:
        """Return the calls, thread by thread."""
        found, self._calls = self._calls or {}, None
        return Route(list(found.values()))

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        calls, thread = self._calls, threading.get_ident()
        if calls is None or event != "call" or (thread == self._main) is not self._here:
            return
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            depth, outer = 0, frame.f_back
            while outer is not None:
                depth, outer = depth + outer.f_code.co_filename.startswith(OURS), outer.f_back
            calls.setdefault(thread, []).append(Step(code.co_filename, code.co_qualname, depth))


def least(count: Callable[[], Route]) -> Route:
    """Return the shortest of several: the first calls open and cache, and a tick may come in between."""
    return min((count() for _ in range(TRIES)), key=lambda route: route.counts)


def main() -> None:
    hops = Hops()
    threading.setprofile(hops)  # for the threads that are started from now on
    with tempfile.TemporaryDirectory() as folder, Mainspring(f"sqlite:///{folder}/jobs.db") as app:

        @app.task
        def work(number: int) -> int:
            return number

        @app.task
        def work_long(number: int) -> int:
            time.sleep(0.1)
            return number

        def here(act: Callable[[], object]) -> Route:
            hops.begin(here=True)
            sys.setprofile(hops)
            try:
                act()
            finally:
                sys.setprofile(None)
            return hops.end()

        def elsewhere(act: Callable[[], object]) -> Route:
            time.sleep(0.3)  # what went before is written by now
            hops.begin(here=False)
            act()
            time.sleep(0.3)
            return hops.end()

        enqueue = least(lambda: here(lambda: work.enqueue(1)))
        app.start(work=True)
        run = least(lambda: elsewhere(lambda: work.enqueue(1)))
        run_waited_for = least(lambda: elsewhere(lambda: work.enqueue(1).result(timeout=30)))
        job = app.add_job(work, "interval", days=1, args=[1])

        def fire_job() -> Route:
            # The change is dealt with before the job comes due, so that only the fire is counted.
            app.modify_job(job.id, next_run_time=datetime.now(UTC) + timedelta(seconds=0.6))
            return elsewhere(lambda: time.sleep(0.4))

        fire = least(fire_job)
        ended = work.enqueue(1)
        ended.result(timeout=30)
        result = least(lambda: here(lambda: ended.result(timeout=30)))

        def wait() -> Route:
            begun = work_long.enqueue(1)
            return here(lambda: begun.result(timeout=30))

        waited = least(wait)
        app.stop()
    routes = {
        "enqueue": enqueue,
        "a run, in the worker": run,
        "the same, and the waiter's hub": run_waited_for,
        "a due job and its run": fire,
        "the result of a run that ended": result,
        "the result of a run that goes on": waited,
    }
    print(f"{'':<34}{'calls':>7}{'files':>7}{'jumps':>7}")
    for name, route in routes.items():
        print(f"{name:<34}" + "".join(f"{count:>7}" for count in route.counts))
    if "--path" in sys.argv:
        for name in routes:
            print(f"\n{name}")
            routes[name].show()


if __name__ == "__main__":
    main()
