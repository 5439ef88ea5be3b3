"""Hear of changes in a store, and claim or fire at once because of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from mainspring.executors.forks import leave_if_forked
from mainspring.node.loop import LONGEST_SLEEP_SECONDS, Tick

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["StoreListener"]


class StoreListener:
    """The thread that sleeps in `store.wait`. It calls the ticks of the work loop itself: see decision 075."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._thread = threading.Thread(target=self._run, name=f"mainspring-listen-{link.alias}", daemon=True)

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread after the store has released it; leave it behind if it hangs in a dead store."""
        # An interrupt may have kept the thread from starting.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        with self._link.store.on_thread():
            self._listen()

    def _listen(self) -> None:
        link, home = self._link, os.getpid()
        cursor, deaf = 0, True
        pause = link.node.clock.wake()
        while not link.is_leaving():
            try:
                heard = link.store.wait(cursor, LONGEST_SLEEP_SECONDS)
            except Exception:  # the loops report an outage
                deaf = True
                if link.is_leaving():  # this is not an outage: the store was closed
                    return
                pause.wait(0.75 + 0.5 * link.node.clock.random())
                continue
            if heard != cursor or deaf:  # after an outage, do not wait until the loop tries again
                self.follow(None if deaf else cursor, heard)
                if os.getpid() != home:  # a user's trigger may have forked
                    leave_if_forked(home)
                cursor, deaf = heard, False

    def follow(self, before: int | None, heard: int) -> None:
        """Fire jobs and claim runs for the changes between two cursors, as far as no other thread has done so already.

        Without the first cursor, anything may have changed.
        """
        link = self._link
        ticks: list[Tick] = []
        if before is None or link.scheduler.may_concern(before, heard):
            ticks.append(link.scheduler)
        if before is None or not link.worker.is_up_to_date():
            link.worker.look_everywhere()
            ticks.append(link.worker.claims)
        if ticks:
            link.work.call_now(*ticks)
