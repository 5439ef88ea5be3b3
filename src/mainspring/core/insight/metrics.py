"""Counters that outlive runs: the events of each minute, hour and day, and how long runs waited and took. Pure.

A node sums up what it does (`jobstores.counting`) and hands the sums to the store every few seconds. The store adds
them to *tallies*: the counts of one subject (all runs, a queue, a task or a job) in one stretch of time. The store
counts at three levels at once, so it never has to aggregate later: it only deletes old stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.core.instants import SECOND

__all__ = [
    "BUCKETS",
    "CELLS_PER_STEP",
    "DAY_US",
    "EVENTS",
    "HOUR_US",
    "KINDS",
    "LEVELS",
    "MINUTE_US",
    "MOST_NAMES",
    "Counts",
    "Level",
    "MetricSeries",
    "Spread",
    "Tally",
    "add_cells",
    "level_for",
    "oldest_kept",
    "pack_cells",
    "series",
    "unpack_cells",
]

MINUTE_US: Final = 60 * SECOND
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

EVENTS: Final = ("added", "started", "succeeded", "failed", "retried", "cancelled", "missed", "interrupted")
"""The names of the counters."""
BUCKETS: Final = tuple(int(SECOND * 0.001 * 2.2**number) for number in range(19))
"""The upper bounds of the first nineteen of the twenty buckets of a histogram: from 1 ms to about 24 minutes."""
KINDS: Final = ("all", "queue", "task", "job", "error", "lost")
"""The kinds of subjects of a tally. The kind `all` has only the empty name.

