"""Prepare a flow for its store: order its runs, add joins where a fan is too wide, and add a marker. Pure.

A flow is a group of runs that are stored together. Each run comes after runs that stand before it in the list.

A store limits the runs in one write and the edges of one run. So a wide fan gets *joins* in between: runs that do
nothing. A flow that needs several writes gets a *marker*: a run in a queue that no node serves. The runs that would
start first come after the marker, which is settled last. So no run of a flow starts before all of the flow is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from mainspring.core.policy import Policy
from mainspring.core.run import HOLDS, ON, After, Call, Run, Status

__all__ = [
    "BRIDGE_TASK",
    "COLLECT_TASK",
    "JOIN_TASK",
    "LANDING_TASK",
    "MARKER_QUEUE",
    "MARKER_TASK",
    "OWN_TASKS",
    "SIGNAL_QUEUE",
    "SIGNAL_TASK",
    "WIDEST_FAN",
    "flow_of",
    "guarded",
    "is_helper",
    "marker_id",
    "part_id",
    "with_joins",
]

MARKER_QUEUE: Final = "!flow"
SIGNAL_QUEUE: Final = "!signal"
"""No node serves these queues: the process that stores a flow settles its marker, and the sender settles a signal."""
MARKER_TASK: Final = "mainspring:marker"
SIGNAL_TASK: Final = "mainspring:signal"
JOIN_TASK: Final = "mainspring:join"
COLLECT_TASK: Final = "mainspring:collect"
BRIDGE_TASK: Final = "mainspring:bridge"
LANDING_TASK: Final = "mainspring:landing"
OWN_TASKS: Final = frozenset({MARKER_TASK, SIGNAL_TASK, JOIN_TASK, COLLECT_TASK, BRIDGE_TASK, LANDING_TASK})
"""The tasks that every app has."""
WIDEST_FAN: Final = 900
"""Give a run at most this many edges to or from runs of its flow; a store allows some more, for hooks for example."""

_UNKEPT: Final = Policy(retention=0.0)


def part_id(flow_id: str, part: int | str) -> str:
    """Return the id of a part of a flow; a store derives the shard from the text before the `~`."""
    return f"{flow_id}~{part}"


def marker_id(flow_id: str) -> str:
    """Return the id of the marker of a flow."""
    return part_id(flow_id, "!")


def flow_of(run_id: str) -> str:
    """Return the id of the flow that a run with this id belongs to."""
    return run_id.rpartition("~")[0] or run_id


def is_helper(run: Run) -> bool:
    """Return True for a marker or a join, which only helps to store a flow."""
    return run.call.task_name in (MARKER_TASK, JOIN_TASK)


def guarded(flow_id: str, runs: Sequence[Run], now: int) -> list[Run]:
    """Return the marker of a flow, then its runs, which come after the marker."""
    inside, start, call = {run.id for run in runs}, marker_id(flow_id), Call(MARKER_TASK, name="start of a flow")
    found = [Run(start, call, queue=MARKER_QUEUE, group=flow_id, policy=_UNKEPT, created_at=now, run_at=now)]
    for run in runs:  # a run after another run of the flow is already behind the marker
        behind = any(edge.id in inside for edge in run.after)
        found.append(run if behind else _after(run, (*run.after, After(start))))
    return found


def _after(run: Run, after: Iterable[After]) -> Run:
    return replace(run, after=tuple(after), status=Status.BLOCKED)


def with_joins(flow_id: str, runs: Sequence[Run]) -> list[Run]:
    """Return the runs of a flow with joins where more than `WIDEST_FAN` edges meet, in an order that can be stored."""
    joins = _Joins(flow_id)
    found = list(runs)
    while any(len(after) > WIDEST_FAN or _is_dense(after, number) for (after, _), number in _shares(found).items()):
        found = list(_joined_in(found, joins))
    while crowded := {run_id for run_id, number in _followers(found).items() if number > WIDEST_FAN}:
        found = list(_joined_out(found, crowded, joins))
    return found


class _Joins:
    """Factory for the joins of one flow, which numbers them."""

    def __init__(self, flow_id: str) -> None:
        self._flow_id, self._number = flow_id, 0

    def make(self, successor: Run, after: Iterable[After]) -> Run:
        """Make a join between some runs and a successor; the store keeps their results as long as the join."""
        self._number += 1
        return Run(
            id=part_id(self._flow_id, f"!{self._number}"),
            call=Call(JOIN_TASK, name="join"),
            queue=successor.queue,
            group=self._flow_id,
            status=Status.BLOCKED,
            policy=_UNKEPT,
            priority=successor.priority,
            created_at=successor.created_at,
            run_at=successor.created_at,
            after=tuple(After(edge.id, edge.on | HOLDS) for edge in after),
        )


def _followers(runs: Iterable[Run]) -> Counter[str]:
    return Counter(edge.id for run in runs for edge in run.after)


def _shares(runs: Iterable[Run]) -> Counter[tuple[tuple[After, ...], str]]:
    """Count the runs of each queue that come after the same runs, and so can share their joins."""
    return Counter((run.after, run.queue) for run in runs)


def _is_dense(after: Sequence[After], number: int) -> bool:
    """Return True if `number` runs that come after the same runs need so many edges that a join is better."""
    return number > 1 and len(after) > 1 and len(after) * number > WIDEST_FAN


def _joined_in(runs: Sequence[Run], joins: _Joins) -> Iterator[Run]:
    """Yield runs, with joins before those with too many predecessors; runs with the same predecessors share joins."""
    shares = _shares(runs)
    known: dict[tuple[tuple[After, ...], str], str] = {}
    for run in runs:
        if len(run.after) <= WIDEST_FAN and not _is_dense(run.after, shares[run.after, run.queue]):
            yield run
            continue
        behind: list[After] = []
        for start in range(0, len(run.after), WIDEST_FAN):
            part = run.after[start : start + WIDEST_FAN]
            if (part, run.queue) not in known:
                join = joins.make(run, part)
                known[part, run.queue] = join.id
                yield join
            behind.append(After(known[part, run.queue]))
        yield _after(run, behind)


def _joined_out(runs: Sequence[Run], crowded: set[str], joins: _Joins) -> Iterator[Run]:
    """Yield runs, with joins between those in `crowded` and their successors."""
    current: dict[tuple[After, str], Run] = {}
    taken: Counter[str] = Counter()
    for run in runs:
        if crowded.isdisjoint(edge.id for edge in run.after):
            yield run
            continue
        behind: list[After] = []
        for edge in run.after:
            if edge.id not in crowded:
                behind.append(edge)
                continue
            # A join before other joins may mix queues: there may be more queues than a run can have edges.
            place = edge, "" if is_helper(run) else run.queue
            join = current.get(place)
            if join is None or taken[join.id] >= WIDEST_FAN:
                join = current[place] = joins.make(run, [edge])
                yield join
            taken[join.id] += 1
            behind.append(After(join.id, ON["success"] | (edge.on & HOLDS)))
        yield _after(run, behind)
