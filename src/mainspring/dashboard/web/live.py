"""Live updates: render each watched view at most once a second, and send what changed to all who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from mainspring.core.instants import SECOND
from mainspring.dashboard.cost import timed
from mainspring.dashboard.rendering import RenderedRegion

__all__ = ["LiveHub", "LiveState"]

LEAST_SECONDS: Final = 1.0
"""Render a view at most this often."""
STEADY_SECONDS: Final = 3.0
"""And at least this often: progress counts as no change."""
COST_FACTOR: Final = 20.0
"""A view that is dear to render is rendered less often, so that it takes at most a twentieth of a core."""
MOST_SECONDS: Final = 15.0
SILENCE_SECONDS: Final = 10.0
"""Say something after this time, so that both sides notice when the other is gone."""
OLDER_SECONDS: Final = 60
WAIT_SECONDS: Final = 1.0
"""Ask the store for changes for this long at a time; after a change, ask again only after this time."""

log = logging.getLogger("mainspring.dashboard")

Key = TypeVar("Key")


class LiveState(NamedTuple):
    """A view as it stands: its regions, the store's time, and why it could not be read, if it could not."""

    regions: dict[str, RenderedRegion]
    now: int
    problem: str = ""
    needs: int = 0
    """How many things need a person, for the title of the tab."""
    read_at: int = 0
    """The store's time before the oldest of it was read: views share what they read."""

    def is_older_than(self, page: int) -> bool:
        """Return True if this was read before the page that would show it, which was read at the store's time `page`.

        If it seems to be a minute older, the store's clock was put back.
        """
        return not self.problem and 0 < page - self.read_at < OLDER_SECONDS * SECOND


class _WatchedView:
    """One view that is watched."""

    def __init__(self) -> None:
        self.state: LiveState | None = None
        self.changed = asyncio.Event()
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None

    def publish(self, state: LiveState) -> None:
        """Wake all who watch."""
        self.state = state
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class LiveHub(Generic[Key]):
    """Renders the views that are watched. `render` and `wait` block, so they run in threads."""

    def __init__(self, render: Callable[[Key], LiveState], wait: Callable[[float], bool]) -> None:
        self._render, self._wait = render, wait
        self._channels: dict[Key, _WatchedView] = {}
        self._woken = asyncio.Event()
        self._waiter: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def watched(self) -> int:
        """How many views are watched."""
        return len(self._channels)

    def watches(self, key: Key) -> bool:
        """Return True if somebody watches this view."""
        return key in self._channels

    def close(self) -> None:
        """End all streams; any thread may call it through the loop."""
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
                    await woken.wait()  # the event of before the rendering: a change meanwhile counts

    async def _listen(self) -> None:
        """Wake the views when the store says that something changed."""
        while not self._closed:
            try:
                changed, cost = await asyncio.to_thread(timed, partial(self._wait, WAIT_SECONDS))
            except Exception as error:  # the views say themselves that the store does not answer
                log.debug("the store does not tell of changes: %s", error)
                changed, cost = True, 0.0
            if changed:
                woken, self._woken = self._woken, asyncio.Event()
                woken.set()
                await asyncio.sleep(_pause(WAIT_SECONDS, cost))  # a busy store has changed at every look


def _pause(least: float, cost: float) -> float:
    """Return how long to rest after something that cost so many seconds."""
    return min(MOST_SECONDS, max(least, COST_FACTOR * cost))
