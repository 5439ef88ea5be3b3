"""Processes of a cluster die in the middle of the work: who is charged, what is given back, what else ends."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.core.run import Status
from tests.cluster.kit import PATIENCE, Yard, wait_until


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def parent_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def test_what_a_killed_worker_executed_is_charged_and_runs_alone_next(yard: Yard) -> None:
    started = [yard.jobs.at_gate.enqueue("gate"), yard.jobs.at_gate_async.enqueue("gate")]
    yard.start("-p", "1", "-t", "2")
    workers = {yard.await_line("began", run)[0].pid for run in started}
    (worker,) = workers
    os.kill(worker, signal.SIGKILL)
    for run in started:
        yard.await_line("began", run, count=2)
    yard.open("gate")
    for run in yard.end(started):
        assert (run.status, run.attempt, run.crashes) == (Status.SUCCEEDED, 2, 1)
        assert (run.failures, run.interruptions) == (0, 0)
        assert run.error is not None
        assert "by signal 9" in run.error.message
    pids = [yard.ledger("began", run)[1].pid for run in started]
    assert len({*pids, worker, *yard.spawned()}) == 4


@pytest.mark.parametrize("task", ["closure", "bound", "nameless"])
def test_a_task_that_no_import_finds_runs_alone_after_a_crash_by_its_name(yard: Yard, task: str) -> None:
    run = getattr(yard.jobs, task).enqueue()
    yard.start("-p", "1")
    (line,) = yard.await_line("began", run)
    os.kill(line.pid, signal.SIGKILL)
    _, again = yard.await_line("began", run, count=2)
    yard.open("gate")
    (ended,) = yard.end([run])
    assert (ended.status, ended.result, ended.crashes) == (Status.SUCCEEDED, "gate", 1), ended.error
    assert again.pid not in yard.spawned(2)


def test_a_task_that_no_import_finds_can_have_a_process_of_its_own(yard: Yard) -> None:
    yard.open("gate")
    yard.start("-p", "1")
    (ended,) = yard.end([yard.jobs.closure_apart.enqueue()])
    assert (ended.status, ended.result) == (Status.SUCCEEDED, "gate"), ended.error


def test_a_run_whose_id_is_too_long_for_the_board_is_charged_with_its_crash(yard: Yard) -> None:
    longest = "\N{SNAKE}" * 255
    run = yard.jobs.leave_once.options(id=longest, shard=longest).enqueue(3)
    assert len(run.id.encode()) > 2000
    yard.start("-p", "1")
    (ended,) = yard.end([run])
    assert (ended.status, ended.result, ended.attempt, ended.crashes) == (Status.SUCCEEDED, "stayed", 2, 1)


@pytest.mark.parametrize("how", ["return", "raise", "exit"])
def test_a_process_that_a_task_forks_executes_nothing_that_its_worker_has_claimed(yard: Yard, how: str) -> None:
    task, forking = yard.jobs.once, yard.jobs.fork_and_forget.call(how)
    runs = yard.app.enqueue_many([*(task.call() for _ in range(30)), forking] * 5)
    yard.start("-p", "1", "-t", "1")
    assert {run.status for run in yard.end(runs)} == {Status.SUCCEEDED}
    assert set(Counter(line.run_id for line in yard.ledger("once")).values()) == {1}
    assert {line.pid for line in yard.ledger("once")} == set(yard.spawned())


HOLD_COLLECTOR = """
from jobs import app, note, pass_gate

@app.middleware
def hold_collector(run, call_next):
    if run.record.name == "collect" and run.record.crashes == 0:
        note("collects")
        pass_gate("never")
    return call_next()
