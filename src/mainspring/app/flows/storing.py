"""Store the runs of a flow, all or none, in as many writes as they need."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mainspring.app.enqueuing.enqueue import BATCH_RUNS, Calls, Sender
from mainspring.core import transitions
from mainspring.core.run import Run
from mainspring.core.waiting.flows import OWN_TASKS, guarded, marker_id, with_joins
from mainspring.errors import OutcomeUnknown, RunCancelled, StoreUnavailable

if TYPE_CHECKING:
    from mainspring.app.store import AppStore

__all__ = ["FlowWriter"]

log = logging.getLogger("mainspring.app")

MOST_RUNS_AT_ONCE: Final = BATCH_RUNS
"""Store a flow of up to this many runs in one write."""


class FlowWriter:
    """Stores flows in an app's store."""

    def __init__(self, app_store: AppStore, calls: Calls, *, atomic: bool = False) -> None:
        self._app_store, self._calls = app_store, calls
        self._atomic = atomic
        """Whether one transaction holds all writes, so that no flow needs a marker."""

    def write(self, flow_id: str, runs: Sequence[Run], *, inline: bool = False) -> str | None:
        """Store runs, all or none, or execute them inline; each run comes after earlier ones of the sequence.

        If an unfinished run in the store has the unique key of one of them, store nothing and return its id. Raise
        RunNotFound if a run should come after a run that does not exist.
        """
        for run in runs:
            if run.call.func not in OWN_TASKS:
                self._calls.announce(run)
        keyed = next((number for number, run in enumerate(runs) if run.unique is not None), None)
        if inline:
            ready = with_joins(flow_id, runs)
            ids = {run.id: handle.id for run, handle in zip(ready, self._calls.execute(ready), strict=True)}
            holder = None if keyed is None else ids[runs[keyed].id]
            return None if keyed is None or holder == runs[keyed].id else holder
        transactions = self._app_store.transactions
        atomic = self._atomic or (transactions is not None and transactions.covers_runs())
        if atomic:
            return self._write_joined(flow_id, runs, keyed)
        # A flow may need several writes, and each needs the answer to the one before.
        if transactions is not None and transactions.defer(lambda: self._write(flow_id, runs, keyed)):
            return None
        return self._write(flow_id, runs, keyed)

    def _write_joined(self, flow_id: str, runs: Sequence[Run], keyed: int | None) -> str | None:
        """Store runs in one transaction, without a marker."""
        if keyed is not None and _has_others(runs, keyed):
            raise ValueError(
                "inside a transaction, only a call that all others of its flow come after can have unique="
            )
        return self._write_at_once(with_joins(flow_id, runs), runs[keyed or 0], BATCH_RUNS)

    def _write(self, flow_id: str, runs: Sequence[Run], keyed: int | None) -> str | None:
        """Store runs in one write, or in several behind a marker."""
        if not _needs_marker(runs, keyed):
            joined = with_joins(flow_id, runs)
            return self._write_at_once(joined, runs[keyed or 0], len(joined))
        ready = with_joins(flow_id, guarded(flow_id, runs, runs[0].created_at))
        return self._write_guarded(flow_id, ready, None if keyed is None else runs[keyed].id)

    def _write_at_once(self, runs: Sequence[Run], keyed: Run, size: int) -> str | None:
        """Store runs in one write, or in several of this size."""
        for start in range(0, len(runs), size):
            some = runs[start : start + size]
            ids = self._calls.store(some)
            by_id = {run.id: answer for run, answer in zip(some, ids, strict=True)}
            holder = by_id.get(keyed.id, keyed.id)
            if holder is not None and holder != keyed.id:
                return holder
            if None in ids:
                self._calls.raise_missing(some, ids)
        return None

    def _write_guarded(self, flow_id: str, runs: Sequence[Run], keyed: str | None) -> str | None:
        """Store a marker and the runs behind it, then settle the marker; if that fails, cancel it with the flow."""
        marker, rest = runs[0], runs
        try:
            if keyed is not None:
                until = next(number for number, run in enumerate(runs, 1) if run.id == keyed)
                answers = self._calls.store(runs[:until])
                if answers[-1] is None:
                    self._calls.raise_missing(runs[:until], answers)
                if answers[-1] != keyed:
                    self._give_up(marker)
                    return answers[-1]
                rest = runs[until:]
            with Sender(self._calls.send, [], all_or_none=True) as sender:
                for start in range(0, len(rest), BATCH_RUNS):
                    sender.send(self._app_store.lasting, rest[start : start + BATCH_RUNS])
            self._release(marker, flow_id)
        except BaseException:
            self._give_up(marker)
            raise
        return None

    def _release(self, marker: Run, flow_id: str) -> None:
        """Let the flow begin."""
        store, now = self._app_store.lasting, self._app_store.now()
        outcome = store.pack_outcome(transitions.signal(marker, None, now))
        try:
            released = store.settle([outcome])[0]
        except OutcomeUnknown:
            store.settle([outcome])  # if the first try was written after all, the store ignores this one
            return
        if not released:
            raise RunCancelled(marker_id(flow_id), "the flow was cancelled before all of it was stored")

    def _give_up(self, marker: Run) -> None:
        """Cancel the marker and thereby all stored runs of the flow; if that fails, the janitor does it later."""
        try:
            self._calls.runs.cancel_waiting([marker])
        except StoreUnavailable as error:
            log.warning("the rest of the flow %r is cancelled later: %s", marker.group, error)


def _needs_marker(runs: Sequence[Run], keyed: int | None) -> bool:
    """Return False if one write stores either all of these runs or none; `keyed` is the run with a unique key."""
    if len(runs) > MOST_RUNS_AT_ONCE or len(runs) == 1:
        return len(runs) > 1
    inside = {run.id for run in runs}
    if any(edge.id not in inside for run in runs for edge in run.after):  # a predecessor outside may be gone
        return True
    return keyed is not None and _has_others(runs, keyed)


def _has_others(runs: Sequence[Run], keyed: int) -> bool:
    """Return True if some run does not come after the run with the unique key."""
    return keyed > 0 or sum(not run.after for run in runs) > 1
