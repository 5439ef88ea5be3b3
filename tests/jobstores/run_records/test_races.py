"""Two nodes at the same records: one stalls between two of its writes, the other acts, and the first comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from examples.runs_in_a_dict import DictRunRecords
from mainspring.core.run import Run, Status
from mainspring.core.waiting.gates import Limit
from mainspring.errors import OutcomeUnknown
from mainspring.jobstores.base import CHANGES, ENDS
from mainspring.jobstores.run_records import RunRecord, RunRecordStore
from mainspring.testing.conformance.helpers import (
    add_after,
    add_run,
    beat,
    claim,
    current,
    fail,
    make_run,
    send_back,
    settle,
    start,
    succeed,
)
from tests.jobstores.run_records.mortal import asleep

LATER = 60.0


class StallingRecords(DictRunRecords):
    """The records of another store, as a node sees them that stalls before it writes a certain record."""

    def __init__(self, other: DictRunRecords, when: Callable[[RunRecord], bool]) -> None:
        self.__dict__.update(other.__dict__)
        self._when = when
        self.sleeping, self.awake, self._stop = asleep()

    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        if not self.awake.is_set() and any(self._when(record) for record, _ in writes):
            self._stop()
        return super().swap(writes)


@pytest.fixture
def records() -> DictRunRecords:
    return DictRunRecords()


@pytest.fixture
def store(records: DictRunRecords) -> RunRecordStore:
    return RunRecordStore(records)


@contextmanager
def stalled(
    records: DictRunRecords, when: Callable[[RunRecord], bool], act: Callable[[RunRecordStore], Any]
) -> Iterator[list[Any]]:
    """Let a node act until it stalls; let it go on at the end of the block, and return what its act returned."""
    slow = StallingRecords(records, when)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(act(RunRecordStore(slow))))
    thread.start()
    assert slow.sleeping.wait(60)
    yield answers
    slow.awake.set()
    thread.join()


def _gated(store: RunRecordStore, **fields: Any) -> Run:
    return add_run(store, gate="gate", gate_spec=Limit(1).to_text(), **fields)


def test_a_claim_that_stalls_cannot_use_a_slot_that_another_has_taken_since(
    records: DictRunRecords, store: RunRecordStore
) -> None:
    run, other = _gated(store, queue="slow"), _gated(store, queue="quick")
    with stalled(records, lambda each: each.row.status == "running", lambda slow: claim(slow, "slow")) as answers:
        assert claim(store, "quick") == []  # the slot is reserved, and the claim may only be slow
        store.set_gate("gate", None)
        store.shift_clock(LATER)
        store.prune()
        assert [one.id for one in claim(store, "quick")] == [other.id]
    assert answers == [[]]
    assert current(store, run).status is not Status.RUNNING


def test_a_run_that_is_parked_while_the_last_of_its_gate_ends_comes_back(
    records: DictRunRecords, store: RunRecordStore
) -> None:
    _gated(store)
    [holder] = claim(store)
    run = _gated(store)
    with stalled(records, lambda each: each.row.status == "blocked", claim):
        assert settle(store, succeed(store, holder))
    assert [one.id for one in claim(store)] == [run.id]


def test_an_old_end_does_not_count_for_a_run_that_was_sent_back_with_its_predecessor(
    records: DictRunRecords, store: RunRecordStore
) -> None:
    first = start(store)
    run = add_after(store, first)
    with stalled(records, lambda each: each.row.id == run.id, lambda slow: slow.settle([fail(slow, first)])) as answers:
        assert settle(store, send_back(store, current(store, first)))
        refused = current(store, run)
        assert refused.refused == first.id
        assert settle(store, send_back(store, refused))
    assert answers == [[True]]
    assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 1)
    [again] = claim(store)
    assert settle(store, succeed(store, again))
    assert [one.id for one in claim(store, "next")] == [run.id]


class UnansweredRecords(DictRunRecords):
    """The records of another store, which takes each write and then breaks the connection, or says it was repeated."""

    def __init__(self, other: DictRunRecords, *, repeats: bool) -> None:
        self.__dict__.update(other.__dict__)
        self._repeats = repeats

    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        super().swap(writes)
        if self._repeats:
            return super().swap(writes)
        raise OutcomeUnknown("the connection broke")


@pytest.mark.parametrize("repeats", [False, True])
def test_a_write_whose_answer_was_lost_is_found_again(
    records: DictRunRecords, store: RunRecordStore, repeats: bool
) -> None:
    add_run(store)
    deaf = RunRecordStore(UnansweredRecords(records, repeats=repeats))
    [run] = claim(deaf)
    assert deaf.extend([beat(run)], 60.0) == ["held"]
    assert settle(deaf, succeed(deaf, run))
    assert settle(deaf, succeed(deaf, run)) is False
    assert store.stats().totals["succeeded"] == 1


def test_a_write_that_is_lost_with_its_answer_is_reported(records: DictRunRecords, store: RunRecordStore) -> None:
    class Lost(UnansweredRecords):
        def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
            raise OutcomeUnknown("the connection broke")

    run = start(store)
    with pytest.raises(OutcomeUnknown):
        settle(RunRecordStore(Lost(records, repeats=False)), succeed(store, run))
    assert current(store, run).status is Status.RUNNING


@pytest.mark.parametrize(("field", "value"), [("attempt", -5), ("created_at", -(2 * 10**17)), ("run_at", 3 * 10**17)])
def test_an_altered_run_is_set_aside_once_and_refuses_those_behind_it(
    records: DictRunRecords, store: RunRecordStore, field: str, value: int
) -> None:
    first = add_run(store)
    run = add_after(store, first)
    setattr(records._runs[first.id].row, field, value)
    assert current(store, first).status is Status.BROKEN
    version = records._runs[first.id].version
    assert "altered" in str(current(store, first).reason)
    assert records._runs[first.id].version == version
    assert current(store, run).refused == first.id
    assert store.add_runs([make_run(store, first.id)]) == [first.id]
    assert claim(store) == []


# -- waking --------------------------------------------------------------------------------------------------------


def cursors(store: RunRecordStore) -> tuple[int, int]:
    """Return the cursors of both topics, without waiting."""
    return store.wait(0, 0, CHANGES), store.wait(0, 0, ENDS)


def test_an_end_wakes_who_waits_for_ends_and_work_wakes_who_works(store: RunRecordStore) -> None:
    run = start(store)
    changes, ends = cursors(store)
    settle(store, succeed(store, run))
    assert cursors(store) == (changes, ends + 1)
    add_run(store)
    assert cursors(store) == (changes + 1, ends + 1)


def test_an_end_that_makes_room_in_a_queue_wakes_who_works(store: RunRecordStore) -> None:
    store.set_gate("queue:default", 1)
    run = start(store)
    changes, ends = cursors(store)
    settle(store, succeed(store, run))
    assert cursors(store) == (changes + 1, ends + 1)
    store.set_gate("queue:default", None)
    run = start(store)
    changes, ends = cursors(store)
    settle(store, succeed(store, run))
    assert cursors(store) == (changes, ends + 1)


def test_an_end_that_lets_another_run_go_on_wakes_both(store: RunRecordStore) -> None:
    run = start(store)
    add_after(store, run)
    changes, ends = cursors(store)
    settle(store, succeed(store, run))
    later = cursors(store)
    assert later[0] > changes
    assert later[1] == ends + 1