"""


def test_a_gather_survives_the_death_of_the_worker_that_collects_it(yard: Yard) -> None:
    (yard.folder / "held.py").write_text(HOLD_COLLECTOR)
    yard.start("-p", "1", app="held:app")
    gathered = yard.app.gather([yard.jobs.ok.call(number) for number in range(3)])
    (line,) = yard.await_line("collects")
    os.kill(line.pid, signal.SIGKILL)
    assert gathered.result(timeout=PATIENCE) == [0, 1, 2]
    assert gathered.fetch().crashes == 1


def test_of_many_runs_that_die_together_none_is_charged_the_first_time(yard: Yard) -> None:
    crowd = [yard.jobs.at_gate_async.enqueue("gate") for _ in range(30)]
    yard.start("-p", "1")
    worker = yard.await_line("began", count=30)[0].pid
    os.kill(worker, signal.SIGKILL)
    lines = yard.await_line("began", count=60)
    assert len({line.pid for line in lines}) == 2
    yard.open("gate")
    ended = yard.end(crowd)
    assert {(run.status, run.attempt, run.interruptions, run.crashes) for run in ended} == {(Status.SUCCEEDED, 2, 1, 0)}


def test_what_a_killed_worker_had_claimed_or_ended_or_had_apart_is_not_charged(yard: Yard) -> None:
    apart = yard.jobs.at_gate_apart.enqueue("gate")
    cluster = yard.start("-p", "1", "-t", "1")
    yard.await_line("began", apart)
    (worker,) = yard.spawned()
    run = yard.jobs.at_gate.enqueue("gate")
    yard.await_line("began", run)
    waiting = [yard.jobs.at_gate.enqueue("gate") for _ in range(5)]
    os.kill(worker, signal.SIGKILL)
    yard.await_line("began", apart, count=2)
    yard.open("gate")
    ended = yard.end([apart, run, *waiting])
    assert {run.status for run in ended} == {Status.SUCCEEDED}
    assert [(run.attempt, run.interruptions, run.crashes) for run in ended] == [(2, 1, 0), (2, 0, 1)] + [(1, 0, 0)] * 5
    assert is_gone(yard.ledger("began", apart)[0].pid)
    assert cluster.poll() is None


@pytest.mark.parametrize("task", ["leave", "leave_in_order", "crash"])
def test_a_run_that_ends_its_interpreter_each_time_is_set_aside_and_its_neighbours_succeed(
    yard: Yard, task: str
) -> None:
    poison = yard.jobs.crash.enqueue() if task == "crash" else yard.jobs.leave.enqueue(task == "leave")
    good = [yard.jobs.ok.enqueue(number) for number in range(20)]
    yard.start("-p", "1", "-t", "2")
    assert [run.status for run in yard.end(good)] == [Status.SUCCEEDED] * 20
    (ended,) = yard.end([poison])
    assert (ended.status, ended.crashes, ended.failures) == (Status.BROKEN, 4, 0)
    assert "4 times" in str(ended.reason)
    assert len(yard.ledger(run=poison)) == 4
    assert {run.failures for run in (handle.fetch() for handle in good)} == {0}
    assert [found.id for found in yard.app.broken()] == [poison.id]


def test_a_run_whose_code_ends_whoever_imports_it_is_set_aside_and_takes_one_worker_with_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = yard.folder / "poison_of_this_test.py"
    module.write_text("def f(): ...\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(yard.folder)
        poison = yard.app.enqueue("poison_of_this_test:f")
    module.write_text("import os\nos._exit(3)\n")
    good = [yard.jobs.ok.enqueue(number) for number in range(20)]
    yard.start("-p", "1", "-t", "2")
    (ended,) = yard.end([poison])
    assert (ended.status, ended.crashes, ended.failures) == (Status.BROKEN, 4, 0)
    assert {run.status for run in yard.end(good)} == {Status.SUCCEEDED}
    assert len(yard.spawned(2)) == 2


def test_what_may_start_only_once_is_not_started_again_after_a_crash(yard: Yard) -> None:
    run = yard.jobs.at_gate_once.enqueue("gate")
    yard.start("-p", "1")
    (line,) = yard.await_line("began", run)
    os.kill(line.pid, signal.SIGKILL)
    (ended,) = yard.end([run])
    assert (ended.status, ended.reason, ended.unverified) == (Status.FAILED, "lost", None)
    assert len(yard.ledger("began", run)) == 1


def test_what_had_ended_when_its_worker_was_killed_before_the_store_knew_is_no_crash(
    make_yard: Callable[..., Yard],
) -> None:
    yard = make_yard()
    once, again = yard.jobs.at_gate_once.enqueue("gate"), yard.jobs.at_gate.enqueue("gate")
    yard.start("-p", "1", "-t", "2")
    yard.await_line("began", once)
    yard.await_line("began", again)
    (worker,) = yard.spawned()
    with yard.store_locked():
        yard.open("gate")
        yard.await_line("ended", once)
        yard.await_line("ended", again)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: is_gone(worker))
    lost, repeated = yard.end([once, again])
    assert (lost.status, lost.reason, lost.crashes) == (Status.FAILED, "lost", 0)
    assert (repeated.status, repeated.interruptions, repeated.crashes) == (Status.SUCCEEDED, 1, 0)
    assert len(yard.ledger("began", once)) == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_with_the_sentinel_everything_dies_and_another_cluster_takes_over(
    make_yard: Callable[..., Yard], method: str
) -> None:
    yard = make_yard(lease=2)
    runs = [yard.jobs.at_gate.enqueue("gate"), yard.jobs.at_gate_apart.enqueue("gate")]
    holder = yard.jobs.hold_interpreter.options(queue="side").enqueue(600)
    cluster = yard.start("-p", "1", "-Q", "default", "--start-method", method)
    other = yard.start("-p", "1", "-Q", "side", "--start-method", method)
    for run in runs:
        yard.await_line("began", run)
    yard.await_line("holds", holder)
    cluster.kill()
    other.kill()
    cluster.wait()
    other.wait()
    yard.assert_nothing_stays()
    holder.cancel()
    yard.open("gate")
    yard.start("-p", "1", "--no-schedule", "-Q", "default")
    for found in yard.end(runs):
        assert (found.status, found.interruptions, found.crashes) == (Status.SUCCEEDED, 1, 0)


def test_programs_that_a_killed_worker_had_started_are_ended(yard: Yard) -> None:
    run = yard.jobs.start_program.enqueue("gate")
    cluster = yard.start("-p", "1")
    line = wait_until(lambda: next((line for line in yard.ledger(run=run) if line.word.startswith("program")), None))
    assert line is not None
    program = int(line.word.partition(":")[2])
    assert not is_gone(program)
    os.kill(line.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(program))
    assert cluster.poll() is None
    yard.open("gate")
    (ended,) = yard.end([run])
    assert (ended.status, ended.crashes) == (Status.SUCCEEDED, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets the sentinel adopt them")
def test_programs_that_a_task_left_behind_are_reaped_when_they_end(yard: Yard) -> None:
    cluster = yard.start("-p", "1")
    run = yard.jobs.leave_program.enqueue("gate")
    line = wait_until(lambda: next((line for line in yard.ledger(run=run) if line.word.startswith("program")), None))
    assert line is not None
    program = Path("/proc", line.word.partition(":")[2])
    wait_until(lambda: parent_of(program) == cluster.pid)
    yard.open("gate")
    wait_until(lambda: not program.exists())
    assert "left behind" not in yard.log()


def test_a_worker_that_cannot_start_is_tried_again_ever_more_slowly(yard: Yard) -> None:
    path = yard.folder / "jobs.py"
    whole = path.read_text()
    path.write_text(whole + "\nimport sys\nif 'spawn_main' in ' '.join(sys.orig_argv): os._exit(3)\n")
    cluster = yard.start("-p", "1")
    yard.await_log("died right after its start; the next try is in 2 s")
    assert yard.log().count("started as process") == 3
    assert cluster.poll() is None
    run = yard.jobs.ok.enqueue(1)
    path.write_text(whole)
    assert yard.end([run])[0].status is Status.SUCCEEDED


def test_what_a_worker_had_claimed_when_it_died_before_it_could_tell_is_given_back_at_once(yard: Yard) -> None:
    path = yard.folder / "jobs.py"
    path.write_text(path.read_text() + DIE_AFTER_CLAIM)
    runs = [yard.jobs.ok.enqueue(number) for number in range(3)]
    yard.start("-p", "1")
    yard.await_log("by signal 9")
    for run in yard.end(runs, patience=10):  # and not after the lease of 15 s
        assert (run.status, run.attempt, run.interruptions, run.crashes) == (Status.SUCCEEDED, 1, 0, 0)


def test_a_run_that_was_to_be_cancelled_when_its_worker_died_is_cancelled(yard: Yard) -> None:
    run = yard.jobs.swallow_cancellation.enqueue()
    yard.start("-p", "1")
    (line,) = yard.await_line("hangs", run)
    assert run.cancel()
    os.kill(line.pid, signal.SIGKILL)
    (ended,) = yard.end([run])
    assert (ended.status, ended.crashes) == (Status.CANCELLED, 0)
    assert len(yard.ledger("hangs", run)) == 1


NEVER_SAYS_THAT_IT_IS_READY = """
from mainspring.cluster import messages
send = messages.Channel.send
messages.Channel.send = lambda self, word, *what: None if word == messages.READY else send(self, word, *what)
"""


@pytest.mark.parametrize("change", ["", NEVER_SAYS_THAT_IT_IS_READY], ids=["ready", "not-yet-ready"])
def test_a_worker_that_holds_its_interpreter_and_the_lock_of_the_database_is_killed(yard: Yard, change: str) -> None:
    path = yard.folder / "jobs.py"
    path.write_text(path.read_text() + change)
    held = yard.jobs.hold_interpreter_and_database.enqueue()
    cluster = yard.start("-p", "1")
    yard.await_line("holds", held)
    (ended,) = yard.end([held])
    assert "it does not answer, and the store is locked" in yard.log()
    assert (ended.status, ended.interruptions, ended.crashes, ended.errors) == (Status.SUCCEEDED, 1, 0, ())
    assert cluster.poll() is None


DIE_AFTER_CLAIM = """
import signal
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
claim = SQLAlchemyJobStore.claim
def claim_and_die(self, *args, **kwargs):
    claimed = claim(self, *args, **kwargs)
    if claimed.runs and not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return claimed
SQLAlchemyJobStore.claim = claim_and_die
"""
