"""Flows: runs that come one after another, as a graph. Pure.

A flow is a chain, a gathered group with the run that collects its results, or a group that somebody named; hooks belong
to it. This module alone knows how a run says what comes before it: by its id, by `policy.then` and `policy.collect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mainspring.core.followups import predecessors, step_id
from mainspring.core.ids import FOLLOW_UP
from mainspring.core.run import FINAL, Call, Run, Status

__all__ = ["Flow", "FlowStep", "flow_key", "flow_of", "is_part", "members_of"]

MOST_PLANNED: Final = 100
"""Show at most this many steps of a chain that do not exist yet."""


class FlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step: its run, or its call if the run does not exist yet, and the steps that it comes after."""

    id: str
    call: Call
    run: Run | None = None
    after: tuple[str, ...] = ()
    hook: bool = False


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow: its key, by which it is found again, and its steps, each after those that it comes after."""

    key: str
    steps: tuple[FlowStep, ...]

    @property
    def runs(self) -> list[Run]:
        """The steps that exist."""
        return [step.run for step in self.steps if step.run is not None]

    @property
    def done(self) -> int:
        """How many steps have ended well."""
        return sum(run.status is Status.SUCCEEDED for run in self.runs)

    @property
    def failed(self) -> list[Run]:
        """The steps that have failed for good, or were set aside."""
        return [run for run in self.runs if run.status in (Status.FAILED, Status.BROKEN)]

    @property
    def goes_on(self) -> bool:
        """Whether anything of it is unfinished."""
        return any(run.status not in FINAL for run in self.runs)


def first_of(run_id: str) -> str:
    """Return the id of the run with which the chain of a run began, or whose hook it is."""
    first = run_id
    for earlier in predecessors(run_id):
        first = earlier
    return first


def flow_key(run: Run) -> str:
    """Return the key of the flow that a run belongs to: its group, or the first run of its chain."""
    if run.group is not None:
        return run.group
    if isinstance(run.data, Mapping) and isinstance(run.data.get("group"), str):  # it collects a group
        return str(run.data["group"])
    return first_of(run.id)


def is_part(run: Run) -> bool:
    """Return True if a run is part of a flow of more than one step."""
    policy = run.policy
    return bool(
        run.group is not None
        or policy.then
        or policy.collect
        or policy.hook
        or FOLLOW_UP.search(run.id)
        or (isinstance(run.data, Mapping) and "group" in run.data)
    )


def members_of(run: Run) -> list[str]:
    """Return the ids that the other runs of a run's chain have or will have, with their hooks."""
    first = first_of(run.id)
    found = FOLLOW_UP.search(run.id)
    place = int(found[1]) if found is not None and found[1] else 0
    ids = [first, *(step_id(first, number) for number in range(1, place + len(run.policy.then) + 1))]
    return [*ids, *(f"{each}~hook" for each in ids)]


def flow_of(key: str, runs: Iterable[Run]) -> Flow:
    """Make the graph of some runs, with the steps of their chains that do not exist yet."""
    known = {run.id: run for run in runs}
    steps = {run.id: _step(run, known) for run in known.values()}
    for run in known.values():
        for planned in _planned(run, known):
            steps.setdefault(planned.id, planned)
    return Flow(key=key, steps=tuple(_ordered(steps)))


def _step(run: Run, known: Mapping[str, Run]) -> FlowStep:
    before = next(predecessors(run.id), None)
    hook = FOLLOW_UP.search(run.id)
    after = (before,) if before is not None and before in known else ()
    collected = tuple(each.id for each in known.values() if each.policy.collect == run.id)
    return FlowStep(
        id=run.id, call=run.call, run=run, after=after or collected, hook=hook is not None and hook[2] is not None
    )


def _planned(run: Run, known: Mapping[str, Run]) -> Sequence[FlowStep]:
    """Return the later steps of a run's chain and its hook, unless it has ended without them."""
    found: list[FlowStep] = []
    place = FOLLOW_UP.search(run.id)
    stem = run.id if place is None else run.id[: place.start()]
    first = int(place[1]) if place is not None and place[1] else 0
    before = run.id
    for number, step in enumerate(run.policy.then[:MOST_PLANNED], first + 1):
        each = step_id(stem, number)
        if each in known:
            break
        found.append(FlowStep(id=each, call=_call(step), after=(before,)))
        before = each
    if run.policy.hook is not None and f"{run.id}~hook" not in known and run.status not in FINAL:
        call = Call(str(run.policy.hook), name="hook")
        found.append(FlowStep(id=f"{run.id}~hook", call=call, after=(run.id,), hook=True))
    return found


def _call(step: Any) -> Call:
    return Call(str(step["f"]), tuple(step["a"]), dict(step["k"]), str(step["n"]))


def _ordered(steps: Mapping[str, FlowStep]) -> list[FlowStep]:
    """Return steps so that each comes after those that it comes after."""
    placed: dict[str, FlowStep] = {}
    waiting = sorted(
        steps.values(), key=lambda step: (step.run is None, step.run.created_at if step.run else 0, step.id)
    )
    while waiting:
        ready = [step for step in waiting if all(each in placed or each not in steps for each in step.after)]
        for step in ready or waiting:  # `waiting`: ids that somebody chose may go round in a circle
            placed[step.id] = step
        waiting = [step for step in waiting if step.id not in placed]
    return list(placed.values())
