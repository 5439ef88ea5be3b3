"""The sentinel: starts worker processes, renews what they have claimed, replaces the dead, settles what they left."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from mainspring.app.including import warn_of_forgotten
from mainspring.app.locating import find_app
from mainspring.cluster.leases import LeaseKeeper
from mainspring.cluster.messages import NOTHING_LEFT
from mainspring.cluster.orphans import Orphans
from mainspring.cluster.settings import ClusterStat, Settings, WorkerStat
from mainspring.cluster.worker import main as work
from mainspring.cluster.worker_handle import WorkerHandle
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.executors.scoreboard import make_board
from mainspring.jobstores.health import enforce

__all__ = ["Sentinel"]

TICK_SECONDS: Final = 1.0
LISTEN_PAUSE_SECONDS: Final = 0.02
"""Seconds between two looks at what workers say."""
QUICK_DEATH_SECONDS: Final = 10.0
"""A worker that died within so many seconds, before it had executed anything, is replaced ever more slowly."""
LONGEST_RESTART_PAUSE_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 10.0
"""Seconds that the neighbours of a stuck run are given to end, and a worker with nothing left to do to leave."""
DRAIN_ANSWER_SECONDS: Final = 1.0
"""Seconds in which a worker says that it drains, unless a task holds its interpreter."""
SILENT_SECONDS: Final = 5.0
"""Seconds in which a worker answers, if it does not keep the store's lock and its interpreter at the same time."""
END_POLL_SECONDS: Final = 0.2
"""Seconds between two looks at what does not end."""

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
        self.app = find_app(settings.app, settings.include)
        warn_of_forgotten(self.app)
        # A wrong URL, a missing driver, too little durability: said here, once, and not by every worker.
        if self.app.store.volatile:
            raise ConfigurationError(
                f"{self.app!r} is kept in the memory of each process: a worker would never see what others enqueue; "
                "give the app a URL such as sqlite:///jobs.db, or work in the same process: app.run()"
            )
        with suppress(StoreUnavailable):  # the workers wait for it
            enforce(self.app.store, self.app.require)
        self.state = "starting"
        self._tell = tell or (lambda stat: None)
        self._parent, self._parent_pid = parent, os.getppid()
        self._context: Any = multiprocessing.get_context(settings.start_method)
        self._slots = [WorkerSlot(number) for number in range(settings.size)]
        self._signals = 0
        self._heard = False
        self._deadline = float("inf")
        self._looked_at = 0.0
        self._started_at = time.time()
        self._asked = False
        """Whether the parent wants to know what there is to see."""
        self._told: str | None = None
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        self._bell.setblocking(False)

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Supervise until stopped; return the exit code."""
        handlers = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        wakeup = signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        self._keeper = LeaseKeeper(self.app, lambda: [slot.left for slot in self._slots if slot.left is not None])
        self._orphans = Orphans()
        try:
            return self._supervise()
        finally:
            self._kill_all()
            for slot in self._slots:
                if slot.left is not None:
                    slot.left.reap()
                    slot.left.close()
            self._orphans.end(set())
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
            if slot.left is not None:
                slot.left.ask_to_stop("the cluster stops")

    # -- workers -----------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        if self.state == "stopping":
            return
        for slot in self._slots:
            if slot.left is None and not slot.finished and time.monotonic() >= slot.start_at:
                try:
                    self._start(slot)
                except OSError as error:  # no memory, no process, no room for a file: it may pass
                    log.error("worker %s cannot be started: %s", slot.number, error)
                    slot.wait_longer()
        if self.state == "starting" and all(slot.ready for slot in self._slots):
            self.state = "running"

    def _start(self, slot: WorkerSlot) -> None:
        with ExitStack() as undo:
            board = make_board(self.settings.entries)
            undo.callback(board.close)
            ours, theirs = self._context.Pipe()
            undo.callback(ours.close)
            strangers = [each.left.pipe for each in self._slots if each.left is not None] + [ours]
            forks = self.settings.start_method == "fork"
            process = self._context.Process(
                target=work,
                args=(self.settings, theirs, board, slot.number, strangers if forks else (), self._keeper.steady_since),
                name=f"mainspring-worker-{slot.number}",
            )
            try:
                with self._keeper.busy:
                    process.start()
            finally:
                theirs.close()
            undo.pop_all()
        slot.starts += 1
        slot.left = WorkerHandle(process, ours, board)
        if not slot.away:
            log.info("worker %s started as process %s", slot.number, process.pid)

    def _listen(self) -> None:
        """Wait for words, deaths, signals."""
        ends: dict[Any, WorkerSlot] = {}
        for slot in self._slots:
            if slot.left is not None:
                ends[slot.left.end] = slot
                if not slot.left.deaf:
                    ends[slot.left.pipe] = slot
        urgent: list[Any] = [self._bell] if self._parent is None else [self._bell, self._parent]
        urgent += [slot.left.end for slot in self._slots if slot.left is not None]
        if self._heard:
            # Workers speak at every batch; being woken by each word would cost as much as the work.
            wait(urgent, LISTEN_PAUSE_SECONDS)
        ready = wait({*ends, *urgent}, self._patience())
        self._heard = any(end in ends and end not in urgent for end in ready)
        if self._bell in ready:
            with suppress(OSError):
                self._bell.recv(4096)
        # A fork of the parent may keep its end of the pipe open.
        if self._parent is not None and (
            (self._parent in ready and not self._hear_parent()) or os.getppid() != self._parent_pid
        ):
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

    def _hear_parent(self) -> bool:
        """Take in that the parent asks for what there is to see; tell whether it is there at all."""
        assert self._parent is not None
        try:
            self._parent.recv_bytes()
        except (EOFError, OSError):
            return False
        self._asked = True
        return True

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [slot.start_at - now for slot in self._slots if slot.left is None and not slot.finished]
        return max(0.0, min([TICK_SECONDS, self._deadline - now, *waits]))

    def _bury(self, slot: WorkerSlot, left: WorkerHandle) -> None:
        """Replace a worker that has ended, and see to what it left."""
        code = left.reap()
        slot.left = None
        slot.away = left.away is not None
        lived = time.monotonic() - left.started_at
        in_order = left.draining is not None and code == 0
        if in_order:
            log.info("worker %s (process %s) has ended: %s", slot.number, left.pid, left.draining)
        elif left.killed:  # on purpose: whoever asked for it has said why
            log.info("worker %s (process %s) was killed after %.1f s", slot.number, left.pid, lived)
        elif not slot.away:
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            log.error("worker %s (process %s) ended %s after %.1f s", slot.number, left.pid, how, lived)
        orphans = self._orphans.end({each.left.pid for each in self._slots if each.left is not None})
        if orphans:
            log.warning("%s processes that worker %s left behind were killed", orphans, slot.number)
        self._keeper.settle(left, code)
        left.close()
        slot.finished = self.settings.burst and in_order and left.draining == NOTHING_LEFT
        if in_order or left.killed:
            slot.quick_deaths = 0
            return
        if slot.away:
            log.error(
                "the store does not answer; worker %s is tried again in %g s: %s",
                slot.number,
                slot.wait_longer(),
                left.away,
            )
        elif lived >= QUICK_DEATH_SECONDS or left.runs:
            slot.quick_deaths = 0
        elif (pause := slot.wait_longer()) >= 1:
            log.error("worker %s dies at once; the next try is in %.0f s", slot.number, pause)

    def _look_at_deadlines(self) -> None:
        """Kill workers with a run that does not end at its time-out or when it is cancelled, or that do not leave."""
        now = time.monotonic()
        if now < self._looked_at + END_POLL_SECONDS:
            return
        self._looked_at = now
        for slot in self._slots:
            left = slot.left
            if left is not None and not left.killed:
                self._look_at(left, now)

    def _look_at(self, left: WorkerHandle, now: float) -> None:
        left.say_again()
        left.note_stuck(now, self.settings.timeout_grace)
        if left.draining is None or left.claims:
            left.empty_since = None
        elif left.empty_since is None:
            left.empty_since = now
        elif now - left.empty_since > DRAIN_SECONDS:
            log.error("process %s is killed: it has nothing left to do and does not end", left.pid)
            left.kill()
        if self._keeper.locked_out and left.ready:
            left.ping()
            if left.asked_at is not None and now - left.asked_at > SILENT_SECONDS:
                # Code that holds the interpreter lock may have stopped another thread inside a transaction.
                log.error("process %s is killed: it does not answer, and the store is locked", left.pid)
                left.kill()
        if not left.stuck:
            return
        if left.stuck_since is None:
            left.stuck_since = now
            left.ask_to_stop("a run did not end when it was stopped")
        waited = now - left.stuck_since
        only_stuck = left.claims.keys() <= left.stuck
        # A process that holds the interpreter lock cannot even say that it drains.
        if waited > DRAIN_SECONDS or (waited > DRAIN_ANSWER_SECONDS and (only_stuck or left.draining is None)):
            log.error("process %s is killed: run %s does not end", left.pid, ", ".join(sorted(left.stuck)))
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
        """Tell of a new state, and what is asked for: never so much that the parent would have to read it."""
        if self._asked or self.state != self._told:
            self._asked, self._told = False, self.state
            self._tell(self.stat)


class WorkerSlot:
    """The place of one worker: who is in it, and when the next may start."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.left: WorkerHandle | None = None
        self.starts = 0
        self.start_at = 0.0
        self.quick_deaths = 0
        self.away = False
        """Whether the last one in it could not reach the store."""
        self.finished = False

    @property
    def ready(self) -> bool:
        """Whether its worker has started."""
        return self.left is not None and self.left.ready

    def wait_longer(self) -> float:
        """Put off the next start, for longer each time; return the seconds."""
        pause = min(LONGEST_RESTART_PAUSE_SECONDS, 0.5 * 2.0 ** min(self.quick_deaths, 16))
        self.quick_deaths += 1
        self.start_at = time.monotonic() + pause
        return pause

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
