"""Pass the verbs about runs to the store that holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from mainspring.codec import Codec
from mainspring.jobstores.base import CHANGES, ENDS, JobStore
from mainspring.jobstores.records.packing import RecordPacker
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.split.changes import StoreWatch
from mainspring.jobstores.split.records import JobRecords

__all__ = ["RunsElsewhere"]

Verb = TypeVar("Verb", bound=Callable[..., Any])


class _PassedOn:
    """A verb of the other store, which `__get__` looks up."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, store: RunsElsewhere | None, owner: type) -> Any:
        return self if store is None else getattr(store.runs, self._name)


def _passed_on(verb: Verb) -> Verb:
    """Return a verb that calls the same verb of the other store, with its types."""
    return cast(Verb, _PassedOn(verb.__name__))


class RunsElsewhere(RecordStore):
    """Passes all verbs about runs, queues, nodes and time to another store."""

    def __init__(self, jobs: JobRecords, runs: JobStore, codec: Codec | None) -> None:
        super().__init__(codec)
        self.jobs = jobs
        self._own_codec = codec
        self._use_runs(runs)

    def _use_runs(self, runs: JobStore, *, shared: bool = False) -> None:
        """Keep runs in the store `runs`, and use its codec unless the split store has its own.

        A `shared` store belongs to the same node, which opens it, closes it, and listens to it.
        """
        if self._own_codec is None and isinstance(runs, RecordStore):
            self._packer = RecordPacker(runs._packer.codec)
        self.runs = runs
        self.volatile = runs.volatile  # type: ignore[misc]
        self.remote, self.tells_topics = runs.remote, runs.tells_topics
        self._runs_are_shared = shared
        self._watch = StoreWatch([self.jobs.wait] if self.jobs.watches else [], None if shared else runs)

    pack_run = _passed_on(RecordStore.pack_run)
    pack_like = _passed_on(RecordStore.pack_like)
    add_runs = _passed_on(RecordStore.add_runs)
    claim = _passed_on(RecordStore.claim)
    extend = _passed_on(RecordStore.extend)
    pack_outcome = _passed_on(RecordStore.pack_outcome)
    settle = _passed_on(RecordStore.settle)
    get_runs = _passed_on(RecordStore.get_runs)
    standings = _passed_on(RecordStore.standings)
    made_behind = _passed_on(RecordStore.made_behind)
    find_runs = _passed_on(RecordStore.find_runs)
    recent_runs = _passed_on(RecordStore.recent_runs)
    cancel = _passed_on(RecordStore.cancel)
    delete_runs = _passed_on(RecordStore.delete_runs)
    prune = _passed_on(RecordStore.prune)
    acts = _passed_on(RecordStore.acts)
    tallies = _passed_on(RecordStore.tallies)
    beat = _passed_on(RecordStore.beat)
    nodes = _passed_on(RecordStore.nodes)
    set_gate = _passed_on(RecordStore.set_gate)
    far_edges = _passed_on(RecordStore.far_edges)
    add_runs_within = _passed_on(RecordStore.add_runs_within)
    after_commit = _passed_on(RecordStore.after_commit)
    check_wait = _passed_on(RecordStore.check_wait)
    on_thread = _passed_on(RecordStore.on_thread)
    generations = _passed_on(RecordStore.generations)
    use_clock = _passed_on(RecordStore.use_clock)

    @property
    def keeps_history(self) -> bool:
        """Whether the store of the runs keeps history."""
        return self.runs.keeps_history

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        return self.runs.wait(cursor, timeout, topic) if topic == ENDS else self._watch.wait(cursor, timeout)

    def shift_clock(self, seconds: float) -> None:
        self.runs.shift_clock(seconds)
        self._watch.stir()

    def _not_here(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("the runs of this store are objects of another one")

    _add_run_rows = _claim_rows = _extend_rows = _settle_rows = _not_here
    _add_act_rows = _find_act_rows = _not_here
    _lapsed_rows = _run_rows = _find_run_rows = _fire_rows = _not_here
