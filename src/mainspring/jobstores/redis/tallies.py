"""Counters that outlive runs, in Redis: a hash for each level, kind and stretch of time, which expires by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mainspring.core.insight.metrics import KINDS, LEVELS, MOST_NAMES, Tally, unpack_cells
from mainspring.core.instants import SECOND

__all__ = ["add_tallies", "find_tallies"]

TALLIES_PER_SCRIPT: Final = 200
"""One script call adds this many tallies."""
MOST_STRETCHES: Final = 2000
"""One call reads at most this many stretches of time, the newest ones."""

Caller = Callable[..., Any]
"""Calls a script of the first shard, which has all tallies."""


def add_tallies(call: Caller, tallies: Sequence[Tally]) -> None:
    """Add counts."""
    plain = [
        [
            _text(tally.kind, tally.level, tally.at),
            _ends(tally.level, tally.at),
            tally.name,
            [number for pair in tally.cells.items() for number in pair],
        ]
        for tally in tallies
    ]
    for first in range(0, len(plain), TALLIES_PER_SCRIPT):
        call("add_tallies", [plain[first : first + TALLIES_PER_SCRIPT], MOST_NAMES])


def find_tallies(call: Caller, kind: str, name: str | None, level: int, since: int, until: int) -> list[Tally]:
    """Read the tallies of a kind, oldest first."""
    stretch = LEVELS[level].stretch
    last = -(-until // stretch) * stretch
    times = range(max(since // stretch * stretch, last - MOST_STRETCHES * stretch), last, stretch)
    texts = [_text(kind, level, at) for at in times]
    found = call("find_tallies", [texts, False if name is None else name], reads=True)
    return [
        Tally(kind, named.decode("utf-8", "replace"), level, at, unpack_cells(cells))
        for at, pairs in zip(times, found, strict=True)
        for named, cells in sorted(zip(pairs[::2], pairs[1::2], strict=True))
    ]


def _text(kind: str, level: int, at: int) -> str:
    return f"{level}{KINDS.index(kind)}{at:018d}"


def _ends(level: int, at: int) -> int | bool:
    """Return the second at which a stretch is too old, or False."""
    _, stretch, keep = LEVELS[level]
    return False if keep is None else max(1, (at + stretch + keep) // SECOND)
