"""Workers are replaced after a number of runs or above a memory size, limits per queue hold, a burst ends."""

from __future__ import annotations

from collections import Counter

from mainspring.core.run import Status
from tests.cluster.kit import Yard


def assert_each_executed_once(yard: Yard, runs: list[object], word: str) -> None:
    assert {run.status for run in yard.end(runs)} == {Status.SUCCEEDED}
    counts = Counter(line.run_id for line in yard.ledger(word))
    assert set(counts.values()) == {1}
    assert len(counts) == len(runs)


def test_workers_are_replaced_after_a_number_of_runs_and_no_run_is_lost(yard: Yard) -> None:
    runs = [yard.jobs.quick.enqueue(0.05) for _ in range(60)]
    yard.start("-p", "1", "-t", "2", "--max-runs", "15")
    assert_each_executed_once(yard, runs, "ended")
    assert len(yard.spawned(2)) >= 2
    assert "runs" in yard.log()
    assert {run.attempt for run in yard.end(runs)} == {1}


def test_no_process_executes_more_than_its_number_of_runs_however_quick_they_are(yard: Yard) -> None:
    runs = [yard.jobs.ok.enqueue(number) for number in range(40)]
    yard.start("-p", "1", "-t", "4", "--max-runs", "15")
    assert_each_executed_once(yard, runs, "ok")
    executed = Counter(line.pid for line in yard.ledger("ok"))
    assert sorted(executed.values()) == [10, 15, 15]


def test_workers_are_replaced_above_a_memory_size_and_no_run_is_lost(yard: Yard) -> None:
    first = [yard.jobs.grow.enqueue(200)]
    yard.start("-p", "1", "--max-rss", "200")
    assert_each_executed_once(yard, first, "grew")
    yard.spawned(2)
    assert "of memory" in yard.log()
    assert_each_executed_once(yard, [yard.jobs.ok.enqueue(1)], "ok")


def test_no_more_runs_of_a_queue_are_executed_at_once_than_its_limit(yard: Yard) -> None:
    runs = [yard.jobs.count_inside.enqueue() for _ in range(60)]
    others = [yard.jobs.ok.enqueue(number) for number in range(60)]
    yard.start("-p", "1", "-t", "8", "-Q", "side:3,default")
    yard.end([*runs, *others])
    inside = most = 0
    for line in yard.ledger():
        inside += {"in": 1, "out": -1}.get(line.word, 0)
        most = max(most, inside)
    assert most <= 3
    assert most > 1


def test_a_burst_ends_when_nothing_is_left_although_workers_are_replaced_and_die(yard: Yard) -> None:
    parents = [yard.jobs.have_more.enqueue(20) for _ in range(5)]
    poison = yard.jobs.leave_once.enqueue(0)
    cluster = yard.start("-p", "1", "-t", "4", "--burst", "--max-runs", "30")
    assert cluster.wait(60) == 0
    assert [run.fetch().status for run in parents] == [Status.SUCCEEDED] * 5
    assert len({line.run_id for line in yard.ledger("ok")}) == 100
    assert yard.app.count(status="succeeded") == 106
    assert (poison.fetch().result, poison.fetch().crashes) == ("stayed", 1)
    yard.assert_nothing_stays()
