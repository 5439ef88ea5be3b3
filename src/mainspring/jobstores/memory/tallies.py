"""Counters that outlive runs, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.insight.metrics import LEVELS, MOST_NAMES, Tally, add_cells, oldest_kept

__all__ = ["TallyTable"]


class TallyTable:
    """Counters by level, kind and time, then by name."""

    def __init__(self) -> None:
        self._stretches: dict[tuple[int, str, int], dict[str, dict[int, int]]] = {}

    def add(self, tallies: Sequence[Tally], now: int) -> None:
        """Add counts; drop counts that are too old."""
        before = len(self._stretches)
        for tally in tallies:
            names = self._stretches.setdefault((tally.level, tally.kind, tally.at), {})
            known = tally.name in names or len(names) - ("" in names) < MOST_NAMES
            add_cells(names.setdefault(tally.name if known else "", {}), tally.cells)
        if len(self._stretches) > before:
            oldest = [oldest_kept(level, now) or 0 for level in range(len(LEVELS))]
            for key in [key for key in self._stretches if key[2] < oldest[key[0]]]:
                del self._stretches[key]

    def find(self, kind: str, name: str | None, level: int, since: int, until: int) -> list[Tally]:
        """Return the tallies of a kind that overlap a time, oldest first."""
        stretch = LEVELS[level].stretch
        return [
            Tally(kind, each, level, at, dict(cells))
            for (_, _, at), names in sorted(
                (key, names)
                for key, names in self._stretches.items()
                if key[:2] == (level, kind) and since < until and since < key[2] + stretch and key[2] < until
            )
            for each, cells in sorted(names.items())
            if name in (None, each)
        ]
