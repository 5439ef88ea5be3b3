"""Gates: a gate limits its concurrent runs; a run without a slot is parked until another stops running."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import Any

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Condition, Outcome, Run, Status
from mainspring.core.transitions import cancel, change, recover
from mainspring.core.waiting.gates import Limit
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_after,
    add_run,
    claim,
    current,
    fail,
    give_back,
    in_one_shard,
    make_run,
    moved,
    new_id,
    new_token,
    send_back,
    settle,
    start,
    stop,
    succeed,
    together,
)

THREADS = 8


@in_one_shard
class GateConformance:
    """Tests of a gate's slots: a claim takes one, and a run frees it when it stops running."""

    # -- parked ------------------------------------------------------------------------------------------------

    def test_a_gate_lets_in_as_many_as_its_number(self, store: JobStore) -> None:
        gate = new_id("gate")
        runs = [_gated(store, gate, 2) for _ in range(5)]
        claimed = claim(store)
        assert {run.gate for run in claimed} == {gate}
        assert len(claimed) == 2
        left = [current(store, run) for run in runs if run.id not in {one.id for one in claimed}]
        assert {(run.status, run.waits, run.refused) for run in left} == {(Status.BLOCKED, 0, None)}
        assert claim(store) == []

    def test_gates_do_not_know_of_each_other(self, store: JobStore) -> None:
        gates = [new_id("gate") for _ in range(30)]
        for gate in gates:
            _gated(store, gate)
            _gated(store, gate)
        assert sorted(str(run.gate) for run in claim(store)) == sorted(gates)
        assert claim(store) == []

    def test_the_gate_and_the_limit_of_a_run_are_kept(self, store: JobStore) -> None:
        run = _gated(store, new_id("gate"), 7)
        for found in (current(store, run), claim(store)[0]):
            assert (found.gate, found.gate_spec) == (run.gate, Limit(7).to_text())

    def test_a_parked_run_does_not_come_back_by_itself(self, store: JobStore) -> None:
        holder, run = _parked(store)
        for _ in range(3):
            store.shift_clock(LEASE / 4)
            store.prune()
            assert claim(store) == []
        assert current(store, run).status is Status.BLOCKED
        assert current(store, holder).status is Status.RUNNING

    def test_a_claim_of_parked_runs_only_names_no_time(self, store: JobStore) -> None:
        _parked(store)
        assert store.claim([(["default"], 9)], node="n", token=new_token(), lease=LEASE).next_at is None

    def test_parked_runs_are_counted_as_blocked_and_found_by_their_gate(self, store: JobStore) -> None:
        holder, run = _parked(store)
        _gated(store, new_id("gate"))
        [queue] = store.stats().queues
        assert (queue.waiting, queue.blocked, queue.running) == (1, 1, 1)
        assert [one.id for one in store.find_runs(RunQuery(status=(Status.BLOCKED,)))] == [run.id]
        query = RunQuery(gate=holder.gate)
        assert {one.id for one in store.find_runs(query)} == {holder.id, run.id}
        assert store.stats(query).matching == 2
        running = RunQuery(gate=holder.gate, status=(Status.RUNNING,))
        assert [one.id for one in store.find_runs(running)] == [holder.id]
        settle(store, succeed(store, holder))
        assert [one.id for one in store.find_runs(query)] == [run.id]

    def test_a_repeated_claim_parks_nothing(self, store: JobStore) -> None:
        gate, token = new_id("gate"), new_token()
        runs = [_gated(store, gate) for _ in range(4)]
        [holder] = claim(store, limit=1, token=token)
        before = store.standings([run.id for run in runs])
        assert [run.id for run in claim(store, limit=10, token=token)] == [holder.id]
        assert store.standings([run.id for run in runs]) == before

    def test_a_full_gate_does_not_hide_the_runs_behind_it(self, store: JobStore) -> None:
        gate = new_id("gate")
        for _ in range(40):
            _gated(store, gate, priority=5)
        plain = add_run(store)
        assert len(claim(store, limit=1)) == 1
        assert [run.id for run in claim(store, limit=1)] == [plain.id]

    def test_urgency_holds_between_gated_and_other_runs(self, store: JobStore) -> None:
        gate = new_id("gate")
        fields: list[dict[str, Any]] = [
            {"priority": 9, "due_in": -1},
            {"priority": 5, "due_in": -9, "gate": gate, "gate_spec": Limit(2).to_text()},
            {"priority": 5, "due_in": -8},
            {"priority": 5, "due_in": -7, "gate": gate, "gate_spec": Limit(2).to_text()},
            {"priority": 1, "due_in": -9},
        ]
        runs = [add_run(store, **some) for some in reversed(fields)][::-1]
        taken = [run.id for _ in range(3) for run in claim(store, limit=2)]
        assert taken == [run.id for run in runs]

    # -- back --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "how", ["succeeds", "fails", "stops", "given back", "tried later", "lost", "lost for good"]
    )
    def test_a_parked_run_comes_back_when_one_of_its_gate_stops_running(self, store: JobStore, how: str) -> None:
        policy = Policy(
            retries=1 if how == "tried later" else 0,
            delivery="at_most_once" if how == "lost for good" else "at_least_once",
        )
        holder, run = _parked(store, policy=policy)
        other = _gated(store, str(holder.gate))
        assert claim(store) == []
        ends = {"succeeds": succeed, "fails": fail, "stops": stop, "given back": give_back, "tried later": fail}
        if how in ends:
            outcome = ends[how](store, holder)
        else:
            store.shift_clock(LEASE + 1)
            outcome = recover(holder, store.beat())
        assert settle(store, outcome)
        assert [current(store, each).status for each in (run, other)] == [Status.PENDING, Status.BLOCKED]
        assert len(claim(store)) == 1
        assert claim(store) == []

    def test_several_that_stop_running_in_one_call_let_in_as_many(self, store: JobStore) -> None:
        gate = new_id("gate")
        runs = [_gated(store, gate, 3) for _ in range(8)]
        holders = claim(store)
        assert store.settle([succeed(store, run) for run in holders[:2]]) == [True, True]
        statuses = [current(store, run).status for run in runs]
        assert (statuses.count(Status.PENDING), statuses.count(Status.BLOCKED)) == (2, 3)
        assert len(claim(store)) == 2

    def test_when_one_that_was_let_in_is_cancelled_the_next_comes(self, store: JobStore) -> None:
        holder, run = _parked(store)
        other = _gated(store, str(holder.gate))
        assert claim(store) == []
        settle(store, succeed(store, holder))
        assert settle(store, cancel(current(store, run), store.beat()))
        assert [one.id for one in claim(store)] == [other.id]

    def test_a_parked_run_that_is_cancelled_does_not_come_back(self, store: JobStore) -> None:
        holder, run = _parked(store)
        other = _gated(store, str(holder.gate))
        assert claim(store) == []
        assert settle(store, cancel(current(store, run), store.beat()))
        assert claim(store) == []
        settle(store, succeed(store, holder))
        assert [one.id for one in claim(store)] == [other.id]

    def test_parked_runs_come_back_by_priority_then_age(self, store: JobStore) -> None:
        gate = new_id("gate")
        _gated(store, gate)
        [holder] = claim(store)
        runs = []
        for number, priority in enumerate((0, 0, 5, 5)):
            created_at = store.beat() - 1000 + number
            runs.append(_gated(store, gate, priority=priority, created_at=created_at, due_in=-20 + number))
        assert claim(store) == []
        for expected in (runs[2], runs[3], runs[0], runs[1]):
            settle(store, succeed(store, holder))
            [holder] = claim(store)
            assert holder.id == expected.id

    def test_a_run_that_comes_back_is_at_the_tail_of_its_queue(self, store: JobStore) -> None:
        holder, run = _parked(store)
        before = store.beat()
        plain = add_run(store, due_in=-5)
        settle(store, succeed(store, holder))
        assert before <= current(store, run).run_at <= store.beat()
        assert [one.id for one in claim(store, limit=1)] == [plain.id]
        assert [one.id for one in claim(store, limit=1)] == [run.id]

    def test_each_queue_that_waits_gets_one(self, store: JobStore) -> None:
        gate = new_id("gate")
        _gated(store, gate)
        [holder] = claim(store)
        runs = [_gated(store, gate, queue=queue) for queue in ("a", "a", "b", "b", "c")]
        assert claim(store, "a", "b", "c") == []
        settle(store, succeed(store, holder))
        assert [current(store, run).status for run in runs] == [
            Status.PENDING,
            Status.BLOCKED,
            Status.PENDING,
            Status.BLOCKED,
            Status.PENDING,
        ]
        assert [run.id for run in claim(store, "b")] == [runs[2].id]
        assert claim(store, "a", "c") == []

    def test_a_queue_that_nobody_serves_keeps_nobody_else_out(self, store: JobStore) -> None:
        gate = new_id("gate")
        dead = [_gated(store, gate, queue="dead", priority=9) for _ in range(3)]
        runs = [_gated(store, gate) for _ in range(3)]
        [holder] = claim(store)
        assert claim(store, "dead") == []  # the last time that a node serves this queue
        for _ in range(2):
            settle(store, succeed(store, holder))
            [holder] = claim(store)
        settle(store, succeed(store, holder))
        assert {current(store, run).status for run in runs} == {Status.SUCCEEDED}
        assert Status.PENDING in {current(store, run).status for run in dead}

    def test_a_parked_run_that_is_moved_comes_back_in_its_new_queue(self, store: JobStore) -> None:
        holder, run = _parked(store)
        assert settle(store, Outcome(moved(current(store, run), "other"), Condition.WAITING))
        assert current(store, run).status is Status.BLOCKED
        settle(store, succeed(store, holder))
        assert claim(store) == []
        assert [one.id for one in claim(store, "other")] == [run.id]

    def test_a_parked_run_that_is_postponed_waits_for_its_time_and_keeps_no_other_out(self, store: JobStore) -> None:
        holder, run = _parked(store)
        other = _gated(store, str(holder.gate))
        assert claim(store) == []
        later = current(store, run)
        assert settle(store, change(later, run_at=store.beat() + 100 * SECOND, priority=9))
        assert current(store, run).status is Status.PENDING
        settle(store, succeed(store, holder))
        [next_one] = claim(store)
        assert next_one.id == other.id
        settle(store, succeed(store, next_one))
        assert claim(store) == []
        store.shift_clock(101)
        assert [one.id for one in claim(store)] == [run.id]

    def test_a_run_that_comes_back_wakes_a_sleeper(self, store: JobStore) -> None:
        holder, _ = _parked(store)
        cursor = store.wait(0, 0)
        settle(store, succeed(store, holder))
        assert store.wait(cursor, 30) != cursor

    # -- with edges --------------------------------------------------------------------------------------------

    def test_a_run_that_waits_for_others_takes_no_slot_until_it_is_claimed(self, store: JobStore) -> None:
        gate = new_id("gate")
        first = start(store)
        run = add_after(store, first, gate=gate, gate_spec=Limit(1).to_text())
        _gated(store, gate)
        [holder] = claim(store)
        settle(store, succeed(store, first))
        assert current(store, run).status is Status.PENDING
        assert claim(store, "next") == []
        assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 0)
        settle(store, succeed(store, holder))
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_a_refused_run_is_claimed_outside_its_gate_and_takes_no_slot(self, store: JobStore) -> None:
        holder, parked = _parked(store)
        first = start(store)
        run = add_after(store, first, gate=holder.gate, gate_spec=holder.gate_spec)
        settle(store, fail(store, first))
        [refused] = claim(store, "next")
        assert (refused.id, refused.refused) == (run.id, first.id)
        settle(store, succeed(store, holder))
        assert [one.id for one in claim(store)] == [parked.id]
        assert settle(store, stop(store, refused))
        assert current(store, parked).status is Status.RUNNING

    def test_a_run_sent_back_passes_its_gate_again(self, store: JobStore) -> None:
        holder, run = _parked(store)
        settle(store, fail(store, holder))
        [other] = claim(store)
        assert other.id == run.id
        assert settle(store, send_back(store, current(store, holder)))
        assert claim(store) == []
        assert current(store, holder).status is Status.BLOCKED
        settle(store, succeed(store, other))
        assert [one.id for one in claim(store)] == [holder.id]

    # -- numbers set by people ---------------------------------------------------------------------------------

    def test_a_raised_number_lets_in_as_many_as_fit(self, store: JobStore) -> None:
        gate = new_id("gate")
        runs = [_gated(store, gate) for _ in range(6)]
        assert len(claim(store)) == 1
        assert claim(store) == []
        cursor = store.wait(0, 0)
        store.set_gate(gate, 3)
        assert store.wait(cursor, 30) != cursor
        statuses = [current(store, run).status for run in runs]
        assert (statuses.count(Status.PENDING), statuses.count(Status.BLOCKED)) == (2, 3)
        assert len(claim(store)) == 2
        assert claim(store) == []

    def test_a_lowered_number_stops_nobody_and_lets_in_none_until_it_fits(self, store: JobStore) -> None:
        gate = new_id("gate")
        for _ in range(6):
            _gated(store, gate, 3)
        running = claim(store)
        store.set_gate(gate, 2)
        assert len(running) == 3
        assert {current(store, run).status for run in running} == {Status.RUNNING}
        settle(store, succeed(store, running[0]))
        assert claim(store) == []
        settle(store, succeed(store, running[1]))
        assert len(claim(store)) == 1
        assert claim(store) == []

    def test_a_gate_is_paused_and_lifted(self, store: JobStore) -> None:
        gate = new_id("gate")
        store.set_gate(gate, 0)
        for _ in range(3):
            _gated(store, gate, 2)
        assert claim(store) == []
        store.prune()
        assert claim(store) == []
        store.set_gate(gate, None)
        assert len(claim(store)) == 2
        assert claim(store) == []

    def test_the_numbers_that_were_set_are_told(self, store: JobStore) -> None:
        one, other, queue = new_id("gate"), new_id("gate"), new_id("queue")
        before = store.stats().limits
        store.set_gate(one, 3)
        store.set_gate(other, 0)
        store.set_gate(f"queue:{queue}", 8)
        _gated(store, new_id("gate"))
        store.prune()
        assert store.stats().limits == {**before, one: 3, other: 0}
        store.set_gate(one, 4)
        store.set_gate(other, None)
        assert store.stats().limits == {**before, one: 4}

    def test_a_number_that_was_set_holds_for_runs_that_come_later(self, store: JobStore) -> None:
        gate = new_id("gate")
        store.set_gate(gate, 3)
        store.prune()
        store.shift_clock(86400)
        store.prune()
        for _ in range(5):
            _gated(store, gate)
        assert len(claim(store)) == 3

    # -- at once -----------------------------------------------------------------------------------------------

    def test_however_many_claim_at_once_no_more_run_and_none_is_left(self, store: JobStore) -> None:
        gates = {new_id("gate"): number for number in (1, 2, 3)}
        store.add_runs(
            [
                make_run(store, gate=gate, gate_spec=Limit(number).to_text())
                for _ in range(20)
                for gate, number in gates.items()
            ]
        )
        lock, done, over = Lock(), [0], []
        until = monotonic() + 120

        def act(index: int) -> None:
            claims = 0
            while done[0] < 60 and monotonic() < until:
                for run in claim(store, limit=1 + index % 3):
                    claims += 1
                    running = RunQuery(gate=run.gate, status=(Status.RUNNING,))
                    if store.stats(running).matching > gates[str(run.gate)]:
                        over.append(run.gate)
                    end = give_back(store, run) if claims % 5 == 3 else succeed(store, run)
                    assert settle(store, end)
                    with lock:
                        done[0] += end.run.status is Status.SUCCEEDED

        together(THREADS, act)
        assert (over, done) == ([], [60])

    def test_a_claim_that_parks_while_the_holder_ends_loses_no_one(self, store: JobStore) -> None:
        for round_ in range(20):
            gate = new_id("gate")
            _gated(store, gate)
            [holder] = claim(store)
            run = _gated(store, gate)

            def act(index: int, holder: Run = holder) -> list[Run]:
                if index:
                    return claim(store)
                assert settle(store, succeed(store, holder))
                return []

            claimed = [one for each in together(3, act) for one in each]
            claimed += claim(store)
            assert [one.id for one in claimed] == [run.id], f"round {round_}"


def _gated(store: JobStore, gate: str, number: int = 1, **fields: Any) -> Run:
    """Store a run of a gate with this many slots."""
    return add_run(store, gate=gate, gate_spec=Limit(number).to_text(), **fields)


def _parked(store: JobStore, **fields: Any) -> tuple[Run, Run]:
    """Make a run that holds the only slot of a gate, and a run parked behind it."""
    gate = new_id("gate")
    _gated(store, gate, **fields)
    [holder] = claim(store)
    run = _gated(store, gate)
    assert claim(store) == []
    return holder, run
