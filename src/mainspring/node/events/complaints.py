"""Log a lasting problem once, and again only if it ended in between."""

from __future__ import annotations

from typing import Final

__all__ = ["Complaints"]

MOST_OPEN_COMPLAINTS: Final = 10_000
"""Ignore new problems beyond this many: making room for them would log the forgotten ones again and again."""


class Complaints:
    """The open problems of one kind, by subject."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        """The open problems, with their texts."""

    def begin(self, subject: str, text: str = "") -> bool:
        """Note a problem; return True if it or its text is new, so the caller has to log it."""
        known = self.open.get(subject)
        if known == text or (known is None and len(self.open) >= MOST_OPEN_COMPLAINTS):
            return False
        self.open[subject] = text
        return True

    def end(self, subject: str) -> None:
        """Note that the problem of a subject is over."""
        if self.open:
            self.open.pop(subject, None)

    def first(self, number: int) -> list[str]:
        """Return the subjects of the oldest open problems."""
        return list(self.open)[:number]

    def __contains__(self, subject: str) -> bool:
        return subject in self.open

    def __len__(self) -> int:
        return len(self.open)
