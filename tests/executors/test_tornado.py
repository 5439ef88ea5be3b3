import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tornado import gen
from tornado.ioloop import IOLoop

from mainspring.executors.tornado import TornadoExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run


@pytest.fixture
def io_loop() -> Iterator[IOLoop]:
    loops: list[IOLoop] = []
    ready = threading.Event()

    def turn() -> None:
        async def main() -> None:
            loops.append(IOLoop.current())
            stop.append(asyncio.Event())
            ready.set()
            await stop[0].wait()

        asyncio.run(main())

    stop: list[asyncio.Event] = []
    thread = threading.Thread(target=turn)
    thread.start()
    ready.wait()
    yield loops[0]
    loops[0].add_callback(stop[0].set)
    thread.join()


class TestContract(ExecutorContract):
    @pytest.fixture
    def start(self, io_loop: IOLoop) -> Iterator[Start]:
        executor = TornadoExecutor(3)

        def start() -> TornadoExecutor:
            executor.start(SimpleNamespace(_ioloop=io_loop), "tornado")
            return executor

        yield start
        executor.shutdown()


def test_coroutines_run_on_the_io_loop_and_functions_in_threads(io_loop: IOLoop) -> None:
    @gen.coroutine
    def old_style() -> Any:
        yield gen.sleep(0)
        return IOLoop.current()

    async def native() -> IOLoop:
        return IOLoop.current()

    reports = Reports()
    executor = TornadoExecutor()
    executor.start(SimpleNamespace(_ioloop=io_loop), "tornado")
    executor.submit([make_run(old_style), make_run(native), make_run(threading.current_thread)], reports)
    values = {report.run.name: report.value for report in reports.wait(3)}
    assert values["old_style"] is values["native"] is io_loop
    assert values["current_thread"].name.startswith("mainspring-tornado")
    executor.shutdown()


def test_without_a_scheduler_it_has_a_loop_of_its_own() -> None:
    reports = Reports()
    executor = TornadoExecutor()
    executor.start(None, "tornado")
    executor.submit([make_run(tasks.add_later, 1)], reports)
    assert reports.wait()[0].value == 1
    executor.shutdown()
