import asyncio
import threading
from collections.abc import Iterator

import pytest

from mainspring.errors import RunTimeout
from mainspring.executors.debug import DebugExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout


class TestContract(ExecutorContract):
    @pytest.fixture
    def start(self) -> Iterator[Start]:
        executor = DebugExecutor()

        def start() -> DebugExecutor:
            executor.start(None, "debug")
            return executor

        yield start
        executor.shutdown()


@pytest.fixture
def executor() -> Iterator[DebugExecutor]:
    executor = DebugExecutor(timeout_grace=0.05)
    executor.start(None, "debug")
    yield executor
    executor.shutdown()


def test_runs_are_executed_in_order_by_the_one_who_submits(executor: DebugExecutor) -> None:
    reports = Reports()
    executor.submit([make_run(threading.current_thread), make_run(tasks.add, 1)], reports)
    assert [report.value for report in reports.all] == [threading.current_thread(), 1]


def test_a_coroutine_function_is_executed_even_where_a_loop_is_running(executor: DebugExecutor) -> None:
    reports = Reports()

    async def main() -> None:
        executor.submit([make_run(tasks.add_later, 1), make_run(tasks.fail_later)], reports)

    asyncio.run(main())
    assert reports.all[0].value == 1
    assert isinstance(reports.all[1].exception, ValueError)


def test_the_submitters_thread_is_interrupted_at_the_time_out(executor: DebugExecutor) -> None:
    reports = Reports()
    executor.submit([make_run(tasks.spin, policy=timeout(0.05)), make_run(tasks.add, 1)], reports)
    assert isinstance(reports.all[0].exception, RunTimeout)
    assert reports.all[1].value == 1
