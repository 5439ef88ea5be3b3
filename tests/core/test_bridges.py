"""Bridges between runs that a store keeps apart, as pure values."""

from __future__ import annotations

from mainspring.core.run import HOLDS, ON, After, Call, Run, Status
from mainspring.core.waiting.bridges import bridged, landed
from mainspring.core.waiting.flows import SIGNAL_QUEUE, part_id

NEAR, FAR = After("near", ON["success"]), After("far", ON["failure"])
STEP = Run(id="step", call=Call("f"), status=Status.BLOCKED, after=(NEAR, FAR))


def test_only_far_edges_are_replaced() -> None:
    [bridge], [landing, step] = bridged([STEP], {("far", "step")})
    assert bridge.after == (After("far", ON["end"]),)
    assert bridge.args == ("far", landing.id)
    assert landing.queue == SIGNAL_QUEUE
    assert step.after == (NEAR, After(landing.id, FAR.on | HOLDS))
    assert bridged([STEP], set()) == ([], [STEP])


def test_landings_never_have_the_ids_of_joins() -> None:
    _, [one, other, _] = bridged([STEP], {("near", "step"), ("far", "step")})
    joins = {part_id("step", f"!{number}") for number in range(1, 2000)}
    assert joins.isdisjoint({one.id, other.id})
    assert one.id != other.id


def test_a_landing_ends_as_the_run_before_the_bridge() -> None:
    _, [landing, _] = bridged([STEP], {("far", "step")})
    before = Run(id="far", call=Call("f"), status=Status.FAILED, reason="it broke")
    ended = landed(landing, before, 7).run
    assert (ended.id, ended.status, ended.reason, ended.finished_at) == (landing.id, Status.FAILED, "it broke", 7)
