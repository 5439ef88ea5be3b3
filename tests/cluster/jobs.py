"""The app that the clusters of these tests execute: copied into a folder of its own and imported from there."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from mainspring import Mainspring
from mainspring.executors.current_run import current_run

FOLDER = Path(os.environ["JOBS_FOLDER"])
app = Mainspring(
    name=os.environ["JOBS_NAME"],
    lease=float(os.environ.get("JOBS_LEASE", "15")),
    queues=["side", "other"],
    require=os.environ.get("JOBS_REQUIRE"),
)
log = logging.getLogger("jobs")
_ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(word: str) -> None:
    """Write a line that survives any death of this process."""
    run = current_run()
    os.write(_ledger, f"{word} {run.id} {run.attempt} {os.getpid()}\n".encode())


def pass_gate(gate: str) -> None:
    while not (FOLDER / gate).exists():
        time.sleep(0.01)


def no_transaction() -> AbstractContextManager[Any]:
    """Keep the other threads out of SQLite's transactions, in which holding the interpreter locks everybody out."""
    turn: AbstractContextManager[Any] = getattr(getattr(app.store, "_opened", None), "_turn", nullcontext())
    return turn


@app.on("post_spawn")
def spawned(name: str) -> None:
    os.write(_ledger, f"spawned {name} 0 {os.getpid()}\n".encode())


@app.task(retries=3, backoff=(0.05,))
def ok(value: int = 0) -> int:
    note("ok")
    return value


@app.task
def at_gate(gate: str) -> str:
    """Wait for a file."""
    note("began")
    pass_gate(gate)
    note("ended")
    return gate


@app.task(isolation="process")
def at_gate_apart(gate: str) -> str:
    note("began")
    pass_gate(gate)
    note("ended")
    return gate


@app.task(delivery="at_most_once")
def at_gate_once(gate: str) -> str:
    note("began")
    pass_gate(gate)
    note("ended")
    return gate


@app.task
async def at_gate_async(gate: str) -> str:
    note("began")
    while not (FOLDER / gate).exists():
        await asyncio.sleep(0.01)
    note("ended")
    return gate


def waiting_at(gate: str) -> Callable[[], str]:
    """Return a function that no import finds."""

    def wait() -> str:
        note("began")
        pass_gate(gate)
        note("ended")
        return gate

    return wait


class Gatekeeper:
    def wait(self) -> str:
        return waiting_at("gate")()


closure = app.task(name="closure")(waiting_at("gate"))
bound = app.task(name="bound method")(Gatekeeper().wait)
nameless = app.task(name="lambda")(lambda: waiting_at("gate")())
closure_apart = app.task(name="closure apart", isolation="process")(waiting_at("gate"))


@app.task
def fail() -> None:
    note("failed")
    raise ValueError("as asked")


@app.task(retries=5, backoff=(0.02,))
def flaky(failures: int) -> int:
    """Fail so many times, then succeed."""
    note("tried")
    before = current_run().record.failures
    if before < failures:
        raise ValueError(f"failure {before + 1}")
    return before


@app.task
def quick(seconds: float) -> None:
    note("began")
    time.sleep(seconds)
    note("ended")


@app.task
async def nap(seconds: float) -> None:
    note("began")
    await asyncio.sleep(seconds)
    note("ended")


@app.task
def leave(code: int = 1) -> None:
    """End the interpreter, without a word."""
    note("leaves")
    os._exit(code)


@app.task
def leave_once(code: int) -> str:
    note("leaves")
    if current_run().attempt == 1:
        os._exit(code)
    return "stayed"


@app.task(delivery="at_most_once")
def fork_and_forget(how: str) -> None:
    """Fork, and let the forked process leave the function in some way."""
    note("forks")
    if os.fork() == 0:
        if how == "return":
            return
        if how == "raise":
            raise ValueError("in the forked process")
        sys.exit(3)


@app.task(delivery="at_most_once")
def once() -> None:
    note("once")
    time.sleep(0.01)


@app.task
def crash() -> None:
    """Violate memory."""
    note("crashes")
    ctypes.string_at(0)


@app.task
def loop_for_ever() -> None:
    note("hangs")
    while True:
        time.sleep(0.001)


@app.task(isolation="process")
def loop_for_ever_apart() -> None:
    note("hangs")
    while True:
        time.sleep(0.001)


