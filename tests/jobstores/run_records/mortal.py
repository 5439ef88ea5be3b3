"""A node that dies, or falls asleep, at a chosen write to its run records; and what all nodes do with the runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from examples.runs_in_a_dict import DictRunRecords
from mainspring.core.run import FINAL, ON, After, Condition, Outcome, Run, Status, bit_of
from mainspring.core.transitions import cancel, recover
from mainspring.core.waiting.gates import QUEUE_GATE, Limit
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.run_records import RunRecord, RunRecordStore, StoreNote
from mainspring.testing.conformance.helpers import (
    behind,
    claim,
    fail,
    lapsed,
    make_run,
    send_back,
    succeed,
)

GATE, KEY = "gate", "key"
QUEUES = ("default", "limited")
LIMITED = 2
"""How many runs of the queue `limited` may run at once."""


class Died(BaseException):
    """The node is gone; nothing of its code runs any more."""


class MortalRecords(DictRunRecords):
    """The records of another store, as a node sees them that stops before or after its n-th write."""

    def __init__(
        self, other: DictRunRecords, stop: Callable[[], None] | None = None, at: int = 0, after: bool = False
    ) -> None:
        self.__dict__.update(other.__dict__)
        self.writes, self._stop, self._at, self._after = 0, stop, at, after

    def _step(self, write: Callable[[], Any]) -> Any:
        self.writes += 1
        here = self._stop is not None and self.writes == self._at
        if here and not self._after:
            self._stop()  # type: ignore[misc]
        done = write()
        if here and self._after:
            self._stop()  # type: ignore[misc]
        return done

    def add(self, records: Sequence[RunRecord]) -> list[bool]:
        write = super().add
        return [self._step(partial(write, [each]))[0] for each in records]

    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        write = super().swap
        return [self._step(partial(write, [each]))[0] for each in writes]

    def remove(self, marks: Sequence[tuple[str, int]], until: int | None) -> list[bool]:
        write = super().remove
        return [self._step(partial(write, [each], until))[0] for each in marks]

    def put_notes(self, writes: Sequence[tuple[StoreNote, int | None]]) -> list[bool]:
        write = super().put_notes
        return [self._step(partial(write, [each]))[0] for each in writes]

    def drop_notes(self, notes: Sequence[StoreNote]) -> None:
        for each in notes:
            self._step(partial(super().drop_notes, [each]))


class Ledger:
    """What nodes were told, and what must therefore be so."""

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.succeeded: Counter[str] = Counter()
        self.sent_back: set[str] = set()


class Node:
    """One node: it adds, claims and settles runs, and watches the rules."""

    def __init__(self, records: DictRunRecords, ledger: Ledger, shift: float = 0.0) -> None:
        self.records, self.ledger = records, ledger
        self.store = RunRecordStore(records)
        self.store.start(None, "default")
        self.store.shift_clock(shift)

    def add(self, runs: Sequence[Run]) -> None:
        answers = self.store.add_runs(runs)
        self.ledger.added |= {str(each) for each in answers}

    def claim(self, limit: int = 100) -> list[Run]:
        runs = claim(self.store, *QUEUES, limit=limit)
        for run in runs:
            self.check(run)
        return runs

    def check(self, run: Run) -> None:
        """Nothing starts early, above a limit, or after it has ended well."""
        stored = self.records._runs.get(run.id)
        if stored is None or (stored.row.status, stored.row.token) != ("running", run.token):
            return  # this node slept so long that it has lost the run
        statuses = self.store.standings([each.id for each in run.after])
        if run.refused is None:
            for after, found in zip(run.after, statuses, strict=True):
                if after.id in self.ledger.sent_back:  # its end had counted before
                    continue
                assert found is None or (found.status in FINAL and after.on & bit_of(found.status)), (run.id, after)
        running = [each.row for each in self.records._runs.values() if each.row.status == "running"]
        assert sum(row.gate == GATE and row.refused is None for row in running) <= 1
        assert sum(row.queue == "limited" for row in running) <= LIMITED
        assert run.id in self.ledger.sent_back or not self.ledger.succeeded[run.id], f"{run.id} runs again"

    def finish(self, runs: Sequence[Run], *, well: bool = True, then: Sequence[Run] = ()) -> None:
        """End runs; a refused one is cancelled."""
        outcomes = []
        for number, run in enumerate(runs):
            if run.refused is not None:
                outcomes.append(Outcome(cancel(run, self.store.beat()).run, Condition.HELD))
            else:
                end = (succeed if well else fail)(self.store, run)
                outcomes.append(Outcome(end.run, end.condition, tuple(then) if number == 0 else ()))
        for outcome, done in zip(outcomes, self.store.settle(outcomes), strict=True):
            if done and outcome.run.status is Status.SUCCEEDED:
                self.ledger.succeeded[outcome.run.id] += 1
                self.ledger.added |= {run.id for run in outcome.then}

    def tend(self) -> None:
        """Do what a janitor does: mend, prune, and take back the runs of the dead."""
        self.store.prune()
        runs = lapsed(self.store, 100)
        self.store.settle([recover(run, self.store.beat()) for run in runs])

    def drain(self) -> None:
        """Run all there is to its end."""
        for _ in range(50):
            self.tend()
            runs = self.claim()
            self.finish(runs)
            unfinished = RunQuery(status=(Status.BLOCKED, Status.PENDING, Status.RUNNING))
            if not runs and not self.store.stats(unfinished).matching:
                return
        left = self.store.find_runs(unfinished)
        raise AssertionError(f"these do not end: {[(run.id, run.status, run.waits, run.after) for run in left]}")


def flow(node: Node) -> list[Run]:
    """Make a flow: two runs, a join behind them, and a hook of the join; and one that comes after a failure."""
    a, b = make_run(node.store, "a"), make_run(node.store, "b")
    join = make_run(node.store, "join", after=behind(a, b), status=Status.BLOCKED)
    hook = make_run(node.store, "hook", after=behind(join, on="end"), status=Status.BLOCKED)
    rescue = make_run(node.store, "rescue", after=(After("a", ON["failure"]),), status=Status.BLOCKED)
    return [a, b, join, hook, rescue]


def story(node: Node) -> None:
    """Do a bit of everything: flows, gates, limits of queues, keys, failures, runs sent back, runs deleted."""
    store = node.store
    store.set_gate(f"{QUEUE_GATE}limited", LIMITED)
    node.add(flow(node))
    gated = [make_run(store, f"g{n}", gate=GATE, gate_spec=Limit(1).to_text(), priority=-1) for n in range(3)]
    node.add([*gated, *(make_run(store, f"q{n}", queue="limited") for n in range(4))])
    node.add([make_run(store, "keyed", unique=KEY)])
    runs = {run.id: run for run in node.claim()}
    late = make_run(store, "late", after=(After("b"), After("q0", ON["end"])), status=Status.BLOCKED)
    node.add([late])
    node.finish([runs[n] for n in ("b", "q0") if n in runs], then=[make_run(store, "then", after=(After("b"),))])
    node.finish([runs[n] for n in ("a",) if n in runs], well=False)
    node.finish([runs[n] for n in ("g0", "q1", "keyed") if n in runs])
    node.finish(node.claim(limit=3))
    back = [run for run in store.get_runs(["a", "join"]) if run is not None]
    back = [run for run in back if run.status in (Status.FAILED, Status.CANCELLED) or run.refused is not None]
    node.ledger.sent_back |= {run.id for run in back}
    store.settle([send_back(store, run) for run in back if run.status is not Status.RUNNING])
    node.add([make_run(store, "keyed 2", unique=KEY, after=(After("a", ON["end"]),), status=Status.BLOCKED)])
    node.finish(node.claim(limit=4))
    store.delete_runs(["b", "q0", "keyed"])
    node.finish(node.claim())
    store.prune()


def check_end(records: DictRunRecords, ledger: Ledger, deleted: Sequence[str] = ("b", "q0", "keyed")) -> None:
    """Nothing is lost, nothing ran twice, and nothing is left to do."""
    found = {each.row.id: each for each in records._runs.values()}
    assert ledger.added - {*deleted} <= found.keys()
    assert {each.row.status for each in found.values()} <= {"succeeded", "failed", "cancelled"}
    assert [each.row.id for each in found.values() if each.todo_at is not None] == []
    twice = {run_id for run_id, number in ledger.succeeded.items() if number > 1}
    assert twice <= ledger.sent_back
    for name in ("g0", "g1", "g2", "q1", "q2", "q3"):
        assert name not in found or found[name].row.status == "succeeded", name
    if "then" in found:
        assert "b" not in found or found["b"].row.status == "succeeded"


def asleep() -> tuple[threading.Event, threading.Event, Callable[[], None]]:
    """Return two events and a stop: it sets the first and waits for the second."""
    sleeping, awake = threading.Event(), threading.Event()

    def stop() -> None:
        sleeping.set()
        assert awake.wait(60)

    return sleeping, awake, stop
