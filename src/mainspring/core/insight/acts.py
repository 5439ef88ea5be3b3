"""Acts of people: who paused, cancelled, retried or removed what, when and why. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["KEEP_ACTS_US", "MOST_ACTS", "TEXT_CHARS", "Act", "about", "act_id"]

TEXT_CHARS: Final = 500
"""Characters that are kept of who acted and why."""
MOST_ACTS: Final = 10_000
"""Acts that a store keeps at most."""
KEEP_ACTS_US: Final = 90 * 86_400 * 1_000_000
"""How long a store keeps an act."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody did to a run, a job, a queue or a node; `at` is in microseconds, by the store's clock.

    `id` sorts by time, so that the newest comes last. `details` says what changed, in plain data.
    """

    id: str
    at: int
    verb: str
    kind: str
    target: str
    by: str
    why: str = ""
    details: dict[str, Any] = {}

    @property
    def about(self) -> str:
        """The thing that was acted on, as stores find its acts by."""
        return about(self.kind, self.target)


def act_id(at: int, mark: str = "") -> str:
    """Return the id of an act: ids sort by time, and `mark` tells those of one moment apart."""
    return f"{max(0, at):016x}{mark}"


def about(kind: str, target: str) -> str:
    """Return the name by which stores find the acts about a thing."""
    return f"{kind}:{target}"
