"""Acts of people: who paused, cancelled, retried or removed a run, job, queue or node, when and why. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["KEEP_ACTS_US", "MOST_ACTS", "TEXT_CHARS", "Act", "about", "act_id"]

TEXT_CHARS: Final = 500
"""Keep this many characters of the actor's name, and of the reason."""
MOST_ACTS: Final = 10_000
"""The most acts that a store keeps."""
KEEP_ACTS_US: Final = 90 * 86_400 * 1_000_000
"""How long a store keeps an act."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a person on a run, a job, a queue or a node; `at` is in microseconds, by the store's clock.

    `id` sorts by time, so the newest comes last. `details` holds the changes, in plain data.
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
        """The kind and name of the target, under which stores look up its acts."""
        return about(self.kind, self.target)


def act_id(at: int, mark: str = "") -> str:
    """Return the id of an act. Ids sort by time; `mark` distinguishes acts of the same instant."""
    return f"{max(0, at):016x}{mark}"


def about(kind: str, target: str) -> str:
    """Return the name under which stores look up the acts on a target."""
    return f"{kind}:{target}"
