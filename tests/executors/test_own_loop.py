"""Whatever one coroutine does to the event loop of a worker, its neighbours and those after it are executed."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace

from mainspring.core.run import Result
from mainspring.executors.asyncio import AsyncIOExecutor
from mainspring.executors.cooperative.own_loop import OwnLoopRuns
from tests.executors.helpers import Reports, make_run, wait_until

Poison = Callable[[], Awaitable[None]]


async def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


async def exit_in_a_child_task() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.create_task(leave())


async def exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.01)


async def interrupt_in_a_child_task() -> None:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    await asyncio.create_task(interrupt())


async def close_the_loop() -> str:
    """Try it from a thread, where nothing says that the loop is running."""
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(_refusal, loop)


def _refusal(loop: asyncio.AbstractEventLoop) -> str:
    try:
        loop.close()
    except RuntimeError as error:
        return str(error)
    return "closed"


class Closer:
    """A logger that closes the loop between two of its turns, when it is told that somebody has stopped it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.said = loop, list[str]()

    def warning(self, text: str, *args: object) -> None:
        type(self._loop).close(self._loop)

    def error(self, text: str, *args: object) -> None:
        self.said.append(text % args)


POISONS = [cancel_all_tasks, stop_the_loop, exit_in_a_child_task, exit_in_a_callback, interrupt_in_a_child_task]


class Neighbour:
    """A coroutine that waits for a task of its own until it is told to end."""

    def __init__(self) -> None:
        self.begun, self.told = threading.Event(), threading.Event()

    async def __call__(self) -> str:
        return await asyncio.create_task(self._wait())

    async def _wait(self) -> str:
        self.begun.set()
        while not self.told.is_set():
            await asyncio.sleep(0.01)
        return "undisturbed"


@pytest.fixture
def executor() -> Iterator[AsyncIOExecutor]:
    executor = AsyncIOExecutor(max_running=10, timeout_grace=0.05)
    executor.start(None, "asyncio")
    yield executor
    executor.shutdown()


@pytest.fixture
def reports() -> Reports:
    return Reports()


async def call(neighbour: Neighbour) -> str:
    return await neighbour()


@pytest.mark.parametrize("poison", POISONS)
def test_the_neighbours_of_a_coroutine_that_ends_its_loop_go_on_and_so_do_those_after_it(
    executor: AsyncIOExecutor, reports: Reports, poison: Poison
) -> None:
    neighbour = Neighbour()
    bad, good, later = make_run(poison), make_run(call, neighbour), make_run(asyncio.sleep, 0, "later")
    executor.submit([good], reports)
    assert neighbour.begun.wait(60)
    executor.submit([bad], reports)
    assert reports.wait(1)[0].run is bad
    executor.submit([later], reports)
    reports.wait(2)
    neighbour.told.set()
    values = {report.run.id: (report.result, report.value) for report in reports.wait(3)}
    assert values[later.id] == (Result.RETURNED, "later")
    assert values[good.id] == (Result.RETURNED, "undisturbed")


def test_a_run_that_has_not_begun_is_not_lost_when_a_neighbour_cancels_everything(
    executor: AsyncIOExecutor, reports: Reports
) -> None:
    runs = [make_run(cancel_all_tasks), make_run(asyncio.sleep, 0, "later")]
    executor.submit(runs, reports)
    values = {report.run.id: (report.result, report.value) for report in reports.wait(2)}
    assert values[runs[1].id] == (Result.RETURNED, "later")


def test_who_tries_to_cancel_the_tasks_of_other_runs_is_named_once(
    executor: AsyncIOExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    neighbours = [Neighbour(), Neighbour()]
    executor.submit([make_run(call, neighbour) for neighbour in neighbours], reports)
    assert all(neighbour.begun.wait(60) for neighbour in neighbours)
    bad = make_run(cancel_all_tasks)
    executor.submit([bad], reports)
    reports.wait(1)
    assert caplog.text.count(f"run {bad.id} of cancel_all_tasks tried to cancel tasks of other runs") == 1
    for neighbour in neighbours:
        neighbour.told.set()
    reports.wait(3)


def test_a_task_that_a_run_has_left_behind_can_be_cancelled_by_others(
    executor: AsyncIOExecutor, reports: Reports
) -> None:
    left: list[asyncio.Task[None]] = []

    async def leave() -> None:
        left.append(asyncio.create_task(asyncio.sleep(1e6)))

    async def clean_up() -> bool:
        return left[0].cancel()

    executor.submit([make_run(leave)], reports)
    reports.wait(1)
    executor.submit([make_run(clean_up)], reports)
    assert reports.wait(2)[1].value is True


def test_the_loop_cannot_be_closed_by_a_run(executor: AsyncIOExecutor, reports: Reports) -> None:
    executor.submit([make_run(close_the_loop)], reports)
    assert "it cannot be closed" in reports.wait(1)[0].value
    executor.submit([make_run(asyncio.sleep, 0, "later")], reports)
    assert reports.wait(2)[1].value == "later"


def test_a_loop_that_is_closed_all_the_same_is_replaced_and_what_it_executed_is_interrupted_once(
    executor: AsyncIOExecutor, reports: Reports
) -> None:
    neighbour = Neighbour()
    first = make_run(call, neighbour)
    again = replace(make_run(call, neighbour), interruptions=1)
    executor.submit([first, again], reports)
    assert neighbour.begun.wait(60)
    runs = executor._runs
    assert isinstance(runs, OwnLoopRuns)
    keeper = runs._keeper
    closer = keeper._logger = Closer(keeper.loop)  # type: ignore[assignment]
    executor.submit([make_run(stop_the_loop)], reports)
    ended = [report for report in reports.wait(3) if report.run.id in (first.id, again.id)]
    results = {report.run.id: (report.result, report.exception) for report in ended}
    assert results[first.id] == (Result.INTERRUPTED, None)
    assert results[again.id][0] is Result.RAISED
    assert "the event loop ended before the run did" in str(results[again.id][1])
    assert closer.said == ["a run closed the event loop; a new one takes its place"]
    executor.submit([make_run(asyncio.sleep, 0, "later")], reports)
    assert reports.wait(4)[3].value == "later"


def test_a_run_that_is_cancelled_before_its_first_step_is_reported(executor: AsyncIOExecutor, reports: Reports) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        begun.set()
        go_on.wait(60)

    executor.submit([make_run(hold)], reports)
    assert begun.wait(60)
    unborn = make_run(asyncio.sleep, 1e6)
    executor.submit([unborn], reports)
    runs = executor._runs
    assert runs is not None
    start = runs._start

    def start_and_cancel(entry: object) -> object:
        executor.cancel(unborn.id)  # queued before the first step of the task
        return start(entry)  # type: ignore[arg-type]

    runs._start = start_and_cancel  # type: ignore[assignment, method-assign]
    go_on.set()
    results = {report.run.id: report.result for report in reports.wait(2)}
    assert results[unborn.id] is Result.CANCELLED
    wait_until(lambda: not runs._started)
