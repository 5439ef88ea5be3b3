"""The end of a run wakes its waiters; they find it even if the store does not report it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest

from mainspring.app.waiting import hub
from mainspring.app.waiting.waiter import Waiter
from mainspring.core.run import Run
from mainspring.core.transitions import cancel
from mainspring.jobstores.base import ENDS, JobStore
from mainspring.testing.conformance.helpers import add_run, settle, start, succeed

__all__ = ["EndConformance"]

_PATIENCE_SECONDS = 30.0


class EndConformance:
    """Tests of ends, the second topic of `wait`."""

    @pytest.mark.parametrize("runs", [True, False], ids=["that ran", "that waited"])
    def test_a_waiter_is_woken_by_the_end_of_a_run(self, store: JobStore, runs: bool) -> None:
        run = start(store) if runs else add_run(store)
        cursor = _quiet(store)
        seen: list[int] = []
        waiter = Thread(target=lambda: seen.append(store.wait(cursor, _PATIENCE_SECONDS, ENDS)), daemon=True)
        waiter.start()
        assert settle(store, succeed(store, run) if runs else cancel(run, store.beat()))
        waiter.join(2 * _PATIENCE_SECONDS)
        assert seen
        assert seen != [cursor]

    def test_an_end_between_two_waits_is_not_missed(self, store: JobStore) -> None:
        run = start(store)
        cursor = _quiet(store)
        assert settle(store, succeed(store, run))
        assert store.wait(cursor, _PATIENCE_SECONDS, ENDS) != cursor

    def test_an_end_while_nobody_listens_is_not_missed(self, store: JobStore) -> None:
        run = start(store)
        cursor = _quiet(store)
        store.wait(cursor, 0, ENDS)
        assert settle(store, succeed(store, run))
        assert store.wait(cursor, _PATIENCE_SECONDS, ENDS) != cursor

    def test_a_waiter_reads_a_run_only_when_it_has_ended(self, store: JobStore) -> None:
        run, other = start(store), start(store)
        watched = _Watched(store)
        waiter, ended = _begin_to_wait(watched, run)
        assert settle(store, succeed(store, other))
        assert settle(store, succeed(store, run, "done"))
        ended.join(_PATIENCE_SECONDS)
        assert [found.result for found in waiter.ended()] == ["done"]
        assert watched.read == [[run.id]]

    def test_a_waiter_that_nobody_tells_finds_the_end(self, store: JobStore) -> None:
        run = start(store)
        waiter, ended = _begin_to_wait(_Watched(store, tells=False), run)
        assert settle(store, succeed(store, run, "done"))
        ended.join(_PATIENCE_SECONDS)
        assert [found.result for found in waiter.ended()] == ["done"]


class _Watched:
    """A store that records which runs are read, and can keep ends to itself."""

    def __init__(self, store: JobStore, *, tells: bool = True) -> None:
        self._store, self._tells = store, tells
        self.read: list[Sequence[str]] = []
        self.standings, self.check_wait, self.on_thread = store.standings, store.check_wait, store.on_thread

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        self.read.append(run_ids)
        return self._store.get_runs(run_ids)

    def wait(self, cursor: int, timeout: float, topic: str) -> int:
        if self._tells:
            return self._store.wait(cursor, timeout, topic)
        time.sleep(timeout)
        return cursor


def _begin_to_wait(store: Any, run: Run) -> tuple[Waiter, Thread]:
    """Wait for a run in a thread; return once that thread waits."""
    waiter = Waiter([run.id], _PATIENCE_SECONDS)
    thread = Thread(target=lambda: hub.wait(lambda: store, waiter), daemon=True)
    thread.start()
    while not hub.hub_of(store).looks:
        assert thread.is_alive()
        time.sleep(0.001)
    return waiter, thread


def _quiet(store: JobStore) -> int:
    """Listen until the store has nothing more to report; return the cursor."""
    cursor = store.wait(0, 0.05, ENDS)
    while (later := store.wait(cursor, 0.05, ENDS)) != cursor:
        cursor = later
    return cursor
