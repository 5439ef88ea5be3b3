"""The verbs that a split store passes to the store of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from mainspring.clock import Clock
from mainspring.codec import Codec
from mainspring.core.insight.acts import Act
from mainspring.core.insight.metrics import Tally
from mainspring.core.lanes import Want
from mainspring.core.run import Beat, Outcome, Run
from mainspring.jobstores.base import (
    CHANGES,
    ENDS,
    Answers,
    ClaimedRuns,
    Hold,
    JobStore,
    NodeInfo,
    PackLike,
    RunQuery,
    RunStanding,
)
from mainspring.jobstores.records.packing import RecordPacker
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.split.watch import StoreWatch, Wait

__all__ = ["RunsElsewhere"]


class RunsElsewhere(RecordStore):
    """Passes everything about runs, queues, nodes and time to another store."""

    def __init__(self, runs: JobStore, codec: Codec | None) -> None:
        super().__init__(codec)
        self._own_codec = codec
        self._use_runs(runs)

    def _use_runs(self, runs: JobStore, *, shared: bool = False) -> None:
        """Keep runs in this store, and sign as it does unless this store has a codec of its own.

        A `shared` store belongs to the same node, which opens it, closes it, and listens to it.
        """
        if self._own_codec is None and isinstance(runs, RecordStore):
            self._packer = RecordPacker(runs._packer.codec)
        self.runs = runs
        self.volatile = runs.volatile  # type: ignore[misc]
        self.remote, self.tells_topics = runs.remote, runs.tells_topics
        self._runs_are_shared = shared
        self._watch = StoreWatch(self._watched(), None if shared else runs)

    def _watched(self) -> list[Wait]:
        """Return how to wait for changes of jobs."""
        return []

    def pack_run(self, run: Any) -> Any:
        return self.runs.pack_run(run)

    def pack_like(self, run: Run) -> PackLike:
        return self.runs.pack_like(run)

    def add_runs(self, runs: Sequence[Any]) -> Answers[str | None]:
        return self.runs.add_runs(runs)

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        return self.runs.claim(wants, node=node, token=token, lease=lease)

    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        return self.runs.extend(beats, lease)

    def pack_outcome(self, outcome: Outcome) -> Any:
        return self.runs.pack_outcome(outcome)

    def settle(self, outcomes: Sequence[Any]) -> Answers[bool]:
        return self.runs.settle(outcomes)

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        return self.runs.get_runs(run_ids)

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        return self.runs.standings(run_ids)

    def made_behind(self, after: Run | None, number: int) -> int | None:
        return self.runs.made_behind(after, number)

    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        return self.runs.find_runs(query, after=after, limit=limit)

    def recent_runs(self, job_ids: Sequence[str], limit: int) -> list[list[Run]]:
        return self.runs.recent_runs(job_ids, limit)

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        return self.runs.cancel(run_ids)

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        return self.runs.delete_runs(run_ids)

    def prune(self, limit: int = 1000) -> int:
        return self.runs.prune(limit)

    @property
    def keeps_history(self) -> bool:
        """Whether the store of the runs does."""
        return self.runs.keeps_history

    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        return self.runs.acts(new, about=about, after=after, limit=limit)

    def tallies(self, new: Sequence[Tally] = (), **wanted: Any) -> list[Tally]:
        return self.runs.tallies(new, **wanted)

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        return self.runs.beat(node, ttl)

    def nodes(self) -> list[NodeInfo]:
        return self.runs.nodes()

    def set_gate(self, name: str, allowed: int | None) -> None:
        self.runs.set_gate(name, allowed)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        return self.runs.wait(cursor, timeout, topic) if topic == ENDS else self._watch.wait(cursor, timeout)

    def use_clock(self, clock: Clock) -> None:
        self.runs.use_clock(clock)

    def shift_clock(self, seconds: float) -> None:
        self.runs.shift_clock(seconds)
        self._watch.stir()

    def _not_here(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("the runs of this store are objects of another one")

    _add_run_rows = _claim_rows = _extend_rows = _settle_rows = _not_here
    _add_act_rows = _find_act_rows = _not_here
    _lapsed_rows = _run_rows = _find_run_rows = _fire_rows = _not_here
