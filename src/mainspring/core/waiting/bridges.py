"""Bridges: edges between two runs in different shards of a store. Pure.

No write covers both runs. So two helper runs replace the edge. The *bridge* comes after the predecessor. The *landing*
comes before the successor, and waits in the queue of signals, which no node serves. When the bridge executes, it ends
the landing in the same way as the predecessor has ended. If the node of a bridge dies, another node executes the bridge
again; a landing ends only once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from mainspring.core.policy import Backoff, Policy
from mainspring.core.run import HOLDS, ON, After, Call, Condition, Outcome, Run, Status
from mainspring.core.waiting.flows import BRIDGE_TASK, LANDING_TASK, SIGNAL_QUEUE, part_id

__all__ = ["bridged", "landed"]

_BRIDGE_POLICY: Final = Policy(retries=14, backoff=Backoff(first=0.1), retention=0.0)
"""Retry a bridge for some minutes: its landing is stored after it, by a process that may be slow or dead."""
_LANDING_POLICY: Final = Policy(retention=0.0)


def bridged(runs: Sequence[Run], far: Collection[tuple[str, str]]) -> tuple[list[Run], list[Run]]:
    """Replace the `far` edges, pairs of predecessor and successor; return the bridges, then the runs with landings.

    Store the bridges first. If the other runs are never stored, the bridges find no landing and give up.
    """
    bridges: list[Run] = []
    ready: list[Run] = []
    for run in runs:
        after: list[After] = []
        for edge in run.after:
            if (edge.id, run.id) not in far:
                after.append(edge)
                continue
            bridge, landing = _bridge(edge, run)
            bridges.append(bridge)
            ready.append(landing)
            after.append(After(landing.id, edge.on | HOLDS))
        ready.append(run if tuple(after) == run.after else replace(run, after=tuple(after)))
    return bridges, ready


def _bridge(edge: After, run: Run) -> tuple[Run, Run]:
    """Make the bridge after the predecessor of an edge, and the landing before its successor `run`."""
    now = run.created_at
    landing_id = part_id(run.id, f"!{_number(edge.id)}")
    bridge = Run(
        id=part_id(edge.id, f"!{_number(run.id)}"),
        call=Call(BRIDGE_TASK, (edge.id, landing_id), name="bridge"),
        queue=run.queue,
        status=Status.BLOCKED,
        policy=_BRIDGE_POLICY,
        priority=run.priority,
        created_at=now,
        run_at=now,
        after=(After(edge.id, ON["end"]),),
    )
    call = Call(LANDING_TASK, (edge.id,), name="landing")
    landing = Run(id=landing_id, call=call, queue=SIGNAL_QUEUE, policy=_LANDING_POLICY, created_at=now, run_at=now)
    return bridge, landing


def landed(landing: Run, before: Run, now: int) -> Outcome:
    """Return the outcome that ends a landing in the same way as the predecessor of its bridge has ended."""
    ended = replace(
        landing, status=before.status, result=before.result, errors=before.errors, reason=before.reason, finished_at=now
    )
    return Outcome(ended, Condition.WAITING)


def _number(run_id: str) -> int:
    """Return a number for the ids of a run's bridges and landings, much larger than those of joins, which count up."""
    return int.from_bytes(blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")
