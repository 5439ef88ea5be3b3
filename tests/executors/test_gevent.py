import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from mainspring.core.run import Result
from mainspring.errors import RunTimeout
from mainspring.executors.gevent import GeventExecutor
from tests.executors import tasks
from tests.executors.contract import ExecutorContract, Start
from tests.executors.helpers import Reports, make_run, timeout, wait_until


class HubThread:
    """A real thread whose hub turns, and in which functions can be called."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()
        self._ready.wait()

    def _turn(self) -> None:
        self._hub = gevent.get_hub()
        self._stop = gevent.event.Event()
        # Without something to wait for, the hub would say that it waits for ever.
        keep = gevent.spawn(self._keep_turning)
        self._ready.set()
        self._stop.wait()
        keep.kill()
        self._hub.threadpool.kill()
        self._hub.destroy(destroy_loop=True)

    def _keep_turning(self) -> None:
        while True:
            gevent.sleep(60)

    def call(self, func: Callable[[], Any]) -> Any:
        done = threading.Event()
        values: list[Any] = []

        def in_greenlet() -> None:
            values.append(func())
            done.set()

        self._hub.loop.run_callback_threadsafe(gevent.spawn, in_greenlet)
        assert done.wait(60)
        return values[0]

    def stop(self) -> None:
        self._hub.loop.run_callback_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def hub() -> Iterator[HubThread]:
    hub = HubThread()
    yield hub
    hub.stop()


@pytest.fixture
def reports() -> Reports:
    return Reports()


class TestContract(ExecutorContract):
    @pytest.fixture
    def start(self, hub: HubThread) -> Iterator[Start]:
        executor = GeventExecutor()
        self.hub = hub

        def start() -> GeventExecutor:
            hub.call(lambda: executor.start(None, "gevent"))
            return executor

        yield start
        executor.shutdown()

    def restart(self, executor: Any) -> None:
        self.hub.call(lambda: executor.start(None, "again"))


@pytest.fixture
def executor(hub: HubThread) -> Iterator[GeventExecutor]:
    executor = GeventExecutor(max_running=2, timeout_grace=0.05)
    hub.call(lambda: executor.start(None, "gevent"))
    yield executor
    executor.shutdown()


def sleep_forever() -> None:
    gevent.sleep(1e6)


def test_runs_take_turns_in_greenlets_of_one_thread(executor: GeventExecutor, reports: Reports) -> None:
    meeting = gevent.event.Event()

    def wait() -> int:
        meeting.wait()
        return threading.get_ident()

    def come() -> int:
        meeting.set()
        return threading.get_ident()

    executor.submit([make_run(wait), make_run(come)], reports)
    one, two = reports.wait(2)
    assert one.value == two.value != threading.get_ident()


def test_a_greenlet_is_stopped_at_its_time_out(executor: GeventExecutor, reports: Reports) -> None:
    executor.submit([make_run(sleep_forever, policy=timeout(0.02))], reports)
    (report,) = reports.wait()
    assert isinstance(report.exception, RunTimeout)
    assert report.exception.seconds == 0.02
    assert report.error is not None
    assert "in sleep_forever" in report.error.traceback


def test_a_greenlet_can_be_cancelled(executor: GeventExecutor, reports: Reports) -> None:
    run = make_run(sleep_forever)
    executor.submit([run], reports)
    wait_until(lambda: executor.cancel(run.id))
    assert reports.wait()[0].result is Result.CANCELLED


def test_a_greenlet_that_swallows_its_time_out_is_stuck(
    executor: GeventExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def swallow() -> None:
        while not release.is_set():
            try:
                gevent.sleep(0.01)
            except RunTimeout:
                continue

    with caplog.at_level(logging.CRITICAL, "mainspring"):
        executor.submit([make_run(swallow, policy=timeout(0.02))], reports)
        assert isinstance(reports.wait()[0].exception, RunTimeout)
    assert executor.stuck == 1
    release.set()
    wait_until(lambda: executor.stuck == 0)
    assert len(reports.all) == 1


def test_a_greenlet_that_swallows_its_cancellation_is_stuck(
    executor: GeventExecutor, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    def swallow() -> None:
        begun.set()
        while not release.is_set():
            try:
                gevent.sleep(0.01)
            except BaseException:
                continue

    run = make_run(swallow, policy=timeout(1000))
    with caplog.at_level(logging.CRITICAL, "mainspring"):
        executor.submit([run], reports)
        assert begun.wait(60)
        assert executor.cancel(run.id)
        assert reports.wait()[0].result is Result.CANCELLED
    assert executor.stuck == 1
    release.set()
    wait_until(lambda: executor.stuck == 0)
    assert len(reports.all) == 1


def test_greenlets_that_wait_for_a_place_can_be_withdrawn(
    hub: HubThread, executor: GeventExecutor, reports: Reports
) -> None:
    go = gevent.event.Event()
    begun = threading.Semaphore(0)

    def wait() -> None:
        begun.release()
        go.wait()

    executor.submit([make_run(wait), make_run(wait)], reports)
    assert begun.acquire(timeout=60)
    assert begun.acquire(timeout=60)
    waiting = [make_run(tasks.nothing) for _ in range(3)]
    executor.submit(waiting, reports)
    assert executor.withdraw() == waiting
    hub.call(go.set)
    assert [report.result for report in reports.wait(2)] == [Result.RETURNED] * 2


def test_without_waiting_greenlets_are_killed_and_fail(executor: GeventExecutor, reports: Reports) -> None:
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        sleep_forever()

    executor.submit([make_run(wait)], reports)
    assert begun.wait(60)
    executor.shutdown(wait=False)
    (report,) = reports.wait()
    assert report.result is Result.RAISED
    assert isinstance(report.exception, gevent.GreenletExit)


def test_shutdown_in_a_greenlet_waits_for_the_others(
    hub: HubThread, executor: GeventExecutor, reports: Reports
) -> None:
    def nap() -> str:
        gevent.sleep(0.02)
        return "rested"

    def submit_and_shut_down() -> int:
        executor.submit([make_run(nap)], reports)
        gevent.sleep(0)
        executor.shutdown()
        return len(reports.all)

    assert hub.call(submit_and_shut_down) == 1
    assert reports.all[0].value == "rested"


def test_a_greenlet_may_shut_its_own_executor_down(executor: GeventExecutor, reports: Reports) -> None:
    executor.submit([make_run(executor.shutdown)], reports)
    assert reports.wait()[0].result is Result.RETURNED


MONKEY = """
from gevent import monkey
monkey.patch_all()
import gevent, threading, time
from mainspring.executors.gevent import GeventExecutor
from mainspring.errors import RunTimeout
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run

async def coroutine():
    import asyncio
    await asyncio.sleep(0.01)
    return "from a coroutine"

async def endless():
    import asyncio
    await asyncio.sleep(1e6)

def nap():
    time.sleep(0.01)
    return "rested"

executor = GeventExecutor()
executor.start(None, "gevent")
got = {}
def submit():
    executor.submit([
        Run(id="nap", call=Call(nap)),
        Run(id="coroutine", call=Call(coroutine)),
        Run(id="slow", call=Call(time.sleep, (1e6,)), policy=Policy(timeout=0.05)),
        Run(id="endless", call=Call(endless), policy=Policy(timeout=0.05)),
    ], lambda report: got.__setitem__(report.run.id, report))
thread = threading.Thread(target=submit)
thread.start()
thread.join()
with gevent.Timeout(60):
    while len(got) < 4:
        gevent.sleep(0.01)
    executor.shutdown()
assert got["nap"].value == "rested", got
assert got["coroutine"].value == "from a coroutine", got
assert isinstance(got["slow"].exception, RunTimeout), got
assert isinstance(got["endless"].exception, RunTimeout), got
print("fine")
"""


def test_it_works_in_a_monkey_patched_program() -> None:
    done = subprocess.run([sys.executable, "-c", MONKEY], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr
