"""Live updates: render each watched view at most once a second, and send the changes to all its watchers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from mainspring.core.instants import SECOND
from mainspring.dashboard.memo import timed
from mainspring.dashboard.rendering import RenderedRegion

__all__ = ["LiveHub", "LiveState"]

LEAST_SECONDS: Final = 1.0
"""The shortest time between two renderings of a view."""
STEADY_SECONDS: Final = 3.0
"""The longest time between two renderings: progress does not count as a change."""
COST_FACTOR: Final = 20.0
"""Render an expensive view less often, so that it takes at most a twentieth of a core."""
MOST_SECONDS: Final = 15.0
SILENCE_SECONDS: Final = 10.0
"""Send something after this time, so that both sides notice when the other is gone."""
OLDER_SECONDS: Final = 60
WAIT_SECONDS: Final = 1.0
"""The length of one wait for changes in the store, and the shortest pause after a change."""

log = logging.getLogger("mainspring.dashboard")

Key = TypeVar("Key")


class LiveState(NamedTuple):
    """The current state of a view: its regions, the store's time, and the reason if it could not be read."""

    regions: dict[str, RenderedRegion]
    now: int
    problem: str = ""
    needs: int = 0
    """The number of problems that need a person, for the title of the tab."""
    read_at: int = 0
    """The store's time before the oldest of the facts was read: views share facts."""

    def is_older_than(self, page: int) -> bool:
        """Return True if this state was read before the page that would show it; `page` is the page's read time.

        A difference of a minute or more means that the store's clock was set back: then return False.
        """
        return not self.problem and 0 < page - self.read_at < OLDER_SECONDS * SECOND


class _WatchedView:
    """One watched view."""

    def __init__(self) -> None:
        self.state: LiveState | None = None
        self.changed = asyncio.Event()
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None

    def publish(self, state: LiveState) -> None:
        """Wake all watchers."""
        self.state = state
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class LiveHub(Generic[Key]):
    """A hub that renders the watched views. `render` and `wait` block, so they run in threads."""

    def __init__(self, render: Callable[[Key], LiveState], wait: Callable[[float], bool]) -> None:
        self._render, self._wait = render, wait
        self._channels: dict[Key, _WatchedView] = {}
        self._woken = asyncio.Event()
        self._waiter: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def watched(self) -> int:
        """The number of watched views."""
        return len(self._channels)

    def watches(self, key: Key) -> bool:
        """Return True if a browser watches this view."""
        return key in self._channels

    def close(self) -> None:
        """End all streams; other threads must call it through the loop."""
        self._closed = True
        for channel in self._channels.values():
            channel.changed.set()

    async def watch(self, key: Key) -> AsyncIterator[LiveState | None]:
        """Yield the state of a view now and after each rendering; None if nothing has happened for a while."""
        channel = self._channels.setdefault(key, _WatchedView())
        channel.watchers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._keep(key, channel))
        if self._waiter is None:
            self._waiter = asyncio.create_task(self._listen())
        try:
            if channel.state is not None:
                yield channel.state
            while not self._closed:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await channel.changed.wait()
                    if channel.state is not None and not self._closed:
                        yield channel.state
                except TimeoutError:
                    yield None
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                self._channels.pop(key, None)
                channel.task.cancel()
            if not self._channels and self._waiter is not None:
                self._waiter.cancel()
                self._waiter = None

    async def _keep(self, key: Key, channel: _WatchedView) -> None:
        while not self._closed:
            woken = self._woken
            state, cost = await asyncio.to_thread(timed, partial(self._render, key))
            channel.publish(state)
            least = _pause(LEAST_SECONDS, cost)
            await asyncio.sleep(least)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, STEADY_SECONDS - least)):
                    await woken.wait()  # the event from before the rendering, so that a change in the meantime counts

    async def _listen(self) -> None:
        """Wake the views when the store reports a change."""
        while not self._closed:
            try:
                changed, cost = await asyncio.to_thread(timed, partial(self._wait, WAIT_SECONDS))
            except Exception as error:  # each view shows that the store does not answer
                log.debug("the store does not tell of changes: %s", error)
                changed, cost = True, 0.0
            if changed:
                woken, self._woken = self._woken, asyncio.Event()
                woken.set()
                await asyncio.sleep(_pause(WAIT_SECONDS, cost))  # a busy store has changed at every check


def _pause(least: float, cost: float) -> float:
    """Return the pause after work that cost this many seconds."""
    return min(MOST_SECONDS, max(least, COST_FACTOR * cost))
