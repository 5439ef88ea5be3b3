"""Functions for executors to execute; a child process can import them, too."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mainspring.errors import Cancel
from mainspring.executors.current_run import current_run


def add(a: int, b: int = 0) -> int:
    return a + b


def nothing() -> None:
    return None


def fail(text: str = "no") -> NoReturn:
    raise ValueError(text)


def give_up() -> NoReturn:
    raise Cancel("not wanted")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I will not say")


class Rude(Exception):
    def __str__(self) -> str:
        raise SystemExit("I leave")


class Formatting(Exception):
    """Takes something else than it passes on: a plain pickle of it doubles its text."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Demanding(Exception):
    """Takes more than it passes on: a plain pickle of it cannot be restored."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.two = two


def raise_named(name: str) -> NoReturn:
    errors: dict[str, BaseException] = {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "unprintable": Unprintable(),
        "rude": Rude(),
        "formatting": Formatting(7),
        "demanding": Demanding("this", "that"),
    }
    raise errors[name]


def raise_cyclic() -> NoReturn:
    one, two = ValueError("x" * 100_000), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


async def add_later(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


async def fail_later() -> NoReturn:
    await asyncio.sleep(0)
    raise ValueError("later")


async def exit_later() -> NoReturn:
    await asyncio.sleep(0)
    raise SystemExit(4)


async def sleep_forever(begun: str | None = None) -> None:
    if begun:
        Path(begun).touch()
    await asyncio.sleep(1e6)


async def swallow_cancellation(release: threading.Event) -> str:
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "after all"


async def leave_a_task_behind(seen: list[str]) -> None:
    async def linger() -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(linger())
    await asyncio.sleep(0)
    seen.append("pending" if not task.done() else "done")


def spin(begun: str | None = None) -> None:
    """Execute Python code for ever, but never block."""
    if begun:
        Path(begun).touch()
    while True:
        time.sleep(0.001)


def touch(path: str) -> None:
    Path(path).touch()


def wait_for_file(path: str, begun: str | None = None) -> str:
    if begun:
        Path(begun).touch()
    while not Path(path).exists():
        time.sleep(0.005)
    return "seen"


def sleep_in_c(seconds: float, begun: str | None = None) -> str:
    if begun:
        Path(begun).touch()
    time.sleep(seconds)
    return "slept"


def pid() -> int:
    return os.getpid()


def open_sockets() -> list[int]:
    """Return the inodes of all sockets that this process holds, after a moment in which others may start."""
    time.sleep(0.01)
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that lists the folder
        if target.startswith("socket:["):
            found.append(int(target[8:-1]))
    return found


def write_into_sockets() -> None:
    """Write a message that nobody understands into every socket of this process, then wait."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:["):
                os.write(int(name), b"\0\0\0\4nope")
    time.sleep(600)


def leave(code: int) -> NoReturn:
    os._exit(code)


def tell_pid_and_wait(path: str) -> None:
    temporary = Path(path + ".new")
    temporary.write_text(str(os.getpid()))
    temporary.rename(path)
    while True:
        time.sleep(0.05)


def start_a_grandchild_and_wait(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    temporary = Path(path + ".new")
    temporary.write_text(str(child.pid))
    temporary.rename(path)
    child.wait()


def fork_and_die(path: str) -> None:
    """Leave a grandchild that holds every pipe of this process open."""
    pid = os.fork()
    if pid == 0:
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    while not Path(path).exists() or not Path(path).read_text():
        time.sleep(0.005)
    os._exit(9)


def fork_and(how: str, wait: bool = True) -> int:
    """Fork; the child does not leave by os._exit. Return its exit code, -9 if it has to be killed, or at once."""
    child = os.fork()
    if child == 0:
        if how == "return":
            return -1
        if how == "raise":
            raise ValueError("in the forked process")
        sys.exit(3)
    deadline = time.monotonic() + 20
    while wait and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    if not wait:
        return 0
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def fork_and_later(how: str) -> int:
    return fork_and(how)


def note(path: str, text: str) -> None:
    """Add a line to a file, in one write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def talk_while_returning(size: int) -> str:
    """Report progress from another thread for as long as the result is under way."""
    run = current_run()

    def talk() -> None:
        for number in range(2000):
            run.progress(number, text="x" * 4000)

    threading.Thread(target=talk, daemon=True).start()
    return "y" * size


def fork_and_talk() -> None:
    """Report progress in a forked process, and from this one."""
    run = current_run()
    child = os.fork()
    if child == 0:
        for _ in range(100):
            run.progress(999)
        os._exit(0)
    os.waitpid(child, 0)
    run.progress(1)


def unpicklable_result() -> Any:
    return threading.Lock()


def raise_local() -> NoReturn:
    class Local(Exception):
        pass

    raise Local("nobody can import me")


def refuse() -> NoReturn:
    raise RuntimeError("the initializer refuses")


_set_by_initializer: list[str] = []


def initialize(text: str) -> None:
    _set_by_initializer.append(text)


def initialized() -> list[str]:
    return list(_set_by_initializer)


class Unloadable:
    """Can be pickled, but not restored."""

    def __reduce__(self) -> Any:
        return (fail, ("cannot be restored",))


def take(value: Any) -> None:
    return None


def give_unloadable() -> Unloadable:
    return Unloadable()
