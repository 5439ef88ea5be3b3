import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.selectreactor import SelectReactor

from mainspring.core.run import Result
from mainspring.errors import RunTimeout
from mainspring.executors.twisted import TwistedExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout


def turn(reactor: Any) -> Iterator[Any]:
    """Run a reactor, not the installed one, in another thread."""
    running = threading.Event()
    reactor.callWhenRunning(running.set)
    thread = threading.Thread(target=reactor.run, kwargs={"installSignalHandlers": False})
    thread.start()
    running.wait()
    yield reactor
    reactor.callFromThread(reactor.stop)
    thread.join()


@pytest.fixture
def plain_reactor() -> Iterator[Any]:
    yield from turn(SelectReactor())


@pytest.fixture
def asyncio_reactor() -> Iterator[Any]:
    loop = asyncio.SelectorEventLoop()
    yield from turn(AsyncioSelectorReactor(loop))
    loop.close()


def started(reactor: Any, **options: Any) -> TwistedExecutor:
    executor = TwistedExecutor(**options)
    executor.start(SimpleNamespace(_reactor=reactor), "twisted")
    return executor


class TestContractOnAPlainReactor(ExecutorContract):
    @pytest.fixture
    def start(self, plain_reactor: Any) -> Iterator[Start]:
        executors: list[TwistedExecutor] = []

        def start() -> TwistedExecutor:
            executors.append(started(plain_reactor))
            return executors[-1]

        yield start
        for executor in executors:
            executor.shutdown()


class TestContractOnAnAsyncioReactor(ExecutorContract):
    @pytest.fixture
    def start(self, asyncio_reactor: Any) -> Iterator[Start]:
        executors: list[TwistedExecutor] = []

        def start() -> TwistedExecutor:
            executors.append(started(asyncio_reactor))
            return executors[-1]

        yield start
        for executor in executors:
            executor.shutdown()


async def this_thread() -> threading.Thread:
    return threading.current_thread()


def test_plain_functions_run_in_the_reactors_threads(plain_reactor: Any) -> None:
    reports = Reports()
    executor = started(plain_reactor)
    assert executor.slots == plain_reactor.getThreadPool().max
    executor.submit([make_run(threading.current_thread), make_run(this_thread)], reports)
    assert all("twisted.internet.reactor" in report.value.name for report in reports.wait(2))
    executor.shutdown()


def test_coroutines_run_on_the_asyncio_reactors_loop(asyncio_reactor: Any) -> None:
    reports = Reports()
    executor = started(asyncio_reactor)
    executor.submit([make_run(this_thread), make_run(threading.current_thread)], reports)
    threads = {report.run.name: report.value for report in reports.wait(2)}
    assert threads["this_thread"] is executor._reactor_thread
    assert "twisted.internet.reactor" in threads["current_thread"].name
    executor.shutdown()


def test_a_function_is_interrupted_at_its_time_out(plain_reactor: Any) -> None:
    reports = Reports()
    executor = started(plain_reactor)
    executor.submit([make_run(tasks.spin, policy=timeout(0.05)), make_run(tasks.add, 1)], reports)
    by_name = {report.run.name: report for report in reports.wait(2)}
    assert isinstance(by_name["spin"].exception, RunTimeout)
    assert by_name["add"].value == 1
    executor.shutdown()


def test_runs_for_which_no_thread_is_free_can_be_withdrawn(plain_reactor: Any) -> None:
    reports = Reports()
    executor = started(plain_reactor)
    go = threading.Event()
    begun = threading.Semaphore(0)

    def wait() -> bool:
        begun.release()
        return go.wait(60)

    executor.submit([make_run(wait) for _ in range(executor.slots)], reports)
    for _ in range(executor.slots):
        assert begun.acquire(timeout=60)
    waiting = [make_run(tasks.nothing) for _ in range(3)]
    executor.submit(waiting, reports)
    assert executor.withdraw() == waiting
    go.set()
    assert all(report.value is True for report in reports.wait(executor.slots))
    executor.shutdown()


def test_shutting_down_in_the_reactors_thread_does_not_wait(plain_reactor: Any) -> None:
    reports = Reports()
    executor = started(plain_reactor)
    begun, go = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return go.wait(60)

    executor.submit([make_run(wait)], reports)
    assert begun.wait(60)
    down = threading.Event()

    def shut_down() -> None:
        executor.shutdown()
        down.set()

    plain_reactor.callFromThread(shut_down)
    assert down.wait(60)
    go.set()
    assert reports.wait()[0].value is True


def test_a_reactor_that_never_runs_gives_runs_back() -> None:
    reports = Reports()
    executor = started(SelectReactor())
    executor.submit([make_run(tasks.add, 1)], reports)
    executor.shutdown()
    assert [report.result for report in reports.all] == [Result.UNSTARTED]
