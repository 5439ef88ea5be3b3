"""The parent's side of a child process: start it, wait for it, kill it with all it started, reap it."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any, Final

import msgspec

from mainspring.executors.processes import child as _child
from mainspring.executors.processes.channel import Message, decode, encode

__all__ = ["STARTING", "Child", "ChildGone", "open_pidfd"]

STARTING: Final = threading.Lock()
"""Hold this while starting or reaping a child: a fork must not copy another child's end of a pipe, and two threads
must not wait for the same process."""

_LEAVE_SECONDS: Final = 5.0
_LONGEST_POLL_SECONDS: Final = 1_000_000.0

_our_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


class ChildGone(Exception):
    """The child has ended."""


class Child:
    """One child process and the pipe to it. Only the thread that started it talks to it; any thread may kill it."""

    def __init__(self, context: BaseContext, name: str, options: Mapping[str, Any]) -> None:
        initializer, initargs = options.get("initializer"), tuple(options.get("initargs", ()))
        self.pipe, theirs = context.Pipe()
        try:
            _our_ends.add(self.pipe)
            forked = context.get_start_method() == "fork"
            strangers = tuple(_our_ends) if forked else ()
            self._process: Any = context.Process(  # type: ignore[attr-defined]
                target=_child.serve, args=(theirs, initializer, initargs, strangers), name=name, daemon=False
            )
            self._process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        self.runs = 0
        self._lock = threading.Lock()
        self._reaped = False
        self._code: int | None = None
        self._pidfd = open_pidfd(self.pid)
        self._poller = _poller(self.pipe.fileno(), self._end)

    @property
    def _end(self) -> int:
        """A file that becomes readable when the process ends; a grandchild may hold the sentinel open, no pidfd."""
        sentinel: int = self._process.sentinel
        return sentinel if self._pidfd is None else self._pidfd

    def receive(self, timeout: float | None) -> Message | None:
        """Return the next message, None after `timeout` seconds; raise ChildGone if the child has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = (
                _LONGEST_POLL_SECONDS if deadline is None else min(deadline - time.monotonic(), _LONGEST_POLL_SECONDS)
            )
            speaks, ended = self._wait(max(0.0, left))
            if speaks:
                try:
                    return decode(self.pipe.recv_bytes())
                except (EOFError, OSError) as error:
                    raise ChildGone from error
                except msgspec.DecodeError as error:  # the task has written into our pipe
                    self.kill()
                    raise ChildGone from error
            if ended:
                raise ChildGone
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def send(self, message: Message) -> None:
        """Send a message; raise ChildGone if the child has ended."""
        try:
            self.pipe.send_bytes(encode(message))
        except OSError as error:
            raise ChildGone from error

    def is_gone(self) -> bool:
        """Return True if an idle child has ended."""
        return any(self._wait(0.0))

    def kill(self) -> None:
        """Kill the process and its group, unless it was reaped."""
        with self._lock:
            if not self._reaped:
                _kill(self.pid, self._process)

    def dismiss(self) -> int | None:
        """Wait for the child to end, kill it if that takes too long, and return its exit code."""
        self.pipe.close()  # a living child then ends
        if self._reaped:
            return self._code
        wait([self._end], _LEAVE_SECONDS)
        self.kill()
        wait([self._end])
        with self._lock, STARTING:
            self._process.join()
            self._code = self._exitcode()
            self._reaped = True
            if self._pidfd is not None:
                os.close(self._pidfd)
        return self._code

    def _exitcode(self) -> int | None:
        # Another thread that starts a process reaps all ended ones, and may not have stored the exit code yet.
        for _ in range(100):
            code: int | None = self._process.exitcode
            if code is not None:
                return code
            time.sleep(0.01)
        return None

    def _wait(self, timeout: float) -> tuple[bool, bool]:
        """Wait until the child sends or ends; return both as flags."""
        if self._poller is None:
            ready = wait([self.pipe, self._end], timeout)
            return self.pipe in ready, self._end in ready
        # Round up: a time-out that ends early would make the caller spin.
        ready_fds = {fd for fd, _ in self._poller.poll(int(timeout * 1000) + (timeout > 0))}
        return self.pipe.fileno() in ready_fds, self._end in ready_fds


def _poller(*fds: int) -> Any:
    """Return a poll object, which costs half as much as `wait`; None where the system has none."""
    if not hasattr(select, "poll"):
        return None
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return poller


def open_pidfd(pid: int) -> int | None:
    """Open a file that becomes readable when a process ends; return None where the system has no such files."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _kill(pid: int, process: Any) -> None:
    if not hasattr(os, "killpg"):
        process.kill()
        return
    try:
        # The child becomes the leader of a new group; until then, killing its group would kill ours.
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended
