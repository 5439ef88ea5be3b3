"""Lanes: the runs of a queue that need the same executor. One claim may ask for several lanes of a queue."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mainspring.core.lanes import LOOP_EXECUTOR, PROCESSES_EXECUTOR, Want
from mainspring.core.run import Run, Status
from mainspring.core.transitions import change
from mainspring.core.waiting.gates import QUEUE_GATE, Limit
from mainspring.jobstores.base import ClaimedRuns, JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_run,
    claim,
    current,
    give_back,
    in_one_shard,
    make_run,
    new_id,
    new_token,
    pause,
    resume,
    settle,
    succeed,
)

__all__ = ["LaneConformance", "LaneGateConformance"]

THREADS, ASYNC, PROCESS = "mail", "mail:async", "mail:process"
EXECUTORS = {THREADS: None, ASYNC: LOOP_EXECUTOR, PROCESS: PROCESSES_EXECUTOR}
EACH: tuple[Want, ...] = (((THREADS,), 9), ((ASYNC,), 9), ((PROCESS,), 9))


class LaneConformance:
    """Tests of lanes. The runs of a queue wait in one lane per executor; people see one queue."""

    def test_each_want_takes_the_runs_of_its_lanes_only(self, store: JobStore) -> None:
        runs = {lane: _waiting(store, lane) for lane in EXECUTORS}
        assert _ids(_look(store, ((ASYNC, "other:async"), 9))) == [runs[ASYNC].id]
        assert _ids(_look(store, ((THREADS, PROCESS), 9))) == sorted([runs[THREADS].id, runs[PROCESS].id])

    def test_one_call_serves_all_wants_each_up_to_its_limit(self, store: JobStore) -> None:
        for lane in (THREADS, ASYNC, PROCESS):
            for _ in range(3):
                _waiting(store, lane)
        found = _look(store, ((THREADS,), 1), ((ASYNC,), 2), ((PROCESS,), 0))
        assert sorted(run.lane for run in found.runs) == [THREADS, ASYNC, ASYNC]
        assert {run.queue for run in found.runs} == {"mail"}
        assert len({run.token for run in found.runs}) == 1

    def test_the_more_urgent_of_a_want_go_first(self, store: JobStore) -> None:
        _waiting(store, THREADS)
        late = _waiting(store, THREADS, due_in=-30)
        high = _waiting(store, ASYNC, priority=5, due_in=-1)
        _waiting(store, ASYNC, due_in=-20)
        assert [run.id for run in _look(store, ((THREADS, ASYNC), 2)).runs] == [high.id, late.id]

    def test_a_full_want_does_not_hide_the_runs_of_another(self, store: JobStore) -> None:
        for _ in range(5):
            _waiting(store, THREADS, priority=9, due_in=-60)
        run = _waiting(store, ASYNC)
        assert _ids(_look(store, ((THREADS,), 0), ((ASYNC,), 5))) == [run.id]

    def test_next_at_is_the_earliest_over_all_wants(self, store: JobStore) -> None:
        assert _look(store, *EACH).next_at is None
        _waiting(store, THREADS, due_in=100)
        run = _waiting(store, ASYNC, due_in=50)
        assert _look(store, *EACH).next_at == run.run_at
        for _ in range(2):
            _waiting(store, PROCESS)
        found = _look(store, ((THREADS,), 9), ((ASYNC,), 9), ((PROCESS,), 1))
        assert found.next_at is not None
        assert found.next_at <= found.now
        _look(store, *EACH)
        assert _look(store, ((THREADS,), 9)).next_at != run.run_at

    def test_a_repeated_claim_answers_the_runs_of_all_wants(self, store: JobStore) -> None:
        for lane in (THREADS, ASYNC, ASYNC):
            _waiting(store, lane)
        token = new_token()
        first = _look(store, ((THREADS,), 1), ((ASYNC,), 1), token=token)
        assert len(first.runs) == 2
        assert _ids(_look(store, *EACH, token=token)) == _ids(first)
        assert len(_look(store, *EACH).runs) == 1

    def test_no_want_and_no_lane_give_nothing(self, store: JobStore) -> None:
        _waiting(store, THREADS)
        assert _look(store).runs == []
        assert _look(store, ((), 5)).runs == []

    def test_a_run_comes_back_into_the_lane_that_its_executor_names(self, store: JobStore) -> None:
        _waiting(store, THREADS)
        [run] = claim(store, THREADS)
        assert settle(store, give_back(store, replace(run, executor=LOOP_EXECUTOR)))
        assert claim(store, THREADS) == []
        [run] = claim(store, ASYNC)
        assert run.executor == LOOP_EXECUTOR
        assert settle(store, give_back(store, run))
        assert [one.id for one in claim(store, ASYNC)] == [run.id]

    def test_a_moved_run_keeps_to_its_executor(self, store: JobStore) -> None:
        run = _waiting(store, ASYNC)
        assert settle(store, change(current(store, run), queue="other"))
        assert claim(store, THREADS, ASYNC, "other") == []
        assert [one.id for one in claim(store, "other:async")] == [run.id]

    # -- what people see ---------------------------------------------------------------------------------------

    def test_people_see_one_queue(self, store: JobStore) -> None:
        runs = [_waiting(store, lane) for lane in EXECUTORS]
        _waiting(store, ASYNC, due_in=500)
        [taken] = claim(store, PROCESS)
        [queue] = store.stats().queues
        assert (queue.name, queue.waiting, queue.delayed, queue.running) == ("mail", 2, 1, 1)
        assert queue.oldest_at == min(run.run_at for run in runs[:2])
        query = RunQuery(queue="mail", status=(Status.PENDING, Status.RUNNING))
        assert len(store.find_runs(query)) == store.stats(query).matching == 4
        assert store.find_runs(RunQuery(queue=ASYNC)) == []
        settle(store, succeed(store, taken))
        assert current(store, taken).queue == "mail"

    def test_the_limit_of_a_queue_holds_over_its_lanes(self, store: JobStore) -> None:
        store.set_gate(f"{QUEUE_GATE}mail", 12)
        store.add_runs([make_run(store, queue="mail", executor=each) for _ in range(80) for each in EXECUTORS.values()])
        other = _waiting(store, "other")
        wants: list[Want] = [((THREADS, ASYNC, "other"), 100), ((PROCESS,), 100)]
        found = _look(store, *wants)
        assert len(found.runs) == 13
        assert other.id in _ids(found)
        for want in wants:
            idle = _look(store, want)
            assert idle.runs == []
            assert idle.next_at is None or idle.next_at > idle.now
        [queue] = [queue for queue in store.stats().queues if queue.name == "mail"]
        assert (queue.limit, queue.running, queue.waiting) == (12, 12, 228)
        settle(store, succeed(store, next(run for run in found.runs if run.queue == "mail")))
        assert len(_look(store, *wants).runs) == 1
        store.set_gate(f"{QUEUE_GATE}mail", None)
        assert len(_look(store, ((THREADS, ASYNC, PROCESS), 1000)).runs) == 227

    def test_a_paused_queue_gives_nothing_from_any_lane(self, store: JobStore) -> None:
        for lane in EXECUTORS:
            _waiting(store, lane)
        pause(store, "mail")
        assert _look(store, *EACH).runs == []
        resume(store, "mail")
        assert len(_look(store, *EACH).runs) == 3


@in_one_shard
class LaneGateConformance:
    """Tests that a gate holds over all lanes, and that each lane waiting at it gets its turn."""

    def test_each_lane_that_waits_for_a_gate_gets_one(self, store: JobStore) -> None:
        gate = new_id("gate")
        fields = {"gate": gate, "gate_spec": Limit(1).to_text()}
        _waiting(store, THREADS, **fields)
        [holder] = claim(store, THREADS)
        for lane in (THREADS, ASYNC, ASYNC):
            _waiting(store, lane, **fields)
        assert _look(store, *EACH).runs == []
        settle(store, succeed(store, holder))
        # One run of each lane may try again, so a lane that no node serves does not block the others.
        [holder] = claim(store, ASYNC)
        assert claim(store, ASYNC) == []
        settle(store, succeed(store, holder))
        [holder] = claim(store, ASYNC)
        settle(store, succeed(store, holder))
        assert len(claim(store, THREADS)) == 1

    def test_a_gate_holds_over_the_wants_of_one_claim(self, store: JobStore) -> None:
        gate = new_id("gate")
        for lane in EXECUTORS:
            _waiting(store, lane, gate=gate, gate_spec=Limit(2).to_text())
        assert len(_look(store, *EACH).runs) == 2
        assert store.stats(RunQuery(gate=gate, status=(Status.BLOCKED,))).matching == 1


def _waiting(store: JobStore, lane: str, **fields: Any) -> Run:
    """Store a run that waits in a lane."""
    run = add_run(store, queue=lane.partition(":")[0], executor=EXECUTORS.get(lane), **fields)
    assert run.lane == lane
    return run


def _look(store: JobStore, *wants: Want, token: str | None = None) -> ClaimedRuns:
    return store.claim(wants, node=NODE, token=token or new_token(), lease=LEASE)


def _ids(found: ClaimedRuns) -> list[str]:
    return sorted(run.id for run in found.runs)
