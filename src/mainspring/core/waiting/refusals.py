"""Find the runs that can never start, because the end of a predecessor does not let them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import Final

from mainspring.core.run import MESSAGE_CHARS, After, Run, Status, bit_of

__all__ = ["doomed", "in_order", "reason_after"]

_ENDS: Final = {
    Status.SUCCEEDED: "succeeded",
    Status.FAILED: "failed",
    Status.CANCELLED: "was cancelled",
    Status.MISSED: "was missed",
    Status.BROKEN: "was set aside",
}


def reason_after(before: Run | None, run_id: str) -> str:
    """Return why a run that comes after `before` is cancelled; `run_id` names `before` if it cannot be read.

    If `before` was itself cancelled for such a reason, return the same reason: it names the run that really failed.
    """
    if before is None:
        return f"came after {run_id}, which has not ended as it should"
    if before.status is Status.CANCELLED and before.refused is not None and before.reason:
        return before.reason
    last = before.errors[-1] if before.errors and before.status is not Status.SUCCEEDED else None
    why = before.reason if last is None else f"{last.type}: {last.message}" if last.message else last.type
    ended = _ENDS.get(before.status, f"is {before.status}")
    return f"came after {before.name or before.id}, which {ended}{f': {why}' if why else ''}"[:MESSAGE_CHARS]


def doomed(cancelled: Iterable[str], blocked: Iterable[tuple[str, Sequence[After]]]) -> Iterator[tuple[str, str]]:
    """Yield the blocked runs that can never start once others are cancelled, each with the run that refuses it.

    `blocked` are ids, each with its predecessors. Each run follows the one that refuses it, so a store can cancel them
    all in this order.
    """
    after: dict[str, list[tuple[str, int]]] = {}
    for run_id, edges in blocked:
        for edge in edges:
            after.setdefault(edge.id, []).append((run_id, edge.on))
    ended = deque(dict.fromkeys(cancelled))
    known, bit = set(ended), bit_of(Status.CANCELLED)
    while ended:
        before = ended.popleft()
        for run_id, mask in after.get(before, ()):
            if not mask & bit and run_id not in known:
                known.add(run_id)
                ended.append(run_id)
                yield run_id, before


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return runs in an order in which each follows its predecessors."""
    known = {run.id: run for run in runs}
    before = {run.id: [edge.id for edge in run.after if edge.id in known] for run in known.values()}
    return [known[run_id] for run_id in TopologicalSorter(before).static_order()]
