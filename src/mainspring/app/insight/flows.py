"""Flows of an app: the chains, groups and hooks that its runs form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.handle import RunHandle
from mainspring.core.insight.flows import Flow, flow_key, flow_of, is_part, members_of
from mainspring.core.run import FINAL, Run
from mainspring.core.run_view import RunView
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import RunQuery

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["FlowBrief", "Flows"]

MOST_RUNS: Final = 1000
"""Look at this many of the newest runs to find flows, and show this many runs of one."""


class FlowBrief(NamedTuple):
    """A flow in a list: its key, what its first run is called, and how many of its newest runs stand how."""

    key: str
    name: str
    begun: int
    number: int
    ended: int
    failed: int
    goes_on: bool


class Flows:
    """Finds the flows of an app's runs."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def flow(self, run: str | RunHandle[Any] | RunView) -> Flow:
        """Return the flow of a run or of a group; raise RunNotFound."""
        name = run if isinstance(run, str) else run.id
        record = self._app.store.get_runs([name])[0]
        key = name if record is None else flow_key(record)
        runs = {each.id: each for each in self._app.store.find_runs(RunQuery(group=key), limit=MOST_RUNS)}
        if record is not None:
            runs[record.id] = record
        wanted = [each for run in list(runs.values())[:100] for each in members_of(run)]
        missing = [each for each in dict.fromkeys([key, *wanted]) if each not in runs]
        runs |= {each.id: each for each in self._app.store.get_runs(missing[:MOST_RUNS]) if each is not None}
        if not runs:
            raise RunNotFound(name)
        return flow_of(key, runs.values())

    def flows(self) -> tuple[list[FlowBrief], bool]:
        """Return the flows among the newest runs, newest first, and whether these are all runs."""
        newest = self._app.store.find_runs(RunQuery(), limit=MOST_RUNS)
        groups: dict[str, list[Run]] = {}
        for run in newest:
            if is_part(run):
                groups.setdefault(flow_key(run), []).append(run)
        found = [_brief(key, runs) for key, runs in groups.items() if len(runs) > 1 or runs[0].policy.then]
        found.sort(key=lambda each: (not each.goes_on, -each.begun))
        return found, len(newest) < MOST_RUNS


def _brief(key: str, runs: Sequence[Run]) -> FlowBrief:
    first = min(runs, key=lambda run: (run.created_at, run.id))
    ended = sum(run.status in FINAL for run in runs)
    failed = sum(str(run.status) in ("failed", "broken") for run in runs)
    planned = max(len(run.policy.then) for run in runs if run.status not in FINAL) if ended < len(runs) else 0
    return FlowBrief(key, first.name, first.created_at, len(runs) + planned, ended, failed, ended < len(runs))
