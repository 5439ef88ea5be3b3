"""One program, two packages: the same lines run on APScheduler and on mainspring."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

LIMIT = 90.0
"""Seconds after which something that should have happened has not."""


class Package:
    """A package by its name, its front ends, and the schedulers that a test has made of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: list[Any] = []

    def __repr__(self) -> str:
        return self.name

    def get(self, path: str) -> Any:
        """Return `module:name` of the package."""
        module, _, name = path.partition(":")
        found = importlib.import_module(f"{self.name}.{module}")
        return getattr(found, name) if name else found

    @property
    def events(self) -> Any:
        return self.get("events")

    def scheduler(self, *args: Any, **options: Any) -> Any:
        """Make a BackgroundScheduler in UTC that is shut down after the test."""
        if not args:
            options.setdefault("timezone", "UTC")
        scheduler = self.get("schedulers.background:BackgroundScheduler")(*args, **options)
        self._made.append(scheduler)
        return scheduler

    def started(self, **options: Any) -> Any:
        scheduler = self.scheduler(**options)
        scheduler.start()
        return scheduler

    def close(self) -> None:
        for scheduler in self._made:
            if scheduler.running:
                if self.name == "apscheduler":
                    # Its thread dies of a JobLookupError if it is shut down while it removes a finished job.
                    scheduler.pause()
                    with scheduler._jobstores_lock:
                        pass
                scheduler.shutdown(wait=False)


class Heard:
    """A listener that remembers, and lets a test wait for what it wants to hear."""

    def __init__(self, scheduler: Any, mask: int | None = None) -> None:
        self.events: list[Any] = []
        self._changed = threading.Condition()
        if mask is None:
            scheduler.add_listener(self)
        else:
            scheduler.add_listener(self, mask)

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def codes(self) -> list[int]:
        return [event.code for event in self.events]

    def wait(self, code: int, count: int = 1, job_id: str | None = None) -> Any:
        """Return the `count`-th event of the code."""

        def matching() -> list[Any]:
            known = [event for event in self.events if event.code & code]
            return [event for event in known if job_id is None or event.job_id == job_id]

        with self._changed:
            assert self._changed.wait_for(lambda: len(matching()) >= count, LIMIT), (code, self.codes())
            return matching()[count - 1]


class Calls:
    """A job function that remembers its calls."""

    def __init__(self) -> None:
        self.made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._changed = threading.Condition()

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        with self._changed:
            self.made.append((args, kwargs))
            self._changed.notify_all()
            return len(self.made)

    def wait(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.made) >= count, LIMIT), self.made


def soon(seconds: float = 3600) -> datetime:
    """Return a time so far ahead that no test sees it come."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def wait_for(event: threading.Event) -> None:
    assert event.wait(LIMIT)


def in_time(work: Callable[[], object]) -> None:
    """Call something that must not block for ever."""
    failures: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "it blocks"
    if failures:
        raise failures[0]
