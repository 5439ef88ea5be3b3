import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.core.policy import Policy
from mainspring.core.run import Result, Run
from mainspring.errors import RunTimeout
from mainspring.events import EVENT_RUN_STUCK
from mainspring.executors.asyncio import AsyncIOExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout, wait_for_file, wait_until


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that turns in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def this_thread() -> threading.Thread:
    return threading.current_thread()


@pytest.fixture
def reports() -> Reports:
    return Reports()


class TestContractOnTheSchedulersLoop(ExecutorContract):
    @pytest.fixture
    def start(self) -> Iterator[Start]:
        executor = AsyncIOExecutor()
        with running_loop() as loop:

            def start() -> AsyncIOExecutor:
                executor.start(SimpleNamespace(_eventloop=loop), "asyncio")
                return executor

            yield start
            executor.shutdown()


class TestContractOnALoopOfItsOwn(ExecutorContract):
    @pytest.fixture
    def start(self) -> Iterator[Start]:
        executor = AsyncIOExecutor()

        def start() -> AsyncIOExecutor:
            executor.start(None, "asyncio")
            return executor

        yield start
        executor.shutdown()


@pytest.fixture
def executor() -> Iterator[AsyncIOExecutor]:
    executor = AsyncIOExecutor(max_running=2, max_workers=1, timeout_grace=0.05)
    executor.start(None, "asyncio")
    yield executor
    executor.shutdown()


