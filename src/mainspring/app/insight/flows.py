"""The flows of an app as graphs: the chains, groups and hooks that its runs form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.handle import RunHandle
from mainspring.core.insight.flows import FlowGraph, flow_key, flow_state, flow_title, graph_of, is_part
from mainspring.core.run import FINAL, Run
from mainspring.core.showing.run_view import RunView
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import RunQuery

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["FlowBrief", "FlowGraphs"]

MOST_RUNS: Final = 1000
"""Look at this many of the newest runs to find flows, and show this many runs of one."""


class FlowBrief(NamedTuple):
    """A flow in a list: its key, its name, and the number of its newest runs in each status."""

    key: str
    title: str
    state: str
    begun: int
    number: int
    ended: int
    failed: int
    goes_on: bool


class FlowGraphs:
    """Finds the flows of an app's runs."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def flow_graph(self, run: str | RunHandle[Any] | RunView) -> FlowGraph:
        """Return the graph of the flow that a run belongs to, or of a group; raise RunNotFound."""
        name = run if isinstance(run, str) else run.id
        record = self._app.store.get_runs([name])[0]
        key = name if record is None else flow_key(record)
        runs = {each.id: each for each in self._app.store.find_runs(RunQuery(group=key), limit=MOST_RUNS)}
        if record is not None:
            runs[record.id] = record
        if not runs:
            raise RunNotFound(name)
        self._add_neighbours(runs)
        return graph_of(key, runs.values())

    def _add_neighbours(self, runs: dict[str, Run]) -> None:
        """Add the runs before and after the known runs, until there are no more or too many."""
        new: Iterable[Run] = list(runs.values())
        while new and len(runs) < MOST_RUNS:
            before = {edge.id for run in new for edge in run.after} - runs.keys()
            found = [run for run in self._app.store.get_runs(sorted(before)) if run is not None] if before else []
            behind = [run for run in new if run.followed and self._misses(run, runs)]
            for run in behind[:100]:  # each costs a round trip
                found += self._app.store.find_runs(RunQuery(after=run.id), limit=MOST_RUNS)
            new = list({run.id: run for run in found if run.id not in runs}.values())
            runs.update((run.id, run) for run in new)

    @staticmethod
    def _misses(run: Run, runs: dict[str, Run]) -> bool:
        return sum(any(edge.id == run.id for edge in other.after) for other in runs.values()) < run.followed

    def flow_graphs(self) -> tuple[list[FlowBrief], bool]:
        """Return the flows among the newest runs, newest first, and whether that covers all runs."""
        newest = self._app.store.find_runs(RunQuery(), limit=MOST_RUNS)
        groups: dict[str, list[Run]] = {}
        for run in newest:
            if is_part(run):
                groups.setdefault(flow_key(run), []).append(run)
        found = [_brief(key, runs) for key, runs in groups.items() if len(runs) > 1]
        found.sort(key=lambda each: (not each.goes_on, -each.begun))
        return found, len(newest) < MOST_RUNS


def _brief(key: str, runs: Sequence[Run]) -> FlowBrief:
    ended = sum(run.status in FINAL for run in runs)
    failed = sum(str(run.status) in ("failed", "broken") for run in runs)
    begun = min(run.created_at for run in runs)
    return FlowBrief(key, flow_title(key, runs), flow_state(runs), begun, len(runs), ended, failed, ended < len(runs))
