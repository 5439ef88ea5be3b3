"""`changes`: wait until runs, jobs, queues or nodes have changed, in any process."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["ChangeWatch", "Changes"]

LOOK_SECONDS: Final = 1.0
"""Look at the store this often: its hints cover runs that may be claimed, not runs that have ended."""
KINDS: Final = ("runs", "jobs", "queues", "nodes")


class Changes(NamedTuple):
    """The kinds that have changed (some of `runs`, `jobs`, `queues`, `nodes`), and the cursor for the next call."""

    cursor: str
    kinds: tuple[str, ...]


class ChangeWatch:
    """Finds the kinds of records that have changed in an app's store."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def changes(self, cursor: str = "", timeout: float = 0.0) -> Changes:
        """Return which kinds of records have changed since `cursor`; wait up to `timeout` seconds for a change.

        Begin with an empty cursor. A cursor is text, and is valid in every process. Waiting costs a few small reads a
        second, however many runs there are. The progress of a running run does not count as a change.
        """
        before = cursor.split(".")
        deadline = time.monotonic() + timeout
        while True:
            now = _prints(self._app)
            if len(before) != len(KINDS):
                return Changes(".".join(now), KINDS)
            kinds = tuple(kind for kind, old, new in zip(KINDS, before, now, strict=True) if old != new)
            left = deadline - time.monotonic()
            if kinds or left <= 0:
                return Changes(".".join(now), kinds)
            time.sleep(min(left, LOOK_SECONDS))


def _prints(app: Mainspring) -> tuple[str, ...]:
    store = app.store
    stats, page = store.stats(), store.due(0, 0)
    acts = [act.id for act in store.acts(limit=1)]
    queues = sorted(stats.queues, key=lambda queue: queue.name)
    nodes = sorted((node.id, node.state, node.queues, node.stuck) for node in app.nodes(now=page.now))
    moved = [(queue.name, queue.waiting, queue.delayed, queue.running, queue.oldest_at) for queue in queues]
    return (
        _print([moved, sorted(stats.totals.items())]),
        _print([stats.jobs, page.next_at, acts]),
        _print([[queue.name for queue in queues if queue.paused], acts]),
        _print(nodes),
    )


def _print(value: Any) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=6).hexdigest()