class TestAsyncIO:
    def test_coroutines_run_on_the_loop_and_functions_in_threads(self, reports: Reports) -> None:
        executor = AsyncIOExecutor()
        with running_loop() as loop:
            executor.start(SimpleNamespace(_eventloop=loop), "asyncio")
            executor.submit([make_run(this_thread), make_run(threading.current_thread)], reports)
            threads = {report.run.name: report.value for report in reports.wait(2)}
            on_loop = asyncio.run_coroutine_threadsafe(this_thread(), loop).result()
            assert threads["this_thread"] is on_loop
            assert threads["current_thread"] not in (on_loop, threading.current_thread())
            executor.shutdown()

    def test_a_blocking_function_does_not_block_the_loop(self, executor: AsyncIOExecutor, reports: Reports) -> None:
        release = threading.Event()
        executor.submit([make_run(release.wait, 60), make_run(tasks.add_later, 1)], reports)
        assert reports.wait()[0].value == 1
        release.set()
        reports.wait(2)

    def test_at_most_so_many_coroutines_run_at_once(self, executor: AsyncIOExecutor, reports: Reports) -> None:
        running: list[int] = []
        most: list[int] = []

        async def count() -> None:
            running.append(1)
            most.append(len(running))
            await asyncio.sleep(0)
            running.pop()

        executor.submit([make_run(count) for _ in range(50)], reports)
        reports.wait(50)
        assert max(most) == 2

    def test_coroutines_that_wait_for_a_place_can_be_withdrawn(
        self, executor: AsyncIOExecutor, reports: Reports
    ) -> None:
        sleepers = [make_run(tasks.sleep_forever) for _ in range(2)]
        executor.submit(sleepers, reports)
        waiting = [make_run(tasks.add_later, 1) for _ in range(3)]
        executor.submit(waiting, reports)
        wait_until(lambda: _both_started(executor))
        assert executor.withdraw() == waiting
        assert all(executor.cancel(run.id) for run in sleepers)
        assert {(report.run.id, report.result) for report in reports.wait(2)} == {
            (run.id, Result.CANCELLED) for run in sleepers
        }

    def test_a_coroutine_that_swallows_cancellation_is_stuck(
        self, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        events: list[tuple[int, Run, str]] = []
        executor = AsyncIOExecutor(max_running=1, timeout_grace=0.02)
        executor.notify = lambda code, run, reason: events.append((code, run, reason))
        executor.start(None, "asyncio")
        release = threading.Event()
        run = make_run(tasks.swallow_cancellation, release, policy=timeout(0.02))
        executor.submit([run], reports)
        assert isinstance(reports.wait()[0].exception, RunTimeout)
        assert executor.stuck == 1
        assert not executor.accepting
        assert caplog.text.count("executor 'asyncio' takes no more runs until one of these ends; all") == 1
        assert f"run {run.id} of swallow_cancellation" in caplog.text
        assert [(code, of) for code, of, _ in events] == [(EVENT_RUN_STUCK, run)]
        release.set()
        wait_until(lambda: executor.stuck == 0)
        executor.shutdown()
        assert len(reports.all) == 1
        assert caplog.text.count("executor 'asyncio' takes runs again") == 1

    def test_a_coroutine_that_swallows_the_cancellation_of_its_run_ends_as_cancelled_and_is_stuck(
        self, executor: AsyncIOExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun, release = threading.Event(), threading.Event()

        async def swallow() -> None:
            begun.set()
            await tasks.swallow_cancellation(release)

        run = make_run(swallow)
        executor.submit([run], reports)
        assert begun.wait(60)
        assert executor.cancel(run.id)
        assert reports.wait()[0].result is Result.CANCELLED
        assert executor.stuck == 1
        assert "swallow did not end when it was cancelled" in caplog.text
        release.set()
        wait_until(lambda: executor.stuck == 0)
        assert len(reports.all) == 1

    def test_a_stuck_coroutine_with_a_retry_left_is_reported_when_it_has_ended(
        self, executor: AsyncIOExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
    ) -> None:
        release = threading.Event()
        with caplog.at_level(logging.CRITICAL, "mainspring"):
            executor.submit([make_run(tasks.swallow_cancellation, release, policy=timeout(0.02, retries=1))], reports)
            wait_until(lambda: executor.stuck == 1)
        assert reports.all == []
        release.set()
        assert isinstance(reports.wait()[0].exception, RunTimeout)

    def test_a_function_in_a_thread_is_interrupted_at_its_time_out(
        self, executor: AsyncIOExecutor, reports: Reports
    ) -> None:
        executor.submit([make_run(tasks.spin, policy=timeout(0.05))], reports)
        assert isinstance(reports.wait()[0].exception, RunTimeout)

    def test_a_coroutine_that_was_cancelled_by_its_own_doing_fails(
        self, executor: AsyncIOExecutor, reports: Reports
    ) -> None:
        async def cancel_a_part() -> None:
            part = asyncio.ensure_future(asyncio.sleep(1e6))
            asyncio.get_running_loop().call_soon(part.cancel)
            await part

        executor.submit([make_run(cancel_a_part)], reports)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, asyncio.CancelledError)

    def test_a_loop_that_is_closed_gives_runs_back(self, reports: Reports) -> None:
        executor = AsyncIOExecutor()
        with running_loop() as loop:
            executor.start(SimpleNamespace(_eventloop=loop), "asyncio")
        executor.submit([make_run(tasks.add_later, 1)], reports)
        assert [report.result for report in reports.all] == [Result.UNSTARTED]
        executor.shutdown()

    def test_runs_on_a_loop_that_is_closed_meanwhile_fail(
        self, reports: Reports, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        executor = AsyncIOExecutor()
        with running_loop() as loop:
            executor.start(SimpleNamespace(_eventloop=loop), "asyncio")
            executor.submit([make_run(tasks.sleep_forever, str(tmp_path / "begun"))], reports)
            wait_for_file(tmp_path / "begun")
        with caplog.at_level(logging.CRITICAL, "asyncio"):
            executor.shutdown()
            (report,) = reports.all
            assert report.result is Result.RAISED
            assert "the event loop ended" in str(report.exception)
            gc.collect()  # asyncio says that a task of a closed loop was left behind

    def test_a_run_the_loop_never_got_to_is_unstarted(self, reports: Reports) -> None:
        executor = AsyncIOExecutor()
        loop = asyncio.new_event_loop()
        executor.start(SimpleNamespace(_eventloop=loop), "asyncio")
        executor.submit([make_run(tasks.add_later, 1)], reports)
        executor.shutdown()
        assert [report.result for report in reports.all] == [Result.UNSTARTED]
        loop.close()

    def test_shutting_down_on_the_loop_does_not_wait_but_lets_coroutines_end(self, reports: Reports) -> None:
        async def main() -> None:
            executor = AsyncIOExecutor()
            executor.start(SimpleNamespace(_eventloop=asyncio.get_running_loop()), "asyncio")
            begun, go = asyncio.Event(), asyncio.Event()

            async def run() -> str:
                begun.set()
                await go.wait()
                return "ended"

            executor.submit([make_run(run), make_run(tasks.add, 1)], reports)
            await begun.wait()
            executor.shutdown()
            go.set()
            while len(reports.all) < 2:
                await asyncio.sleep(0.001)

        asyncio.run(main())
        assert {report.value for report in reports.all} == {"ended", 1}

    def test_functions_that_have_started_are_waited_for_at_the_exit_of_the_program(self, tmp_path: Path) -> None:
        arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "begun"), str(tmp_path / "ended")]
        assert subprocess.run(arguments, timeout=100, check=False).returncode == 0
        assert (tmp_path / "ended").exists()

    def test_without_waiting_coroutines_are_cancelled_and_fail(
        self, executor: AsyncIOExecutor, reports: Reports, tmp_path: Path
    ) -> None:
        executor.submit([make_run(tasks.sleep_forever, str(tmp_path / "begun"))], reports)
        wait_for_file(tmp_path / "begun")
        executor.shutdown(wait=False)
        (report,) = reports.wait()
        assert report.result is Result.RAISED
        assert isinstance(report.exception, asyncio.CancelledError)

    def test_a_coroutine_may_shut_its_own_executor_down(self, executor: AsyncIOExecutor, reports: Reports) -> None:
        async def shut_down() -> str:
            executor.shutdown()
            await asyncio.sleep(0)
            return "done"

        executor.submit([make_run(shut_down)], reports)
        assert reports.wait()[0].value == "done"

    def test_no_thread_is_left_after_shutdown(self, reports: Reports) -> None:
        before = set(threading.enumerate())
        executor = AsyncIOExecutor()
        executor.start(None, "asyncio")
        executor.submit([make_run(tasks.add_later, 1), make_run(tasks.add, 1, policy=Policy(timeout=60))], reports)
        reports.wait(2)
        executor.shutdown()
        assert set(threading.enumerate()) <= before


PROGRAM = """
import asyncio, pathlib, sys, time, types
from mainspring.executors.asyncio import AsyncIOExecutor
from mainspring.core.run import Call, Run

begun, ended = map(pathlib.Path, sys.argv[1:])

def slow():
    begun.touch()
    time.sleep(0.2)
    ended.touch()

async def main():
    executor = AsyncIOExecutor()
    executor.start(types.SimpleNamespace(_eventloop=asyncio.get_running_loop()), "asyncio")
    executor.submit([Run(id="1", call=Call(slow))], lambda report: None)
    while not begun.exists():
        await asyncio.sleep(0.001)
    executor.shutdown()
    assert not ended.exists()

asyncio.run(main())
"""


def _both_started(executor: AsyncIOExecutor) -> Any:
    runs = executor._runs
    return runs is not None and len(runs._started) == 2
