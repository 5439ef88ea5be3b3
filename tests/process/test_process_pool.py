import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import Result, Run
from mainspring.errors import RunTimeout, WorkerDied
from mainspring.executors.current_run import RunNotes
from mainspring.executors.pool import ProcessPoolExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout, wait_for_file, wait_until

ROOT = Path(__file__).parents[2]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


def children() -> set[int]:
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}


class TestContract(ExecutorContract):
    many = 400
    in_this_process = False

    @pytest.fixture
    def start(self) -> Iterator[Start]:
        pool = ProcessPoolExecutor(2)

        def start() -> ProcessPoolExecutor:
            pool.start(None, "processes")
            return pool

        yield start
        pool.shutdown()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def pool() -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(2)
    pool.start(None, "processes")
    yield pool
    pool.shutdown()


def one_child(**options: Any) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(1, options)
    pool.start(None, "processes")
    return pool


class Listening(Reports):
    """Receives what runs say of themselves, too."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, RunNotes] = {}

    def notes_of(self, run: Run) -> RunNotes:
        return self.notes.setdefault(run.id, RunNotes(run))

    def notes_changed(self, notes: RunNotes) -> None: ...


class TestPipe:
    def test_what_a_run_says_while_its_large_result_is_sent_does_not_mix_with_it(self) -> None:
        reports, pool = Listening(), one_child()
        pool.submit([make_run(tasks.talk_while_returning, 3_000_000) for _ in range(5)], reports)
        ended = reports.wait(5)
        assert [(report.result, report.error) for report in ended] == [(Result.RETURNED, None)] * 5
        assert {len(report.value) for report in ended} == {3_000_000}
        pool.shutdown(wait=False)

    def test_what_a_run_says_after_its_end_is_not_taken_for_what_the_next_one_says(self) -> None:
        reports, pool = Listening(), one_child()
        before, after = make_run(tasks.talk_while_returning, 1), make_run(tasks.open_sockets)
        pool.submit([before, after], reports)
        assert [report.run.id for report in reports.wait(2)] == [before.id, after.id]
        assert after.id not in reports.notes
        pool.shutdown(wait=False)

    @pytest.mark.parametrize("how", ["return", "raise", "exit"])
    def test_runs_after_one_that_forked_receive_their_own_results(self, how: str) -> None:
        reports, pool = Listening(), one_child()
        for number in range(10):
            pool.submit([make_run(tasks.fork_and, how, False), make_run(tasks.add, number)], reports)
        assert [report.value for report in reports.wait(20)] == [value for number in range(10) for value in (0, number)]
        pool.shutdown()

    def test_a_forked_process_says_nothing_for_its_run(self) -> None:
        reports, pool = Listening(), one_child()
        run = make_run(tasks.fork_and_talk)
        pool.submit([run], reports)
        assert reports.wait()[0].result is Result.RETURNED
        assert reports.notes[run.id].progress["done"] == 1
        pool.shutdown()

    def test_a_task_that_writes_into_the_pipe_loses_its_process_and_no_other_run(self) -> None:
        reports, pool = Listening(), one_child()
        pool.submit([make_run(tasks.write_into_sockets), make_run(tasks.add, 1)], reports)
        broken, good = reports.wait(2)
        assert isinstance(broken.exception, WorkerDied)
        assert good.value == 1
        pool.shutdown()


class TestDeath:
    def test_a_killed_child_fails_its_run_and_is_replaced(
        self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        neighbour = make_run(tasks.wait_for_file, str(tmp_path / "go"), str(tmp_path / "begun"))
        victim = make_run(tasks.tell_pid_and_wait, str(tmp_path / "pid"))
        pool.submit([neighbour, victim], reports)
        wait_for_file(tmp_path / "begun")
        pid = int(wait_for_file(tmp_path / "pid"))
        os.kill(pid, signal.SIGKILL)
        (report,) = reports.wait()
        assert (report.run, report.result) == (victim, Result.RAISED)
        assert isinstance(report.exception, WorkerDied)
        assert (report.exception.pid, report.exception.exitcode) == (pid, -signal.SIGKILL)
        assert report.error is not None
        assert "signal 9" in report.error.message
        pool.submit([make_run(tasks.pid)], reports)
        assert reports.wait(2)[1].value not in (pid, os.getpid())
        (tmp_path / "go").touch()
        assert reports.wait(3)[2].value == "seen"

    def test_a_task_that_leaves_the_process_fails(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(tasks.leave, 23)], reports)
        (report,) = reports.wait()
        assert isinstance(report.exception, WorkerDied)
        assert report.exception.exitcode == 23
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1

    def test_a_child_killed_while_idle_harms_no_run(self, reports: Reports) -> None:
        pool = one_child()
        pool.submit([make_run(tasks.pid)], reports)
        pid = reports.wait()[0].value
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        pool.submit([make_run(tasks.pid)], reports)
        second = reports.wait(2)[1]
        assert second.result is Result.RETURNED
        assert second.value != pid
        pool.shutdown()

    def test_death_is_seen_even_if_a_grandchild_holds_the_pipe(
        self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        pool.submit([make_run(tasks.fork_and_die, str(tmp_path / "pid"))], reports)
        (report,) = reports.wait()
        assert isinstance(report.exception, WorkerDied)
        assert report.exception.exitcode == 9
        grandchild = int((tmp_path / "pid").read_text())
        wait_until(lambda: not is_alive(grandchild))

    def test_many_deaths_lose_no_run(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        runs = [make_run(tasks.leave, 1) if n % 5 == 4 else make_run(tasks.add, n) for n in range(30)]
        pool.submit(runs, reports)
        by_id = {report.run.id: report for report in reports.wait(30)}
        for n, run in enumerate(runs):
            if n % 5 == 4:
                assert isinstance(by_id[run.id].exception, WorkerDied)
            else:
                assert by_id[run.id].value == n


class TestTimeOut:
    @pytest.mark.parametrize("retries", [0, 3])
    def test_the_child_is_killed(self, pool: ProcessPoolExecutor, reports: Reports, retries: int) -> None:
        pool.submit([make_run(tasks.sleep_in_c, 600, policy=timeout(0.1, retries))], reports)
        (report,) = reports.wait()
        assert isinstance(report.exception, RunTimeout)
        assert report.exception.seconds == 0.1
        assert pool.stuck == 0
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1

    def test_what_the_task_has_started_is_killed_too(
        self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        run = make_run(tasks.start_a_grandchild_and_wait, str(tmp_path / "pid"))
        pool.submit([run], reports)
        grandchild = int(wait_for_file(tmp_path / "pid"))
        assert is_alive(grandchild)
        assert pool.cancel(run.id)
        assert reports.wait()[0].result is Result.CANCELLED
        wait_until(lambda: not is_alive(grandchild))

    def test_a_run_can_be_cancelled(self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path) -> None:
        run = make_run(tasks.sleep_in_c, 600, str(tmp_path / "begun"), policy=Policy(retries=5))
        pool.submit([run], reports)
        wait_for_file(tmp_path / "begun")
        assert pool.cancel(run.id)
        assert reports.wait()[0].result is Result.CANCELLED

    def test_a_run_that_waits_is_cancelled_before_it_starts(
        self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        busy = [make_run(tasks.wait_for_file, str(tmp_path / "go"), str(tmp_path / f"begun{n}")) for n in range(2)]
        pool.submit(busy, reports)
        for n in range(2):
            wait_for_file(tmp_path / f"begun{n}")
        waiting = [make_run(tasks.nothing) for _ in range(3)]
        pool.submit(waiting, reports)
        assert pool.cancel(waiting[1].id)
        assert [(report.run, report.result) for report in reports.all] == [(waiting[1], Result.CANCELLED)]
        assert pool.withdraw() == [waiting[0], waiting[2]]
        (tmp_path / "go").touch()
        reports.wait(3)


class TestCrossing:
    @pytest.mark.parametrize(
        ("func", "args", "what"),
        [
            (lambda: None, (), "the function .*<lambda>"),
            (tasks.take, (1, threading.Lock()), r"positional argument 2 \(of type lock\)"),
            (tasks.take, (lambda: None,), "positional argument 1"),
        ],
    )
    def test_what_cannot_be_sent_is_named(
        self, pool: ProcessPoolExecutor, reports: Reports, func: Any, args: tuple[Any, ...], what: str
    ) -> None:
        pool.submit([make_run(func, *args), make_run(tasks.add, 1)], reports)
        reports.wait(2)
        failed, fine = sorted(reports.all, key=lambda report: report.result is Result.RETURNED)
        assert fine.value == 1
        with pytest.raises(pickle.PicklingError, match=f"{what} cannot be sent to a child process"):
            raise failed.exception or AssertionError

    def test_a_keyword_that_cannot_be_sent_is_named(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(tasks.take, kwargs={"value": threading.Lock()})], reports)
        assert "argument 'value' (of type lock) cannot be sent" in str(reports.wait()[0].exception)

    def test_a_result_that_cannot_be_sent_fails_the_run(self, reports: Reports) -> None:
        pool = one_child()
        pool.submit([make_run(tasks.pid), make_run(tasks.unpicklable_result), make_run(tasks.pid)], reports)
        before, failed, after = reports.wait(3)
        assert isinstance(failed.exception, pickle.PicklingError)
        assert "the result (of type lock) cannot be sent back" in str(failed.exception)
        assert before.value == after.value
        pool.shutdown()

    def test_arguments_and_results_that_cannot_be_restored_fail_the_run(self, reports: Reports) -> None:
        pool = one_child()
        pool.submit([make_run(tasks.take, tasks.Unloadable()), make_run(tasks.give_unloadable)], reports)
        reports.wait(2)
        pool.submit([make_run(tasks.add, 1)], reports)
        there, back, after = reports.wait(3)
        assert "cannot be restored" in str(there.exception)
        assert "cannot be restored" in str(back.exception)
        assert back.error is not None
        assert after.value == 1
        pool.shutdown()

    @pytest.mark.parametrize(
        ("name", "text", "attribute"),
        [("formatting", "code 7", ("code", 7)), ("demanding", "this and that", ("two", "that"))],
    )
    def test_exceptions_that_pickle_badly_cross_whole(
        self, pool: ProcessPoolExecutor, reports: Reports, name: str, text: str, attribute: tuple[str, Any]
    ) -> None:
        pool.submit([make_run(tasks.raise_named, name)], reports)
        exception = reports.wait()[0].exception
        assert type(exception).__name__ == name.title()
        assert str(exception) == text
        assert getattr(exception, attribute[0]) == attribute[1]

    def test_an_exception_nobody_can_import_crosses_as_text(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(tasks.raise_local)], reports)
        (report,) = reports.wait()
        assert type(report.exception) is RuntimeError
        assert "Local: nobody can import me" in str(report.exception)
        assert report.error is not None
        assert report.error.type.endswith("Local")

    def test_the_childs_traceback_comes_with_the_exception(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(tasks.fail)], reports)
        (report,) = reports.wait()
        assert report.exception is not None
        assert "in fail" in report.exception.__notes__[0]

    def test_megabytes_cross_both_ways(self, pool: ProcessPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(bytes.upper, b"x" * 8_000_000)], reports)
        assert reports.wait()[0].value == b"X" * 8_000_000


class TestOptions:
    def test_an_initializer_runs_in_each_child(self, reports: Reports) -> None:
        pool = one_child(initializer=tasks.initialize, initargs=("here",))
        pool.submit([make_run(tasks.initialized)], reports)
        assert reports.wait()[0].value == ["here"]
        pool.shutdown()

    def test_an_initializer_that_raises_fails_the_run(self, reports: Reports, caplog: pytest.LogCaptureFixture) -> None:
        pool = one_child(initializer=tasks.refuse)
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([make_run(tasks.add, 1)], reports)
            (report,) = reports.wait()
            assert isinstance(report.exception, RuntimeError)
            assert "the initializer refuses" in str(report.exception)
            pool.shutdown()

    def test_a_child_that_dies_while_starting_fails_the_run(
        self, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = one_child(initializer=os._exit, initargs=(5,))
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([make_run(tasks.add, 1)], reports)
            (report,) = reports.wait()
            assert isinstance(report.exception, WorkerDied)
            assert report.exception.exitcode == 5
            assert "while it was starting" in report.exception.__notes__[0]
            pool.shutdown()

    def test_a_child_is_replaced_after_so_many_runs(self, reports: Reports) -> None:
        pool = one_child(max_tasks_per_child=2)
        pool.submit([make_run(tasks.pid) for _ in range(4)], reports)
        one, two, three, four = [report.value for report in reports.wait(4)]
        assert one == two != three == four
        pool.shutdown()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_holds_no_pipe_of_another(self, reports: Reports) -> None:
        pool = ProcessPoolExecutor(3, {"mp_context": "fork"})
        pool.start(None, "processes")
        pool.submit([make_run(tasks.open_sockets) for _ in range(60)], reports)
        held = [report.value for report in reports.wait(60)]
        keepers = pool._keepers
        assert keepers is not None
        ours = {os.fstat(keeper.child.pipe.fileno()).st_ino for keeper in keepers.members if keeper.child is not None}
        assert len(ours) >= 1
        assert all(not ours & set(inodes) for inodes in held)
        pool.shutdown()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    @pytest.mark.parametrize("method", ["fork", "forkserver"])
    def test_other_start_methods_work(self, reports: Reports, tmp_path: Path, method: str) -> None:
        pool = ProcessPoolExecutor(2, {"mp_context": multiprocessing.get_context(method)})
        pool.start(None, "processes")
        pool.submit([make_run(tasks.add, n) for n in range(20)], reports)
        assert sorted(report.value for report in reports.wait(20)) == list(range(20))
        pool.submit([make_run(tasks.leave, 1), make_run(tasks.add, 1)], reports)
        assert {type(report.exception) for report in reports.wait(22)[20:]} == {WorkerDied, type(None)}
        pool.submit([make_run(tasks.sleep_forever, str(tmp_path / "begun"))], reports)
        wait_for_file(tmp_path / "begun")
        pool.shutdown(wait=False)
        assert isinstance(reports.wait(23)[22].exception, WorkerDied)

    def test_an_unknown_option_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"no option 'mp_contxt'.*did you mean 'mp_context'"):
            ProcessPoolExecutor(pool_kwargs={"mp_contxt": None})

    def test_interrupts_are_left_to_the_parent(self, reports: Reports, tmp_path: Path) -> None:
        pool = one_child()
        pool.submit([make_run(tasks.pid)], reports)
        pid = reports.wait()[0].value
        pool.submit([make_run(tasks.wait_for_file, str(tmp_path / "go"), str(tmp_path / "begun"))], reports)
        wait_for_file(tmp_path / "begun")
        os.kill(pid, signal.SIGINT)
        (tmp_path / "go").touch()
        assert reports.wait(2)[1].value == "seen"
        pool.shutdown()


class TestLeaving:
    def test_no_child_and_no_thread_is_left_after_shutdown(self, reports: Reports) -> None:
        threads, processes = set(threading.enumerate()), children()
        pool = ProcessPoolExecutor(2)
        pool.start(None, "processes")
        pool.submit([make_run(tasks.pid) for _ in range(10)], reports)
        pids = {report.value for report in reports.wait(10)}
        pool.shutdown()
        assert set(threading.enumerate()) <= threads
        assert children() <= processes
        assert not any(is_alive(pid) for pid in pids)

    def test_without_waiting_children_are_killed_and_their_runs_fail(
        self, pool: ProcessPoolExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        runs = [make_run(tasks.tell_pid_and_wait, str(tmp_path / f"pid{n}")) for n in range(2)]
        pool.submit(runs, reports)
        pids = [int(wait_for_file(tmp_path / f"pid{n}")) for n in range(2)]
        waiting = make_run(tasks.nothing)
        pool.submit([waiting], reports)
        pool.shutdown(wait=False)
        by_id = {report.run.id: report for report in reports.wait(3)}
        assert by_id[waiting.id].result is Result.UNSTARTED
        assert all(isinstance(by_id[run.id].exception, WorkerDied) for run in runs)
        wait_until(lambda: not any(map(is_alive, pids)))

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    @pytest.mark.parametrize("end", ["exit", "SIGKILL", "SIGTERM"])
    def test_children_end_with_their_parent(self, tmp_path: Path, end: str, method: str) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        arguments = [sys.executable, str(program), str(tmp_path), end, method]
        parent = subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        try:
            pids = [int(wait_for_file(tmp_path / f"pid{n}")) for n in range(3)]
            assert all(is_alive(pid) for pid in pids)
            if end == "exit":
                (tmp_path / "go").touch()
                assert parent.wait(60) == 0
            else:
                parent.send_signal(getattr(signal, end))
                parent.wait(60)
        finally:
            parent.kill()
            parent.wait()
        wait_until(lambda: not any(map(is_alive, pids)))


PROGRAM = """
import multiprocessing, sys
from mainspring.executors.pool import ProcessPoolExecutor
from mainspring.core.run import Call, Run
from tests.executors import tasks

if __name__ == "__main__":
    folder, end, method = sys.argv[1:]
    pool = ProcessPoolExecutor(3, {"mp_context": multiprocessing.get_context(method)})
    pool.start(None, "processes")
    calls = [Call(tasks.tell_pid_and_wait, (f"{folder}/pid{n}",)) for n in range(3)]
    pool.submit([Run(id=str(n), call=call) for n, call in enumerate(calls)], lambda report: None)
    tasks.wait_for_file(f"{folder}/go")
"""
