import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import Result, Run, Status
from mainspring.core.transitions import conclude
from mainspring.errors import RunTimeout
from mainspring.events import EVENT_RUN_STUCK
from mainspring.executors.pool import ThreadPoolExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout, wait_for_file, wait_until


class TestContract(ExecutorContract):
    many = 20_000

    @pytest.fixture
    def start(self) -> Iterator[Start]:
        pool = ThreadPoolExecutor(4)

        def start() -> ThreadPoolExecutor:
            pool.start(None, "threads")
            return pool

        yield start
        pool.shutdown()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(2, timeout_grace=0.05)
    pool.start(None, "threads")
    yield pool
    pool.shutdown()


class Gate:
    """A task that waits until it is let go, and tells that it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self) -> str:
        self.begun.release()
        assert self.open.wait(60)
        return "through"

    def occupy(self, pool: ThreadPoolExecutor, reports: Reports, count: int) -> list[Run]:
        runs = [make_run(self) for _ in range(count)]
        pool.submit(runs, reports)
        for _ in range(count):
            assert self.begun.acquire(timeout=60)
        return runs


class TestThreads:
    def test_as_many_runs_as_workers_are_executed_at_once(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        gate = Gate()
        gate.occupy(pool, reports, 2)
        pool.submit([make_run(gate)], reports)
        assert not gate.begun.acquire(blocking=False)
        gate.open.set()
        assert [report.value for report in reports.wait(3)] == ["through"] * 3

    def test_threads_are_daemons_started_as_needed_and_named(self, reports: Reports) -> None:
        pool = ThreadPoolExecutor(5, {"thread_name_prefix": "mine"})
        pool.start(None, "threads")
        before = set(threading.enumerate())
        pool.submit([make_run(threading.current_thread)], reports)
        thread = reports.wait()[0].value
        assert thread.daemon
        assert thread.name == "mine_0"
        assert set(threading.enumerate()) - before == {thread}
        pool.shutdown()

    def test_no_thread_is_left_after_shutdown(self, reports: Reports) -> None:
        before = set(threading.enumerate())
        pool = ThreadPoolExecutor(5)
        pool.start(None, "threads")
        pool.submit([make_run(func, 1, policy=timeout(60)) for func in (tasks.add, tasks.add_later)], reports)
        pool.submit([make_run(tasks.nothing) for _ in range(200)], reports)
        reports.wait(202)
        pool.shutdown()
        assert set(threading.enumerate()) <= before

    def test_an_initializer_runs_in_each_thread(self, reports: Reports) -> None:
        local = threading.local()
        pool = ThreadPoolExecutor(2, {"initializer": lambda value: setattr(local, "value", value), "initargs": (7,)})
        pool.start(None, "threads")
        pool.submit([make_run(lambda: local.value) for _ in range(20)], reports)
        assert {report.value for report in reports.wait(20)} == {7}
        pool.shutdown()

    def test_an_initializer_that_raises_fails_runs_until_it_works(
        self, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        outcomes = iter([True, False])

        def initialize() -> None:
            if next(outcomes):
                raise OSError("not yet")

        pool = ThreadPoolExecutor(1, {"initializer": initialize})
        pool.start(None, "threads")
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([make_run(tasks.add, 1)], reports)
            assert isinstance(reports.wait()[0].exception, OSError)
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1
        pool.shutdown()

    def test_an_unknown_option_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"no option 'initialiser'.*did you mean 'initializer'"):
            ThreadPoolExecutor(pool_kwargs={"initialiser": tasks.nothing})

    def test_the_number_of_workers_may_be_text_and_must_be_positive(self) -> None:
        assert ThreadPoolExecutor("3").slots == 3  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least 1"):
            ThreadPoolExecutor(0)

    def test_a_context_variable_set_by_one_run_is_not_seen_by_the_next(self, reports: Reports) -> None:
        variable: ContextVar[str] = ContextVar("variable", default="unset")
        pool = ThreadPoolExecutor(1)
        pool.start(None, "threads")
        pool.submit([make_run(variable.set, "set"), make_run(variable.get)], reports)
        assert reports.wait(2)[1].value == "unset"
        pool.shutdown()

    def test_a_function_that_returns_a_coroutine_is_run_to_its_end(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        pool.submit([make_run(lambda: tasks.add_later(1, 2))], reports)
        assert reports.wait()[0].value == 3

    def test_coroutines_of_a_thread_share_one_loop(self, reports: Reports) -> None:
        import asyncio

        async def loop() -> int:
            return id(asyncio.get_running_loop())

        pool = ThreadPoolExecutor(1)
        pool.start(None, "threads")
        pool.submit([make_run(loop), make_run(loop)], reports)
        one, two = reports.wait(2)
        assert one.value == two.value
        pool.shutdown()

    def test_what_a_coroutine_leaves_behind_is_cancelled(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        seen: list[str] = []
        pool.submit([make_run(tasks.leave_a_task_behind, seen)], reports)
        assert reports.wait()[0].result is Result.RETURNED
        assert seen == ["pending", "cancelled"]

    def test_a_failed_run_keeps_nothing_alive_after_its_report(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        class Precious:
            pass

        def drop(precious: Precious) -> None:
            also = precious
            raise ValueError(id(also))

        precious = Precious()
        alive = weakref.ref(precious)
        gc.disable()
        try:
            pool.submit([make_run(drop, precious)], reports)
            reports.wait()
            del precious
            reports.all.clear()
            pool.submit([make_run(tasks.nothing), make_run(tasks.nothing)], reports)
            reports.wait(2)
            pool.shutdown()
            assert alive() is None
        finally:
            gc.enable()

    def test_the_exception_keeps_its_traceback_but_not_the_locals(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        pool.submit([make_run(tasks.fail)], reports)
        exception = reports.wait()[0].exception
        assert exception is not None
        assert exception.__traceback__ is not None
        assert exception.__traceback__.tb_frame.f_code.co_name == "fail"
        assert exception.__traceback__.tb_frame.f_locals == {}

    def test_a_suspended_coroutine_in_a_traceback_is_not_closed(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        def generator() -> Iterator[str]:
            try:
                raise ValueError("kept")
            except ValueError as error:
                errors.append(error)
            yield "first"
            yield "second"

        errors: list[Exception] = []
        living = generator()
        next(living)

        def reraise() -> None:
            raise errors[0]

        pool.submit([make_run(reraise)], reports)
        assert reports.wait()[0].result is Result.RAISED
        assert next(living) == "second"


class TestWithdraw:
    def test_runs_that_have_not_started_are_taken_back_unreported(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        gate = Gate()
        started = gate.occupy(pool, reports, 2)
        waiting = [make_run(tasks.nothing) for _ in range(5)]
        pool.submit(waiting, reports)
        assert pool.withdraw() == waiting
        gate.open.set()
        pool.shutdown()
        assert set(reports.counts) == {run.id for run in started}

    def test_only_runs_submitted_before_the_instant_are_taken_back(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        gate = Gate()
        gate.occupy(pool, reports, 2)
        old, new = make_run(tasks.nothing), make_run(tasks.nothing)
        pool.now = lambda: 100
        pool.submit([old], reports)
        pool.now = lambda: 200
        pool.submit([new], reports)
        assert pool.withdraw(older_than=100) == []
        assert pool.withdraw(older_than=200) == [old]
        gate.open.set()
        reports.wait(3)
        assert new.id in reports.counts

    def test_each_run_is_withdrawn_or_reported_but_never_both(self, reports: Reports) -> None:
        pool = ThreadPoolExecutor(3)
        pool.start(None, "threads")
        runs = [make_run(tasks.nothing) for _ in range(20_000)]
        withdrawn: list[Run] = []
        for start in range(0, len(runs), 500):
            pool.submit(runs[start : start + 500], reports)
            withdrawn += pool.withdraw()
        pool.shutdown()
        assert withdrawn
        assert sorted([*reports.counts.elements(), *(run.id for run in withdrawn)]) == sorted(run.id for run in runs)

    def test_what_waits_at_shutdown_is_reported_unstarted(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        gate = Gate()
        gate.occupy(pool, reports, 2)
        waiting = [make_run(tasks.nothing) for _ in range(3)]
        pool.submit(waiting, reports)
        pool.shutdown(wait=False)
        assert [(report.run, report.result) for report in reports.all] == [(run, Result.UNSTARTED) for run in waiting]
        gate.open.set()
        assert [report.result for report in reports.wait(5)[3:]] == [Result.RETURNED] * 2

    def test_a_run_may_shut_its_own_pool_down(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(pool.shutdown)], reports)
        assert reports.wait()[0].result is Result.RETURNED


class TestTimeOut:
    def test_a_loop_is_interrupted(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        run = make_run(tasks.spin, policy=timeout(0.05))
        pool.submit([run], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, RunTimeout)
        assert report.exception.seconds == 0.05
        assert report.error is not None
        assert "in spin" in report.error.traceback
        assert conclude(report, 0, 0).run.status is Status.FAILED
        assert pool.stuck == 0

    def test_it_is_reported_even_if_the_task_swallows_it(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        def swallow() -> str:
            try:
                tasks.spin()
            except Exception:
                return "as if nothing had happened"
            return ""

        pool.submit([make_run(swallow, policy=timeout(0.05))], reports)
        assert isinstance(reports.wait()[0].exception, RunTimeout)

    def test_runs_that_end_at_their_time_out_never_hit_their_successors(
        self, pool: ThreadPoolExecutor, reports: Reports
    ) -> None:
        def busy(seconds: float) -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

        # Each ends about when its time-out passes, so the exception arrives in it, after it, or not at all.
        timed = [make_run(busy, 0.001 + n % 7 * 0.0002, policy=timeout(0.0015)) for n in range(400)]
        plain = [make_run(tasks.add, n) for n in range(400)]
        pool.submit([run for pair in zip(timed, plain, strict=True) for run in pair], reports)
        reports.wait(800)
        assert set(reports.counts.values()) == {1}
        by_id = {report.run.id: report for report in reports.all}
        assert [by_id[run.id].value for run in plain] == list(range(400))
        for run in timed:
            report = by_id[run.id]
            assert report.result is Result.RETURNED or isinstance(report.exception, RunTimeout)

    def test_a_thread_that_cannot_be_interrupted_is_stuck_and_its_run_fails_at_once(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        events: list[tuple[int, Run, str]] = []
        pool.shutdown()
        pool.notify = lambda code, run, reason: events.append((code, run, reason))
        pool.start(None, "threads")
        blocker = threading.Lock()
        blocker.acquire()
        run = make_run(blocker.acquire, policy=timeout(0.02))
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([run], reports)
            (report,) = reports.wait()
        assert isinstance(report.exception, RunTimeout)
        assert report.started_at > 0
        assert report.error is not None
        assert "slots.py" in report.error.traceback  # where the thread is
        assert [(code, of) for code, of, _ in events] == [(EVENT_RUN_STUCK, run)]
        assert run.id in events[0][2]
        assert "mainspring-threads_0" in events[0][2]
        assert pool.stuck == 1
        blocker.release()
        wait_until(lambda: pool.stuck == 0)
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1
        assert reports.counts[run.id] == 1

    def test_a_run_that_cannot_be_interrupted_ends_as_cancelled_and_its_thread_is_stuck(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        blocker = threading.Lock()
        blocker.acquire()
        begun = threading.Event()

        def hang() -> None:
            begun.set()
            blocker.acquire()

        run = make_run(hang)
        pool.submit([run], reports)
        assert begun.wait(60)
        assert pool.cancel(run.id)
        (report,) = reports.wait()
        assert report.result is Result.CANCELLED
        assert 0 < report.started_at <= report.finished_at
        assert pool.stuck == 1
        assert "hang did not end when it was cancelled; thread mainspring-threads_0" in caplog.text
        blocker.release()
        wait_until(lambda: pool.stuck == 0)
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1
        assert reports.counts[run.id] == 1

    def test_a_pool_goes_on_as_long_as_one_thread_is_not_stuck(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        blocker = threading.Lock()
        blocker.acquire()
        pool.submit([make_run(blocker.acquire, policy=timeout(0.02))], reports)
        reports.wait()
        assert (pool.stuck, pool.accepting) == (1, True)
        assert "takes no more runs" not in caplog.text
        pool.submit([make_run(tasks.add, 1)], reports)
        assert reports.wait(2)[1].value == 1
        blocker.release()

    def test_a_pool_whose_threads_are_all_stuck_says_once_that_it_stops_and_why_and_once_that_it_goes_on(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        blockers = [threading.Lock(), threading.Lock()]
        for blocker in blockers:
            blocker.acquire()
        runs = [make_run(blocker.acquire, policy=timeout(0.02)) for blocker in blockers]
        pool.submit(runs, reports)
        reports.wait(2)
        assert not pool.accepting
        [told] = [record for record in caplog.records if "takes no more runs" in record.message]
        assert told.levelno == logging.ERROR
        for words in ("executor 'threads'", *(f"run {run.id} of " for run in runs), 'isolation="process"'):
            assert words in told.message
        blockers[0].release()
        wait_until(lambda: "executor 'threads' takes runs again" in caplog.text)
        blockers[1].release()
        wait_until(lambda: pool.stuck == 0)
        assert caplog.text.count("takes runs again") == 1
        assert pool.accepting

    def test_a_stuck_run_with_a_retry_left_is_reported_when_its_thread_has_ended(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        blocker = threading.Lock()
        blocker.acquire()
        run = make_run(blocker.acquire, policy=timeout(0.02, retries=1))
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([run], reports)
            wait_until(lambda: pool.stuck == 1)
        assert reports.all == []
        blocker.release()
        (report,) = reports.wait()
        assert isinstance(report.exception, RunTimeout)
        assert conclude(report, 0, 0).run.status is Status.PENDING
        assert pool.stuck == 0

    def test_stuck_runs_do_not_keep_shutdown_waiting(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        blocker = threading.Lock()
        blocker.acquire()
        begun = threading.Semaphore(0)

        def hang() -> None:
            begun.release()
            blocker.acquire()

        runs = [make_run(hang, policy=timeout(0.02, retries=n)) for n in (0, 5)]
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit(runs, reports)
            assert begun.acquire(timeout=60)
            assert begun.acquire(timeout=60)
            pool.shutdown()
        assert set(reports.counts) == {run.id for run in runs}
        assert all(isinstance(report.exception, RunTimeout) for report in reports.all)
        assert all(0 < report.started_at < report.finished_at for report in reports.all)
        blocker.release()

    def test_the_log_names_run_function_thread_and_stack(
        self, pool: ThreadPoolExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make_run(tasks.sleep_in_c, 0.3, policy=timeout(0.02))
        pool.submit([run], reports)
        reports.wait()
        pool.shutdown()
        for words in (run.id, "sleep_in_c", "mainspring-threads_0", "time.sleep(seconds)"):
            assert words in caplog.text

    def test_a_very_long_time_out_is_no_problem(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        pool.submit([make_run(tasks.add, 1, policy=timeout(1e15))], reports)
        assert reports.wait()[0].value == 1


class TestCancel:
    def test_a_loop_is_stopped(self, pool: ThreadPoolExecutor, reports: Reports, tmp_path: Path) -> None:
        run = make_run(tasks.spin, str(tmp_path / "begun"))
        pool.submit([run], reports)
        wait_for_file(tmp_path / "begun")
        assert pool.cancel(run.id)
        (report,) = reports.wait()
        assert (report.result, report.exception) == (Result.CANCELLED, None)

    def test_a_run_that_waits_is_cancelled_before_it_starts(self, pool: ThreadPoolExecutor, reports: Reports) -> None:
        gate = Gate()
        gate.occupy(pool, reports, 2)
        run = make_run(tasks.nothing)
        pool.submit([run], reports)
        assert pool.cancel(run.id)
        assert [(report.run, report.result) for report in reports.all] == [(run, Result.CANCELLED)]
        gate.open.set()

    def test_cancellation_storms_stop_what_they_mean_and_nothing_else(self, reports: Reports) -> None:
        pool = ThreadPoolExecutor(3)
        pool.start(None, "threads")
        runs = [make_run(sum, range(2000)) for _ in range(3000)]
        pool.submit(runs, reports)
        doomed = {run.id for run in runs[::3]}
        hit = {run_id for run_id in doomed if pool.cancel(run_id)}
        pool.shutdown()
        assert set(reports.counts.values()) == {1}
        for report in reports.all:
            if report.run.id in hit:
                assert report.result is Result.CANCELLED
            elif report.result is not Result.UNSTARTED:
                assert report.value == sum(range(2000))

    def test_a_run_that_passes_its_time_out_while_being_cancelled_is_cancelled(
        self, pool: ThreadPoolExecutor, reports: Reports, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make_run(tasks.sleep_in_c, 0.5, str(tmp_path / "begun"), policy=Policy(timeout=0.1, retries=3))
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            pool.submit([run], reports)
            wait_for_file(tmp_path / "begun")
            assert pool.cancel(run.id)
            assert reports.wait()[0].result is Result.CANCELLED
            pool.shutdown()
        assert len(reports.all) == 1


def test_importing_the_thread_pool_does_not_import_asyncio() -> None:
    import subprocess

    code = "import sys, mainspring.executors.threads; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
