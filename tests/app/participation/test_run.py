"""`app.run()`: in the foreground of any thread, until a signal or `app.stop()`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

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


PROGRAM = """
import sys, time
from pathlib import Path
from mainspring import Mainspring

app = Mainspring("sqlite:///jobs.db")

@app.task
def work():
    print("began", flush=True)
    while not Path("gate").exists():
        time.sleep(0.01)
    print("ended", flush=True)

if __name__ == "__main__":
    if "idle" not in sys.argv:
        work.enqueue()
    else:
        app.on_worker_start(lambda: print("began", flush=True))
    app.run()
"""


class Program:
    """A program that calls `app.run()`, at a terminal where somebody presses Ctrl-C."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "program.py").write_text(PROGRAM)
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "program.py", *words],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"no {text!r} in {self.lines}")

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, "".join(self.lines) + rest


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    with ExitStack() as stack:

        def start(*words: str) -> Program:
            made = Program(tmp_path, *words)
            stack.callback(made.process.wait)
            stack.callback(made.process.kill)
            return made

        yield start


def test_ctrl_c_says_what_it_waits_for_and_lets_that_end(program: Callable[..., Program]) -> None:
    running = program()
    running.read_until("began")
    running.press_ctrl_c()
    running.read_until("stopping: letting 1 run end; Ctrl-C again to stop now")
    (running.folder / "gate").touch()
    code, text = running.end()
    assert code == 0
    assert "ended" in text
    assert "Traceback" not in text


def test_a_second_ctrl_c_ends_it_at_once_and_loses_nothing(program: Callable[..., Program]) -> None:
    running = program()
    running.read_until("began")
    running.press_ctrl_c()
    running.read_until("Ctrl-C again to stop now")
    running.press_ctrl_c()
    code, text = running.end()
    assert code == 130
    assert "stopping now: other workers take over" in text
    assert "Traceback" not in text
    with Mainspring(f"sqlite:///{running.folder}/jobs.db") as app:
        (run,) = app.find()
        assert run.status in ("running", "pending")  # it is taken over once its lease has ended


def test_a_terminal_and_its_supervisor_may_both_ask(program: Callable[..., Program]) -> None:
    running = program()
    running.read_until("began")
    running.press_ctrl_c()
    running.read_until("Ctrl-C again to stop now")
    running.process.send_signal(signal.SIGTERM)
    (running.folder / "gate").touch()
    code, text = running.end()
    assert (code, "ended" in text) == (0, True)


def test_an_idle_program_ends_at_ctrl_c_without_a_word(program: Callable[..., Program]) -> None:
    running = program("idle")
    running.read_until("began")
    running.press_ctrl_c()
    assert running.end() == (0, "began\n")