@app.task
def hold_interpreter(seconds: int) -> str:
    """Sit in C code without letting go of the interpreter lock."""
    with no_transaction():
        note("holds")
        ctypes.PyDLL(None).sleep(seconds)
    note("held")
    return "held"


@app.task
def hold_interpreter_at(pipe: str) -> str:
    """Sit in C code without letting go of the interpreter lock until somebody opens the pipe."""
    with no_transaction():
        note("holds")
        while ctypes.PyDLL(None).open(bytes(FOLDER / pipe), os.O_RDONLY) < 0:
            pass  # a signal came
    note("held")
    return "held"


@app.task
def sleep_in_c(seconds: int) -> None:
    """Sit in C code, which sees no exception."""
    note("holds")
    time.sleep(seconds)


@app.task
async def block_loop(seconds: int) -> None:
    """Sit in C code on the event loop."""
    note("holds")
    time.sleep(seconds)


@app.task(retries=1, backoff=(0.05,), timeout=1)
def hold_interpreter_once() -> str:
    note("holds")
    if current_run().attempt == 1:
        with no_transaction():
            ctypes.PyDLL(None).sleep(600)
    return "quick this time"


@app.task
def hold_interpreter_and_database() -> str:
    """Do what happens when a thread of the worker is inside a transaction of SQLite's just then."""
    note("holds")
    if not (FOLDER / "held").exists():
        (FOLDER / "held").touch()
        other = sqlite3.connect(FOLDER / "jobs.db")
        other.execute("BEGIN IMMEDIATE")
        ctypes.PyDLL(None).sleep(600)
    return "quick this time"


@app.task
async def swallow_cancellation() -> None:
    note("hangs")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note("swallows")


@app.task(retries=1, backoff=(0.05,), timeout=0.5)
def slow_once() -> str:
    note("tried")
    if current_run().attempt == 1:
        time.sleep(600)
    return "quick this time"


@app.task
def have_more(count: int) -> int:
    """Enqueue others, under names of their own: a second attempt adds none."""
    note("parent")
    name = current_run().id
    app.enqueue_many([ok.options(id=f"{name}-{number}").call(number) for number in range(count)])
    return count


@app.task
def report(gate: str) -> None:
    run = current_run()
    run.progress(3, 10, "a third")
    run.update(seen="data")
    log.warning("a line of the task's own log")
    note("began")
    pass_gate(gate)


@app.task
def grow(megabytes: int, hoard: list[bytes] = []) -> None:  # noqa: B006
    """Use memory and keep it."""
    hoard.append(b"x" * megabytes * 1_000_000)
    note("grew")


@app.task
def start_program(gate: str) -> None:
    """Leave a program running, and wait."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note(f"program:{program.pid}")
    pass_gate(gate)


@app.task
def leave_program(gate: str) -> None:
    """Start a program through a shell that ends at once, so that the program loses its parent; it ends at the gate."""
    wait = 'while [ ! -e "$0" ]; do sleep 0.05; done'
    shell = ["sh", "-c", 'sh -c "$1" "$0" & echo $!', str(FOLDER / gate), wait]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        note(f"program:{program.stdout.readline().strip()}")


@app.task(queue="side")
def count_inside() -> None:
    """Note when it is inside, so that overlaps can be counted."""
    note("in")
    time.sleep(0.03)
    note("out")


POOL: dict[str, object] = {}


@app.on("post_spawn")
async def open_pool(name: str) -> None:
    await asyncio.sleep(0)
    POOL["loop"] = asyncio.get_running_loop()


@app.task
async def pool_is_ours() -> bool:
    """Tell whether what a coroutine opened when the worker started belongs to the loop of the tasks."""
    return POOL.get("loop") is asyncio.get_running_loop()


@app.task
def close_app(how: str) -> str:
    """Do to the app what belongs to whoever started it."""
    note("closes")
    if how == "with":
        with app:
            ok.enqueue(1)
    elif how == "thread":
        thread = threading.Thread(target=app.close)
        thread.start()
        thread.join()
    else:
        getattr(app, how)()
    return how


@app.task
async def close_app_async() -> None:
    note("closes")
    await app.aio.close()


@app.task
def terminate_children(count: int) -> list[int | None]:
    """Fork children and terminate each at once; answer how they ended."""
    fork = multiprocessing.get_context("fork")
    codes = []
    for _ in range(count):
        child = fork.Process(target=time.sleep, args=(600,))
        child.start()
        child.terminate()
        child.join(20)
        codes.append(child.exitcode)
        child.kill()
    return codes
