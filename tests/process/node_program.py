"""A node in a process of its own, for the tests of several nodes on one store: killed, frozen, deaf."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

from mainspring import events
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.node import claiming as working
from mainspring.node import scheduler as scheduling
from mainspring.node import store_link as link
from mainspring.schedulers.background import BackgroundScheduler

POINTS: Final = ("before-look", "after-look", "during-fire", "after-fire", "later")
"""Where a node can be told to die: what is between reading a due job and having its run."""
FOLDER: Final = "NODE_FOLDER"


def notes() -> list[tuple[str, int]]:
    """Return what was noted: words, and the processes that did."""
    path = Path(os.environ[FOLDER]) / "notes"
    pairs = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
    return [(word, int(pid)) for word, pid in pairs]


def note(word: str) -> None:
    """Write a word down, in a way that survives a kill."""
    descriptor = os.open(Path(os.environ[FOLDER]) / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word} {os.getpid()}\n".encode())
    os.close(descriptor)


def hold(gate: str) -> int:
    """Run until a gate is open; return who we are."""
    note("began")
    wait_for(gate)
    return os.getpid()


def wait_for(file: str) -> None:
    """Sleep until a file is there."""
    while not (Path(os.environ[FOLDER]) / file).exists():
        time.sleep(0.01)


def open_store(url: str, name: str) -> JobStore:
    """Open the store of one test."""
    if url.startswith("redis"):
        return RedisJobStore(url=url, name=name, keep_runs=100_000)
    return SQLAlchemyJobStore(url, tablename=f"{name}_jobs", keep_runs=100_000)


def make_scheduler(store: JobStore, lease: float, threads: int = 4) -> BackgroundScheduler:
    """Make a node that fires jobs and executes them itself."""
    executor = {"type": "threadpool", "max_workers": threads}
    return BackgroundScheduler(
        jobstores={"default": store}, executors={"default": executor}, lease=lease, timezone="UTC"
    )


def die() -> None:
    """Be killed, here and now."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(store: Any, point: str, delay: float) -> None:
    """Be killed when a point is come to; before looking, when that has been done twice."""
    due, fire, looks = store.due, store.fire, 0

    def reached(here: str) -> bool:
        nonlocal looks
        looks += here == "before-look"
        return here == point and looks >= (3 if point == "before-look" else 1)

    def watched_due(*args: Any, **options: Any) -> Any:
        if reached("before-look"):
            die()
        page = due(*args, **options)
        if page.jobs and reached("after-look"):
            die()
        return page

    def watched_fire(*args: Any, **options: Any) -> Any:
        if reached("during-fire"):
            threading.Timer(delay, die).start()
            fire(*args, **options)
            time.sleep(60)
        answers = fire(*args, **options)
        if reached("after-fire"):
            die()
        if reached("later"):
            threading.Timer(delay, die).start()
        return answers

    store.due, store.fire = watched_due, watched_fire


def freeze_on_demand(store: Any) -> None:
    """Stop, when there is a file `freeze`, between two calls of the store: a file lock would be held for ever."""
    lock = threading.RLock()

    def guarded(verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def call(*args: Any, **options: Any) -> Any:
            with lock:
                return verb(*args, **options)

        return call

    for name in JobStore.__abstractmethods__ - {"wait", "start", "shutdown"}:
        setattr(store, name, guarded(getattr(store, name)))

    def watch() -> None:
        wait_for("freeze")
        with lock:
            note("freezes")
            os.kill(os.getpid(), signal.SIGSTOP)

    threading.Thread(target=watch, daemon=True).start()


def listen_only(store: Any) -> None:
    """Look at the store only when told to."""
    if isinstance(store, SQLAlchemyJobStore):
        store._open().waker.look_every = None
    for module in (link, scheduling, working):
        module.IDLE = 3600.0  # type: ignore[attr-defined]


def look_only(store: Any) -> None:
    """Hear nothing, so that all is found by looking, here more often than by default."""
    store.wait = lambda cursor, timeout: threading.Event().wait()
    for module in (link, scheduling, working):
        module.IDLE = 0.3  # type: ignore[attr-defined]


def main(url: str, name: str, lease: str, threads: str, way: str, delay: str) -> None:
    """Take part until killed."""
    store = open_store(url, name)
    if way in POINTS:
        die_at(store, way, float(delay))
    elif way == "freeze":
        freeze_on_demand(store)
    elif way == "listen":
        listen_only(store)
    elif way == "look":
        look_only(store)
    scheduler = make_scheduler(store, float(lease), int(threads))
    scheduler.add_listener(lambda event: note("lost"), events.EVENT_RUN_LOST)
    scheduler.start()
    note("ready")
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