The name of an `error` is its type and its place, as `failures.name_of` writes it; the name of a `lost` is a node.
Stores keep the position of a kind in this list, so add new kinds at the end.
"""
MOST_NAMES: Final = 500
"""The most names of a kind that a store keeps in one stretch. It counts the others under an empty name."""

_BUCKETS_EACH: Final = len(BUCKETS) + 1
WAITED: Final = len(EVENTS)
"""The cell with the microseconds that runs waited. The cells of the histograms follow the two sums."""
TOOK: Final = WAITED + 1
WAITED_BUCKETS: Final = TOOK + 1
TOOK_BUCKETS: Final = WAITED_BUCKETS + _BUCKETS_EACH
CELLS: Final = TOOK_BUCKETS + _BUCKETS_EACH
CELLS_PER_STEP: Final = 64
"""The cell of a step is `step number * 64 + cell`."""


class Level(NamedTuple):
    """A resolution of counting: the length of a step, of a stretch of steps, and how long the store keeps them."""

    step: int
    stretch: int
    keep: int | None


LEVELS: Final = (
    Level(MINUTE_US, HOUR_US, 2 * DAY_US),
    Level(HOUR_US, DAY_US, 90 * DAY_US),
    Level(DAY_US, 32 * DAY_US, None),
)


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """The counts of one subject in one stretch of a level, which begins at `at`; zero cells are left out."""

    kind: str
    name: str
    level: int
    at: int
    cells: dict[int, int]


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """A distribution of durations: their number, their sum in microseconds, and how many lie in each bucket."""

    number: int = 0
    total: int = 0
    buckets: tuple[int, ...] = (0,) * _BUCKETS_EACH

    def __add__(self, other: Spread) -> Spread:
        """Return both together."""
        buckets = tuple(one + two for one, two in zip(self.buckets, other.buckets, strict=True))
        return Spread(self.number + other.number, self.total + other.total, buckets)

    def percentile(self, part: float) -> int | None:
        """Estimate the duration below which this part of all durations lies; return None if there are none.

        The bucket is exact; within it, durations are assumed to be spread evenly. A single duration is exact.
        """
        if self.number <= 1:
            return self.total if self.number else None
        wanted, seen = part * self.number, 0
        for place, number in enumerate(self.buckets):
            if number and seen + number >= wanted:
                low = BUCKETS[place - 1] if place else 0
                if place == len(BUCKETS):
                    return max(low, self.total // self.number)
                return low + int((BUCKETS[place] - low) * (wanted - seen) / number)
            seen += number
        return BUCKETS[-1]


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """How often each event happened, in the order of EVENTS, and how long runs waited and took."""

    events: tuple[int, ...] = (0,) * len(EVENTS)
    waited: Spread = Spread()
    took: Spread = Spread()

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        events = tuple(one + two for one, two in zip(self.events, other.events, strict=True))
        return Counts(events, self.waited + other.waited, self.took + other.took)

    def of(self, event: str) -> int:
        """Return how often an event happened."""
        return self.events[EVENTS.index(event)]

    @classmethod
    def of_cells(cls, cells: list[int]) -> Counts:
        """Return the counts of one step."""
        waited, took = tuple(cells[WAITED_BUCKETS:TOOK_BUCKETS]), tuple(cells[TOOK_BUCKETS:CELLS])
        return cls(
            tuple(cells[:WAITED]), Spread(sum(waited), cells[WAITED], waited), Spread(sum(took), cells[TOOK], took)
        )


def add_cells(cells: dict[int, int], more: Mapping[int, int]) -> dict[int, int]:
    """Add counts to others, in place; return them."""
    for cell, number in more.items():
        cells[cell] = cells.get(cell, 0) + number
    return cells


def oldest_kept(level: int, now: int) -> int | None:
    """Return the beginning of the oldest stretch that a level keeps; None if it keeps all."""
    _, stretch, keep = LEVELS[level]
    return None if keep is None else (now - keep) // stretch * stretch


def level_for(since: int, step: int, now: int) -> int:
    """Return the finest level that goes back to `since` with steps of at most this length, else a coarser one."""
    fine = next((number for number in reversed(range(len(LEVELS))) if LEVELS[number].step <= step), 0)
    for level in range(fine, len(LEVELS) - 1):
        oldest = oldest_kept(level, now)
        if oldest is not None and since >= oldest:
            return level
    return len(LEVELS) - 1


def series(tallies: Iterable[Tally], since: int, until: int, step: int) -> dict[str, list[Counts]]:
    """Return by name the counts of each step between two instants.

    If a tally has longer steps, such as days for a chart of hours, its counts go to the step in which each begins.
    """
    number = -(-(until - since) // step)
    lines: dict[str, list[list[int] | None]] = {}
    for tally in tallies:
        line = lines.setdefault(tally.name, [None] * number)
        _add_tally(line, tally, since, until, step)
    empty = Counts()
    return {
        name: [empty if cells is None else Counts.of_cells(cells) for cells in line] for name, line in lines.items()
    }


def _add_tally(line: list[list[int] | None], tally: Tally, since: int, until: int, step: int) -> None:
    length = LEVELS[tally.level].step
    for place, count in tally.cells.items():
        at = tally.at + place // CELLS_PER_STEP * length
        cell = place % CELLS_PER_STEP
        if cell >= CELLS or not since - length < at < until:
            continue
        index = max(0, at - since) // step
        cells = line[index]
        if cells is None:
            cells = line[index] = [0] * CELLS
        cells[cell] += count


class MetricSeries(NamedTuple):
    """The counts of each step from `since` on, by name; a single subject has an empty name or its real one."""

    since: int
    step: int
    number: int
    lines: dict[str, list[Counts]]

    def line(self, name: str) -> list[Counts]:
        """Return the steps of one name, empty steps if nothing was counted."""
        return self.lines.get(name) or [Counts()] * self.number

    @property
    def whole(self) -> list[Counts]:
        """The steps of all names together."""
        lines = list(self.lines.values())
        return [sum(steps, Counts()) for steps in zip(*lines, strict=True)] if lines else [Counts()] * self.number

    def total(self, name: str | None = None) -> Counts:
        """Return all steps of one name, or of all, together."""
        return sum(self.whole if name is None else self.line(name), Counts())


def pack_cells(cells: Mapping[int, int]) -> bytes:
    """Pack cells into bytes: positions and counts in turn, which Lua reads, too."""
    return msgspec.msgpack.encode([number for pair in sorted(cells.items()) for number in pair])


def unpack_cells(data: Any) -> dict[int, int]:
    """Unpack cells from bytes; return an empty dict if the bytes are damaged."""
    try:
        flat = msgspec.msgpack.decode(bytes(data), type=list[int])
    except (msgspec.MsgspecError, TypeError, ValueError):
        return {}
    return {place: number for place, number in zip(flat[::2], flat[1::2], strict=False) if place >= 0 <= number}
