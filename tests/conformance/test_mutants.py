"""The conformance suite notices a store that breaks one promise about edges or gates: each mutant fails its test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.waiting import edges
from mainspring.jobstores.sqlalchemy.waiting.edges import EdgeVerbs
from mainspring.jobstores.sqlalchemy.waiting.gates import GateVerbs
from mainspring.jobstores.sqlalchemy.waiting.judging import Judgement, LockedRun
from mainspring.testing.conformance import (
    EdgeConformance,
    EdgeUpkeepConformance,
    GateConformance,
    SendBackConformance,
)

_judge_gate = Judgement._judge_gate


def _free_only_what_ran(self: Judgement, run: Any, stored: LockedRun) -> Any:
    before = self.freed.copy()
    judged = _judge_gate(self, run, stored)
    if stored.status != "running":
        self.freed = before
    return judged


class Mutant(NamedTuple):
    """A part of the store, what it does instead, and the test that notices."""

    place: Any
    name: str
    instead: Any
    notices: Callable[..., None]


MUTANTS = {
    "any end releases": Mutant(
        edges, "bit_of", lambda status: 63, EdgeConformance.test_refused_beats_satisfied_in_the_same_call
    ),
    "an end releases nobody": Mutant(
        EdgeVerbs, "release", lambda *_: None, EdgeConformance.test_one_end_releases_all_that_come_after
    ),
    "a predecessor that has ended is waited for": Mutant(
        edges, "FINAL_VALUES", frozenset(), EdgeConformance.test_a_successor_of_one_that_ended_well_is_pending_at_once
    ),
    "an edge is not stored": Mutant(
        EdgeVerbs, "add_edges", lambda *_: None, EdgeConformance.test_a_successor_added_after_the_claim_is_released
    ),
    "an edge counts again after a retry": Mutant(
        EdgeVerbs,
        "forget_edges",
        lambda *_: None,
        SendBackConformance.test_an_end_counts_once_for_those_before_a_retry_and_for_those_after_it,
    ),
    "a run is pruned though others come after it": Mutant(
        edges,
        "_PINNED",
        "SELECT pred FROM {edges} WHERE pred {in} AND mask = -1",
        EdgeUpkeepConformance.test_a_run_is_not_pruned_by_age_while_one_after_it_is_unfinished,
    ),
    "slots are not counted": Mutant(
        GateVerbs, "running", lambda *_: Counter(), GateConformance.test_a_parked_run_does_not_come_back_by_itself
    ),
    "nobody is let in": Mutant(
        GateVerbs, "let_in", lambda *_: None, GateConformance.test_several_that_stop_running_in_one_call_let_in_as_many
    ),
    "one that was let in and is cancelled lets nobody in": Mutant(
        Judgement,
        "_judge_gate",
        _free_only_what_ran,
        GateConformance.test_when_one_that_was_let_in_is_cancelled_the_next_comes,
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
    yield store
    store.shutdown()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_store_that_breaks_a_promise_is_noticed(
    name: str, store: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.place, mutant.name, mutant.instead)
    suite: Any = object.__new__(_owner(mutant.notices))
    with pytest.raises((AssertionError, ValueError)):
        mutant.notices(suite, store)


def _owner(test: Callable[..., None]) -> type:
    suites = (EdgeConformance, EdgeUpkeepConformance, SendBackConformance, GateConformance)
    return next(suite for suite in suites if test in vars(suite).values())
