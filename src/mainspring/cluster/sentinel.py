"""The sentinel: starts worker processes, renews what they have claimed, replaces the dead, settles what they left."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from mainspring.cluster.keeper import Keeper, Left
from mainspring.cluster.settings import ClusterStat, Settings, WorkerStat, find_app
from mainspring.cluster.worker import main as work
from mainspring.errors import ConfigurationError
from mainspring.executors.board import Board

__all__ = ["Sentinel"]

TICK: Final = 1.0
QUICK_DEATH: Final = 10.0
"""A worker that died within so many seconds is replaced ever more slowly."""
LONGEST_PAUSE: Final = 30.0
DRAIN_STUCK: Final = 10.0
"""Seconds that the neighbours of a stuck run are given to end."""

log = logging.getLogger("mainspring.cluster")


class Sentinel:
    """Supervises the worker processes of one machine; `run` returns when they have all ended."""

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[ClusterStat], None] | None = None,
        parent: Connection | None = None,
    ) -> None:
        if settings.start_method not in multiprocessing.get_all_start_methods():
            methods = ", ".join(multiprocessing.get_all_start_methods())
            raise ConfigurationError(f"start_method is {settings.start_method!r}; here there are {methods}")
        self.settings = settings
        self.app = find_app(settings.app)
        _ = self.app.store  # a wrong URL or a missing driver is said here, once, and not by every worker
        self.state = "starting"
        self._tell = tell or (lambda stat: None)
        self._parent = parent
        self._context: Any = multiprocessing.get_context(settings.start_method)
        self._slots = [Slot(number) for number in range(settings.size)]
        self._signals = 0
        self._deadline = float("inf")
        self._started_at = time.time()
        self._told: ClusterStat | None = None
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        self._bell.setblocking(False)

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Supervise until stopped; return the exit code."""
        handlers = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        wakeup = signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        self._keeper = Keeper(self.app, lambda: [slot.left for slot in self._slots if slot.left is not None])
        try:
            with tempfile.TemporaryDirectory(prefix="mainspring-") as folder:
                self._folder = Path(folder)
                return self._supervise()
        finally:
            self._kill_all()
            self._keeper.close()
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._bell.close()
            self._ringer.close()
            self.app.close()

    def stop(self) -> None:
        """Have the workers end, as after a first SIGTERM; safe from any thread."""
        self._signals += 1
        self._ring()

    def _signalled(self, number: int, frame: Any) -> None:
        self._signals += 1

    def _ring(self) -> None:
        with suppress(OSError):
            self._ringer.send(b"!")

    def _supervise(self) -> int:
        self._keeper.start()
        stopping_now = False
        while True:
            self._start_missing()
            self._look_at_deadlines()
            self._show()
            if self.state == "stopping" and not any(slot.left for slot in self._slots):
                self.state = "stopped"
                self._show()
                return 1 if stopping_now else 0
            if self.settings.burst and all(slot.finished for slot in self._slots):
                self.state = "stopping"
                continue
            self._listen()
            if self._signals and self.state != "stopping":
                self._begin_to_stop()
            elif self._signals > 1 and not stopping_now:
                log.warning("a second signal: the workers are killed, what they executed is recovered by others")
                stopping_now = True
                self._kill_all()
            if time.monotonic() > self._deadline:
                log.warning("what still ran after %g s is given back", self.settings.grace)
                self._deadline = float("inf")
                self._kill_all()

    def _begin_to_stop(self) -> None:
        self.state = "stopping"
        self._deadline = time.monotonic() + self.settings.grace
        log.info("stopping: what runs may end, what has not started is given back")
        for slot in self._slots:
            slot.ask_to_stop()

    # -- workers -----------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        if self.state == "stopping":
            return
        for slot in self._slots:
            if slot.left is None and not slot.finished and time.monotonic() >= slot.start_at:
                self._start(slot)
        if self.state == "starting" and all(slot.ready for slot in self._slots):
            self.state = "running"

    def _start(self, slot: Slot) -> None:
        slot.starts += 1
        path = str(self._folder / f"board-{slot.number}-{slot.starts}")
        board = Board(path, self.settings.threads + min(self.settings.coroutines, 256))
        ours, theirs = self._context.Pipe()
        strangers = [each.left.pipe for each in self._slots if each.left is not None] + [ours]
        process = self._context.Process(
            target=work,
            args=(self.settings, theirs, path, slot.number, strangers if self.settings.start_method == "fork" else ()),
            name=f"mainspring-worker-{slot.number}",
        )
        try:
            process.start()
        finally:
            theirs.close()
        slot.left = Left(process, ours, board, path)
        log.info("worker %s started as process %s", slot.number, process.pid)

    def _listen(self) -> None:
        """Wait for words, deaths, signals."""
        ends: dict[Any, Slot] = {}
        for slot in self._slots:
            if slot.left is not None:
                ends[slot.left.pipe] = slot
                ends[slot.left.process.sentinel] = slot
        parent = [] if self._parent is None else [self._parent]
        ready = wait([*ends, *parent, self._bell], self._patience())
        if self._bell in ready:
            with suppress(OSError):
                self._bell.recv(4096)
        if self._parent in ready:  # it never says anything: it is gone
            log.warning("the process that started the cluster is gone")
            self._parent = None
            self._signals += 1
        for slot in dict.fromkeys(ends[end] for end in ready if end in ends):
            left = slot.left
            if left is None:
                continue
            left.hear()
            if left.has_ended():
                self._bury(slot, left)

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [slot.start_at - now for slot in self._slots if slot.left is None and not slot.finished]
        return max(0.0, min([TICK, self._deadline - now, *waits]))

    def _bury(self, slot: Slot, left: Left) -> None:
        """Replace a worker that has ended, and see to what it left."""
        code = left.reap()
        slot.left = None
        lived = time.monotonic() - left.started_at
        if left.draining is not None and code == 0:
            log.info("worker %s (process %s) has ended: %s", slot.number, left.pid, left.draining)
        else:
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            log.error("worker %s (process %s) ended %s after %.1f s", slot.number, left.pid, how, lived)
        self._keeper.settle(left, code)
        left.close()
        if self.settings.burst and code == 0:
            slot.finished = True
        if left.killed or code == 0:
            slot.quick_deaths = 0
            return
        slot.quick_deaths = slot.quick_deaths + 1 if lived < QUICK_DEATH else 0
        pause = min(LONGEST_PAUSE, 0.5 * 2.0 ** (slot.quick_deaths - 1)) if slot.quick_deaths else 0.0
        slot.start_at = time.monotonic() + pause
        if pause >= 1:
            log.error("worker %s dies at once; the next try is in %.0f s", slot.number, pause)

    def _look_at_deadlines(self) -> None:
        """Kill workers whose run is past its time-out and cannot be stopped from inside."""
        now = time.monotonic()
        for slot in self._slots:
            left = slot.left
            if left is None or left.killed or not left.claims:
                continue
            late = [run.run_id for run in left.board.read() if now > run.deadline + self.settings.timeout_grace]
            if late:
                left.timed_out.update(late)
            if not left.timed_out:
                continue
            if left.stuck_since is None:
                left.stuck_since = now
                slot.ask_to_stop()
            alone = left.claims.keys() <= left.timed_out
            # A process that holds the interpreter lock cannot even say that it drains.
            deaf = left.draining is None and now - left.stuck_since > 1.0
            if alone or deaf or now - left.stuck_since > DRAIN_STUCK:
                log.error("process %s is killed: run %s is past its time-out", left.pid, ", ".join(left.timed_out))
                left.kill()

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.left is not None:
                slot.left.kill()

    # -- showing -----------------------------------------------------------------------------------------------

    @property
    def stat(self) -> ClusterStat:
        """What there is to see."""
        workers = [slot.stat() for slot in self._slots]
        found = tuple(stat for stat in workers if stat is not None)
        return ClusterStat(pid=os.getpid(), state=self.state, started_at=self._started_at, workers=found)

    def _show(self) -> None:
        stat = self.stat
        if stat != self._told:
            self._told = stat
            self._tell(stat)


class Slot:
    """The place of one worker: who is in it, and when the next may start."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.left: Left | None = None
        self.starts = 0
        self.start_at = 0.0
        self.quick_deaths = 0
        self.finished = False

    @property
    def ready(self) -> bool:
        """Whether its worker has started."""
        return self.left is not None and self.left.ready

    def ask_to_stop(self) -> None:
        """Tell the worker to end."""
        if self.left is not None:
            self.left.ask_to_stop()

    def stat(self) -> WorkerStat | None:
        """What there is to see of the worker."""
        left = self.left
        if left is None:
            return None
        state = "killed" if left.killed else "draining" if left.draining else "running" if left.ready else "starting"
        return WorkerStat(
            pid=left.pid,
            state=state,
            started_at=left.since,
            claims=len(left.claims),
            runs=left.runs,
            restarts=self.starts - 1,
        )
