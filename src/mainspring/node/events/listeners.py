"""The listeners of an app or a scheduler, and the events each of them wants."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from mainspring.core.references import iscoroutinefunction_partial
from mainspring.errors import is_own
from mainspring.events import EVENT_ALL, SchedulerEvent
from mainspring.executors.forks import leave_if_forked
from mainspring.node.events.awaiting import Awaiter, is_awaitable

__all__ = ["Listeners"]

log = logging.getLogger("mainspring.events")

Listener = Callable[[Any], object]


class Listeners:
    """Callbacks and their masks. An error of a callback is only logged; a coroutine function is awaited."""

    def __init__(self, awaiter: Awaiter | None = None) -> None:
        self._awaiter = awaiter or Awaiter()
        self._callbacks: tuple[tuple[Listener, int], ...] = ()
        self.mask = 0

    @property
    def need_loop(self) -> bool:
        """Whether a callback is a coroutine function."""
        return any(iscoroutinefunction_partial(callback) for callback, _ in self._callbacks)

    def add(self, callback: Listener, mask: int = EVENT_ALL) -> None:
        """Call `callback` for the events of `mask`."""
        if not callable(callback):
            raise TypeError(f"a listener must be callable, not {callback!r}")
        if mask < 1:
            raise ValueError(f"mask must be EVENT_ codes joined by |, not {mask!r}")
        self._set((*self._callbacks, (callback, mask)))

    def remove(self, callback: Listener) -> None:
        """Remove a listener."""
        self._set(tuple((known, mask) for known, mask in self._callbacks if known != callback))

    def _set(self, callbacks: tuple[tuple[Listener, int], ...]) -> None:
        # Replace the tuple as a whole, so that an event on another thread sees either the old or the new callbacks.
        self._callbacks = callbacks
        self.mask = 0
        for _, mask in callbacks:
            self.mask |= mask

    def call(self, event: SchedulerEvent) -> None:
        """Call every listener of the event."""
        for callback, mask in self._callbacks:
            if mask & event.code:
                home = os.getpid()
                try:
                    value = callback(event)
                    leave_if_forked(home)
                    if is_awaitable(value):
                        self._awaiter.spawn(value, event)
                except BaseException as error:
                    leave_if_forked(home, error)
                    log.exception("a listener failed at %r", event)
                    if not is_own(error):
                        raise

    def join(self) -> None:
        """Wait a few seconds for the coroutines of listeners that have not ended."""
        self._awaiter.join()
