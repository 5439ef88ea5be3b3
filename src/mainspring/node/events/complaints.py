"""Log a lasting problem once, and again only if it was over in between."""

from __future__ import annotations

from typing import Final

__all__ = ["Complaints"]

MOST_OPEN_COMPLAINTS: Final = 10_000
"""Do not log further problems: forgetting open ones for them would log those again and again."""


class Complaints:
    """The open problems of one kind, by what they concern."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        """The open problems, with their texts."""

    def begin(self, subject: str, text: str = "") -> bool:
        """Note a problem; return True if it is new and so has to be logged."""
        known = self.open.get(subject)
        if known == text or (known is None and len(self.open) >= MOST_OPEN_COMPLAINTS):
            return False
        self.open[subject] = text
        return True

    def end(self, subject: str) -> None:
        """Note that a subject has no problem any more."""
        if self.open:
            self.open.pop(subject, None)

    def first(self, number: int) -> list[str]:
        """Return the subjects of the oldest open problems."""
        return list(self.open)[:number]

    def __contains__(self, subject: str) -> bool:
        return subject in self.open

    def __len__(self) -> int:
        return len(self.open)
