"""Flows as graphs of runs that come after one another. Pure.

A flow is a chain, a gathered group with the run that collects its results, the runs that `app.flow` has stored, or any
other runs that come after one another. The hooks of its runs belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mainspring.core.run import FINAL, Call, Run, Status
from mainspring.core.waiting.flows import flow_of
from mainspring.core.waiting.followups import is_hook

__all__ = ["FlowGraph", "FlowStep", "flow_key", "flow_state", "flow_title", "graph_of", "is_part"]

_MADE_ID: Final = re.compile(r"[0-9a-f]{32}")
"""The beginning of a generated id."""


class FlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a flow: its run, and the ids of the steps that it comes after."""

    run: Run
    after: tuple[str, ...] = ()
    hook: bool = False

    @property
    def id(self) -> str:
        """The id of its run."""
        return self.run.id

    @property
    def call(self) -> Call:
        """The call of its run."""
        return self.run.call


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A flow: its key, which identifies it, and its steps, in an order in which each follows its predecessors."""

    key: str
    steps: tuple[FlowStep, ...]

    @property
    def runs(self) -> list[Run]:
        """The runs of the steps."""
        return [step.run for step in self.steps]

    @property
    def done(self) -> int:
        """How many steps have succeeded."""
        return sum(run.status is Status.SUCCEEDED for run in self.runs)

    @property
    def failed(self) -> list[Run]:
        """The runs that have failed for good, or were set aside."""
        return [run for run in self.runs if run.status in (Status.FAILED, Status.BROKEN)]

    @property
    def goes_on(self) -> bool:
        """Whether any step is unfinished."""
        return any(run.status not in FINAL for run in self.runs)

    @property
    def state(self) -> str:
        """The state in one word, as `flow_state` says it."""
        return flow_state(self.runs)

    @property
    def title(self) -> str:
        """The title, as `flow_title` makes it."""
        return flow_title(self.key, self.runs)


def flow_state(runs: Sequence[Run]) -> str:
    """Return the state of a flow in one word: failed, running, waiting, succeeded or cancelled."""
    statuses = {run.status for run in runs}
    if statuses & {Status.FAILED, Status.BROKEN}:
        return "failed"
    if statuses <= set(FINAL):
        return "succeeded" if statuses == {Status.SUCCEEDED} else "cancelled"
    return "running" if Status.RUNNING in statuses else "waiting"


def flow_title(key: str, runs: Sequence[Run]) -> str:
    """Return the title of a flow: the name that a person gave it, or else the name of its first run."""
    first = min(runs, key=lambda run: (run.created_at, run.id))
    return key if _MADE_ID.match(key) is None else first.name or key


def flow_key(run: Run) -> str:
    """Return the key of the flow that a run belongs to: its group, or the id of the run whose part or hook it is."""
    return run.group if run.group is not None else flow_of(run.id)


def is_part(run: Run) -> bool:
    """Return True if a run is part of a flow of more than one step."""
    return bool(run.group is not None or run.after or run.followed)


def graph_of(key: str, runs: Iterable[Run]) -> FlowGraph:
    """Make the graph of some runs."""
    known = {run.id: run for run in runs}
    steps = {
        run.id: FlowStep(run=run, after=tuple(edge.id for edge in run.after if edge.id in known), hook=is_hook(run))
        for run in known.values()
    }
    return FlowGraph(key=key, steps=tuple(_ordered(steps)))


def _ordered(steps: Mapping[str, FlowStep]) -> list[FlowStep]:
    """Return steps in an order in which each follows its predecessors."""
    placed: dict[str, FlowStep] = {}
    waiting = sorted(steps.values(), key=lambda step: (step.run.created_at, step.hook, step.id))
    while waiting:
        ready = [step for step in waiting if all(each in placed for each in step.after)]
        for step in ready or waiting:  # `waiting`: damaged records may form a circle
            placed[step.id] = step
        waiting = [step for step in waiting if step.id not in placed]
    return list(placed.values())
