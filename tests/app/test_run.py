"""`app.run()`: in the foreground of any thread, until a signal or `app.stop()`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from mainspring import Mainspring
from mainspring.errors import SchedulerAlreadyRunningError
from tests.app.kit import LIMIT, LOCAL, Gate


def in_a_thread(func: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=func)
    thread.start()
    return thread


@LOCAL
def test_it_works_off_the_main_thread_until_the_app_is_stopped(app: Mainspring) -> None:
    gate, ended = Gate(), threading.Event()

    @app.task
    def work() -> int:
        gate.wait()
        ended.set()
        return 5

    handle = work.enqueue()
    runner = in_a_thread(app.run)
    gate.reached()
    stopper = in_a_thread(app.stop)
    gate.open()
    runner.join(LIMIT)
    stopper.join(LIMIT)
    assert not runner.is_alive()
    assert ended.is_set()
    assert not app.running
    assert handle.fetch().result == 5


@LOCAL
def test_a_task_may_stop_it(app: Mainspring) -> None:
    @app.task
    def stop() -> None:
        app.stop()

    handle = stop.enqueue()
    runner = in_a_thread(app.run)
    runner.join(LIMIT)
    assert not runner.is_alive()
    assert handle.wait(timeout=LIMIT).status == "succeeded"


@LOCAL
def test_it_works_on_the_main_thread_until_a_signal(app: Mainspring) -> None:
    before = signal.getsignal(signal.SIGTERM)

    @app.task
    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    handle = end.enqueue()
    app.run()
    assert not app.running
    assert handle.fetch().status == "succeeded"
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_keeps_it_from_starting_leaves_signals_as_they_were(
    make_app: Callable[..., Mainspring], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ConnectionError("the store is away")

    app = make_app()
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(app, "start", fail)
    with pytest.raises(ConnectionError):
        app.run()
    assert signal.getsignal(signal.SIGTERM) is before


@LOCAL
def test_a_second_run_that_is_refused_does_not_keep_the_first_from_ending(app: Mainspring) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    runner = in_a_thread(app.run)
    handle.wait(timeout=LIMIT)
    with pytest.raises(SchedulerAlreadyRunningError):
        app.run()
    app.stop()
    runner.join(LIMIT)
    assert not runner.is_alive()
