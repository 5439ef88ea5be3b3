"""BlockingScheduler: the whole program."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from mainspring.schedulers.blocking import BlockingScheduler
from tests.schedulers.compat.kit import LIMIT, in_time, wait_for
from tests.schedulers.kit import Program, end


def test_start_returns_after_shutdown_from_another_thread() -> None:
    scheduler, ran = BlockingScheduler(timezone="UTC"), threading.Event()
    scheduler.add_job(ran.set)
    thread = threading.Thread(target=scheduler.start, daemon=True)
    thread.start()
    wait_for(ran)
    in_time(scheduler.shutdown)
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert not scheduler.running


@pytest.mark.parametrize("wait", [True, False])
def test_start_returns_after_shutdown_from_a_job(wait: bool) -> None:
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_job(scheduler.shutdown, kwargs={"wait": wait})
    in_time(scheduler.start)
    assert not scheduler.running


def test_start_returns_after_shutdown_from_a_listener() -> None:
    from mainspring.events import EVENT_JOB_EXECUTED

    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_listener(lambda event: scheduler.shutdown(), EVENT_JOB_EXECUTED)
    scheduler.add_job(print)
    in_time(scheduler.start)


def test_it_can_be_started_again() -> None:
    scheduler = BlockingScheduler(timezone="UTC")
    for _ in range(3):
        scheduler.add_job(scheduler.shutdown, kwargs={"wait": False})
        in_time(scheduler.start)


def test_a_start_that_fails_can_be_repeated() -> None:
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_job(print, jobstore="nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        scheduler.start()
    scheduler.remove_all_jobs()
    scheduler.add_job(scheduler.shutdown, kwargs={"wait": False})
    in_time(scheduler.start)


def test_a_second_start_is_refused_and_the_first_still_returns() -> None:
    scheduler, ran = BlockingScheduler(timezone="UTC"), threading.Event()
    scheduler.add_job(ran.set)
    thread = threading.Thread(target=scheduler.start, daemon=True)
    thread.start()
    wait_for(ran)
    with pytest.raises(RuntimeError, match="already running"):
        scheduler.start()
    in_time(scheduler.shutdown)
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_it_is_not_for_a_with_statement() -> None:
    with pytest.raises(TypeError, match="BackgroundScheduler"), BlockingScheduler(timezone="UTC"):
        pass


CTRL_C = """
    import sys, time
    from mainspring.schedulers.blocking import BlockingScheduler

    def work():
        print("began")
        time.sleep(0.5)
        print("ended")

    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_job(work)
    try:
        scheduler.start()
    except (KeyboardInterrupt, SystemExit):
        print("interrupted", scheduler.running)
"""


def test_ctrl_c_lets_what_runs_end_and_leaves_the_program_to_its_author(tmp_path: Path) -> None:
    process = Program(tmp_path, CTRL_C).start()
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    assert end(process).splitlines() == ["ended", "interrupted False"]


@pytest.mark.parametrize("thread", ["mainspring-work", "mainspring-care", "mainspring-listen"])
def test_ctrl_c_before_a_thread_has_started_ends_the_start(thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        if self.name.startswith(thread):
            raise KeyboardInterrupt
        start(self)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    scheduler = BlockingScheduler(timezone="UTC")
    with pytest.raises(KeyboardInterrupt):
        scheduler.start()
    assert not scheduler.running


def test_a_program_may_shut_down_what_ctrl_c_has_ended(tmp_path: Path) -> None:
    source = CTRL_C.replace('print("interrupted", scheduler.running)', 'scheduler.shutdown(); print("shut down")')
    process = Program(tmp_path, source).start()
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    assert end(process).splitlines() == ["ended", "shut down"]
