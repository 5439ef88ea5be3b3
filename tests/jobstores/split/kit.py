"""Several nodes on one split store, any of which may die between two steps of a fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mainspring.core.plan import Place
from mainspring.core.run import Run
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.split import SplitJobStore
from mainspring.testing.conformance.helpers import (
    due_one,
    fire,
)
from tests.record_stores import DictRecords

ALL = RunQuery()
HOUR = 3600
POINTS = pytest.mark.parametrize("point", ["before the runs", "after the runs", "before the note"])


class Killed(BaseException):
    """The process ends here."""


class Node:
    """One process: its own store object over what all share."""

    def __init__(self, jobs: DictRecords, runs: JobStore) -> None:
        self.store = SplitJobStore(jobs, runs)

    def dies(self, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
        """Have its next fire end at a point between two steps."""
        store = self.store

        def dying(act: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
            def die(*args: Any) -> Any:
                if first:
                    act(*args)
                raise Killed

            return die

        if point == "before the note":
            monkeypatch.setattr(store, "_close", dying(store._close, first=False))
        else:
            monkeypatch.setattr(store, "_add_fired", dying(store._add_fired, first=point == "after the runs"))


def kill(node: Node, monkeypatch: pytest.MonkeyPatch, point: str, place: Place | None = None) -> None:
    """Let a node die while it fires the job."""
    due = due_one(node.store)
    with monkeypatch.context() as patch:
        node.dies(patch, point)
        with pytest.raises(Killed):
            fire(node.store, due, place)


def found(store: SplitJobStore) -> list[Run]:
    return store.find_runs(ALL)


def open_firings(jobs: DictRecords) -> int:
    return sum(msgspec.msgpack.decode(record.data)[5] is not None for record in jobs.all())
