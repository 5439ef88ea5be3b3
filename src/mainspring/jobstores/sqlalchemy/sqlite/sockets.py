"""Wake the processes that share a SQLite file: each has a datagram socket in a private folder beside the file."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Final

from mainspring.jobstores.base import RUNS_STEP
from mainspring.jobstores.sqlalchemy.waking import Waker, log

__all__ = ["SocketWaker"]

_ANYTHING, _RUNS = b".", b"r"
"""The two datagrams: anything may have changed, or only runs have."""

SHORTEST_QUEUE: Final = 10
"""A socket holds at least this many datagrams (Linux: net.unix.max_dgram_qlen)."""
FRESH_NS: Final = 50_000_000  # a second change of a folder within this many ns may not show in its timestamp
SOCKETLESS_LOOK_SECONDS: Final = 0.05
"""Without a socket, look for ends of runs this often, by a number that changes with every write to the file."""


class SocketWaker(Waker):
    """Wakes other processes by datagrams; also polls once a second, in case a datagram was lost."""

    def __init__(self, path: str | None, tablename: str, look_every: float | None = 1.0) -> None:
        super().__init__()
        self.look_every = look_every
        self.data_version: Callable[[], int] = int
        self._seen = 0
        self._look_at = 0.0 if look_every else math.inf
        """When to look for changes without a datagram, even if datagrams about other changes come all the time."""
        # A suffix that SQLite itself does not use.
        self._folder = None if path is None else f"{path}-wake"
        if not hasattr(socket, "AF_UNIX"):
            self._do_without()
        self._name = f"{tablename}.{os.getpid()}.{secrets.token_hex(4)}"
        self._prefix = f"{tablename}."
        self._descriptor: int | None = None
        self._socket: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._others: list[str] = []
        self._listed_at = 0

    def prepare(self) -> None:
        """Open this node's socket."""
        if self._socket is not None or self._folder is None:
            return
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.setblocking(False)
        try:
            self._bind(own)
        except OSError as error:
            own.close()
            log.info("cannot open a socket beside the file, so this process polls for changes: %s", error)
            self._do_without()
            return
        self._socket = own
        if self.look_every is not None:
            self._seen = self.data_version()
        self.move()  # changes before the socket existed may have been missed

    def _do_without(self) -> None:
        if self._folder is not None and self.look_every is None:
            self.look_every = SOCKETLESS_LOOK_SECONDS
        self._folder = None

    def _bind(self, own: socket.socket) -> None:
        assert self._folder is not None
        for left in (2, 1, 0):
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                own.bind(self._address(self._name))
                return
            except FileNotFoundError:  # the last of the other nodes has just removed the folder
                if not left:
                    raise
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None

    def end(self) -> None:
        """Remove this node's socket, and also the folder if this was the last socket."""
        self.deafen()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)

    def deafen(self) -> None:
        if self._socket is not None:
            self._socket.close()
            with contextlib.suppress(OSError):
                os.unlink(self._address(self._name))
            self._socket = None

    def fileno(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def receive(self) -> int:
        assert self._socket is not None
        step = number = 0
        with contextlib.suppress(OSError):
            while word := self._socket.recv(16):
                step += RUNS_STEP if word == _RUNS else 1
                number += 1
        # A full queue drops further datagrams, which may have been about anything. And not every process can send to
        # this one.
        if not 0 < number < SHORTEST_QUEUE or (self._look_at <= time.monotonic() and self.look()):
            step |= 1
        return step

    def look(self) -> int:
        self._look_at = time.monotonic() + (self.look_every or math.inf)
        version = self.data_version()
        changed = version != self._seen
        self._seen = version
        return int(changed)

    def tell(self, step: int) -> None:
        """Send a datagram to every other node; remove the sockets of dead ones."""
        if self._folder is None or not (self._others or os.access(self._folder, os.F_OK)):
            return  # no node has a socket
        try:
            if os.stat(self._folder).st_mtime_ns + FRESH_NS > self._listed_at:
                self._listed_at = time.time_ns()
                self._others = os.listdir(self._folder)
        except OSError:  # the last node has removed its socket
            self._others = []
            return
        word = _ANYTHING if step % RUNS_STEP else _RUNS
        for name in self._others:
            if name == self._name or not name.startswith(self._prefix):
                continue
            if self._sender is None:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._sender.setblocking(False)
            try:
                self._sender.sendto(word, self._address(name))
            except OSError as error:
                if error.errno == errno.ECONNREFUSED:
                    with contextlib.suppress(OSError):
                        os.unlink(self._address(name))

    def _address(self, name: str) -> str:
        """Return the path of a socket; a long one goes through the open folder, because the limit is 107 bytes."""
        assert self._folder is not None
        if len(os.fsencode(self._folder)) + len(name) < 100:
            return f"{self._folder}/{name}"
        if self._descriptor is None:
            self._descriptor = os.open(self._folder, os.O_RDONLY)
        return f"/proc/self/fd/{self._descriptor}/{name}"
