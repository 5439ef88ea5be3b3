"""Decide by the ends of its predecessors whether a run keeps waiting, is released, or is refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from msgspec.structs import replace

from mainspring.core.run import FINAL, HOLDS, After, Run, Status, bit_of

__all__ = ["MOST_EDGES", "check_edges", "check_number", "due_at", "judge_after", "merged", "refused_by", "released"]

MOST_EDGES: Final = 1000
"""A run has at most this many predecessors, and at most this many successors."""

_BITS: Final = {status: bit_of(status) for status in FINAL}
_BLOCKED, _PENDING = Status.BLOCKED, Status.PENDING


def check_edges(runs: Iterable[Run], stored: Container[str], followed: Callable[[str], int]) -> None:
    """Raise ValueError if a run would have too many predecessors or successors once these runs are added.

    A run whose id is `stored` is not added again. `followed` returns the number of successors of a run.
    """
    successors: dict[str, int] = {}
    for run in runs:
        if not run.after or run.id in stored:
            continue
        if len(run.after) > MOST_EDGES:
            raise ValueError(f"run {run.id!r} comes after {len(run.after)} runs; at most {MOST_EDGES} are allowed")
        for after in run.after:
            successors[after.id] = number = successors.get(after.id, 0) + 1
            if number + followed(after.id) > MOST_EDGES:
                raise ValueError(f"run {after.id!r} would have more than {MOST_EDGES} successors")


def check_number(number: int, words: str) -> None:
    """Raise ValueError if a run has this number of edges and it is too many; `words` begin the message."""
    if number > MOST_EDGES:
        raise ValueError(f"{words} {number:,} runs, and the most is {MOST_EDGES:,}")


def merged(after: Iterable[After]) -> dict[str, int]:
    """Return the mask of each predecessor; the end of one that is named twice must be in both of its masks."""
    masks: dict[str, int] = {}
    for each in after:
        known = masks.get(each.id, each.on)
        masks[each.id] = (known & each.on) | ((known | each.on) & HOLDS)
    return masks


def judge_after(run: Run, before: Iterable[tuple[str, int, Status]], now: int) -> Run:
    """Return a run as blocked, pending or refused, by the id, the edge's mask and the status of each predecessor.

    A run that has waited for them, and need not any longer, is released. One that never had to keeps its `run_at`.
    """
    waits, refused = 0, None
    for run_id, mask, status in before:
        bit = _BITS.get(status)
        if bit is None:
            waits += 1
        elif not mask & bit and refused is None:
            refused = run_id
    if refused is not None:
        return refused_by(run, refused, now)
    if waits:
        return replace(run, status=_BLOCKED, waits=waits)
    if run.waits:
        return released(run, now)
    return replace(run, status=_PENDING, run_at=due_at(run.run_at, now))


def refused_by(run: Run, by: str, now: int) -> Run:
    """Return a refused run: it is due at once, and the node that claims it cancels it."""
    return replace(run, status=_PENDING, waits=0, refused=by, run_at=now)


def released(run: Run, now: int) -> Run:
    """Return a run whose last predecessor has just ended: it is due now, unless its time is later."""
    return replace(run, status=_PENDING, waits=0, run_at=max(now, due_at(run.run_at, now)))


def due_at(run_at: int, now: int) -> int:
    """Return when a run without unfinished predecessors may start; a negative `run_at` is a delay that begins now."""
    return now - run_at if run_at < 0 else run_at
