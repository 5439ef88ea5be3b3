"""A cluster is told to stop, once or twice, or its time is up: nothing is lost, and nobody is charged for it."""

from __future__ import annotations

import os
import re
import signal

import pytest

from mainspring.core.run import Status
from tests.cluster.kit import Yard, stop, wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_a_first_signal_what_runs_ends_and_what_has_not_started_is_given_back(yard: Yard, number: int) -> None:
    running = [yard.jobs.at_gate.enqueue("gate"), yard.jobs.at_gate_async.enqueue("gate")]
    running.append(yard.jobs.at_gate_apart.enqueue("gate"))
    cluster = yard.start("-p", "1", "-t", "1")
    for run in running:
        yard.await_line("began", run)
    waiting = [yard.jobs.at_gate.enqueue("gate") for _ in range(20)]
    cluster.send_signal(number)
    yard.await_log("stopping")
    wait_until(lambda: {node.state for node in yard.jobs.app.nodes()} == {"draining"})
    wait_until(lambda: {run.fetch().status for run in waiting} == {Status.PENDING})
    assert cluster.poll() is None
    yard.open("gate")
    assert cluster.wait(60) == 0
    assert [run.fetch().status for run in running] == [Status.SUCCEEDED] * 3
    left = [run.fetch() for run in waiting]
    assert {run.status for run in left} == {Status.PENDING}
    assert {(run.attempt, run.failures, run.crashes, run.interruptions) for run in left} == {(0, 0, 0, 0)}
    assert not [line for run in waiting for line in yard.ledger(run=run)]


def test_ctrl_c_while_the_workers_start_is_no_crash_of_theirs(yard: Yard) -> None:
    cluster = yard.start("-p", "2")
    yard.await_log("worker 1 started as process")
    children = [int(pid) for pid in re.findall(r"started as process (\d+)", yard.log())]
    assert len(children) == 2
    for pid in (*children, cluster.pid):  # a terminal sends it to the whole group
        os.kill(pid, signal.SIGINT)
    assert cluster.wait(60) == 0
    assert "Traceback" not in yard.log()
    assert "ERROR" not in yard.log()


def test_at_a_second_signal_what_runs_is_given_back_at_once(yard: Yard) -> None:
    runs = [yard.jobs.at_gate.enqueue("gate"), yard.jobs.at_gate_apart.enqueue("gate")]
    cluster = yard.start("-p", "1")
    for run in runs:
        yard.await_line("began", run)
    cluster.send_signal(signal.SIGTERM)
    yard.await_log("stopping")
    assert stop(cluster) == 1
    yard.assert_nothing_stays()
    for run in runs:
        found = run.fetch()
        assert (found.status, found.attempt, found.interruptions) == (Status.PENDING, 1, 1)
        assert (found.failures, found.crashes, found.errors) == (0, 0, ())
    yard.open("gate")
    yard.start("-p", "1", "--burst")
    assert {run.attempt for run in yard.end(runs)} == {2}


def test_what_still_runs_at_the_deadline_is_interrupted_and_not_failed(yard: Yard) -> None:
    run, once = yard.jobs.at_gate.enqueue("gate"), yard.jobs.at_gate_once.enqueue("gate")
    cluster = yard.start("-p", "1", "--grace", "0.3")
    yard.await_line("began", run)
    yard.await_line("began", once)
    assert stop(cluster) == 0
    assert "giving back the runs that did not end within 0.3 s" in yard.log()
    # The kill was on purpose. Only the run that may not start again has failed for good.
    assert [line for line in yard.log().splitlines() if "ERROR" in line and once.id not in line] == []
    found = run.fetch()
    assert (found.status, found.interruptions, found.failures, found.errors) == (Status.PENDING, 1, 0, ())
    lost = once.fetch()
    assert (lost.status, lost.reason) == (Status.FAILED, "lost")


def test_a_worker_that_is_told_to_end_by_itself_drains_and_is_replaced(yard: Yard) -> None:
    run = yard.jobs.at_gate.enqueue("gate")
    yard.start("-p", "1")
    (line,) = yard.await_line("began", run)
    os.kill(line.pid, signal.SIGTERM)
    yard.open("gate")
    (ended,) = yard.end([run])
    assert (ended.status, ended.attempt) == (Status.SUCCEEDED, 1)
    assert len(set(yard.spawned(2))) == 2


def test_a_killed_worker_is_no_longer_listed_once_its_sentinel_has_seen_it(yard: Yard) -> None:
    run = yard.jobs.at_gate.enqueue("gate")
    yard.start("-p", "1")
    (line,) = yard.await_line("began", run)
    wait_until(lambda: line.pid in {node.pid for node in yard.jobs.app.nodes()})
    os.kill(line.pid, signal.SIGKILL)
    yard.spawned(2)
    listed = {node.pid for node in yard.jobs.app.nodes()}
    assert line.pid not in listed
    yard.open("gate")


def test_a_cluster_that_is_stopped_before_its_workers_have_started_ends(yard: Yard) -> None:
    cluster = yard.start("-p", "2")
    yard.await_log("worker 1 started")
    assert stop(cluster) == 0


@pytest.mark.parametrize("how", ["with", "stop", "close", "drain", "thread", "async"])
def test_a_task_cannot_end_the_part_of_its_worker(yard: Yard, how: str) -> None:
    jobs = yard.jobs
    yard.start("-p", "1", "-t", "2")
    run = jobs.close_app_async.enqueue() if how == "async" else jobs.close_app.enqueue(how)
    (ended,) = yard.end([run])
    assert ended.status is Status.SUCCEEDED
    later = [jobs.ok.enqueue(number) for number in range(5)]
    assert {each.status for each in yard.end(later)} == {Status.SUCCEEDED}
    assert {line.pid for line in yard.ledger("ok")} == set(yard.spawned())
    if how != "with":
        yard.await_log("in a worker process, which goes on: its sentinel decides when it stops")


def test_children_that_a_task_forks_can_be_terminated(yard: Yard) -> None:
    yard.start("-p", "1", "-t", "2")
    (ended,) = yard.end([yard.jobs.terminate_children.enqueue(10)])
    assert ended.result == [-signal.SIGTERM] * 10
