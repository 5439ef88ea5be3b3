"""Heartbeat pings: call a URL after each success of a job, as monitors such as healthchecks.io expect it.

A ping is tried only a few times and never stored. A lost ping can only cause a false alarm; it cannot hide a failure.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final

from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.node.events.listeners import Listeners
from mainspring.node.watch.webhook import check_url, ping_url

__all__ = ["Pinger"]

TRIES: Final = 3
MOST_WAITING: Final = 1000
"""Let at most this many pings wait for their turn; drop further ones."""

log = logging.getLogger("mainspring.alerts")


class Pinger:
    """Calls URLs, on a separate thread, after successes that this process settles."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._urls: list[tuple[str, tuple[str, ...]]] = []
        self._waiting: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._pid = 0

    def add(self, url: str, jobs: str | Iterable[str]) -> None:
        """Call a URL after each success of these jobs, given by ids or patterns."""
        check_url(url)
        if not self._urls:
            self._listeners.add(self._heard, EVENT_JOB_EXECUTED)
        self._urls.append((url, (jobs,) if isinstance(jobs, str) else tuple(jobs)))

    def _heard(self, event: Any) -> None:
        for url, patterns in self._urls:
            if any(fnmatchcase(str(event.job_id), pattern) for pattern in patterns):
                self._start()
                try:
                    self._waiting.put_nowait(url)
                except queue.Full:
                    log.warning("dropped a ping of %s: %d others wait", check_url(url)[1], MOST_WAITING)

    def _start(self) -> None:
        if self._thread is None or self._pid != os.getpid():  # threads do not survive a fork
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._work, name="mainspring-pings", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            url = self._waiting.get()
            for number in range(TRIES):
                try:
                    ping_url(url)
                    break
                except Exception as error:  # do not log the URL's path: it often serves as the password
                    if number == TRIES - 1:
                        log.warning("could not ping %s: %s", check_url(url)[1], error)
                    else:
                        time.sleep(2.0**number)
