"""The sentinel starts worker processes, renews their claims, replaces dead ones and settles the runs they left."""

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

from mainspring.app.introduction import start_block
from mainspring.app.loading.including import warn_of_forgotten
from mainspring.app.loading.locating import find_app
from mainspring.cluster.leases import LeaseKeeper
from mainspring.cluster.messages import NOTHING_LEFT
from mainspring.cluster.orphans import Orphans
from mainspring.cluster.settings import ClusterStat, Settings, WorkerStat
from mainspring.cluster.worker import keyboard_held
from mainspring.cluster.worker import main as work
from mainspring.cluster.worker_handle import WorkerHandle
from mainspring.errors import ConfigurationError, StoreUnavailable, WorkerDied
from mainspring.executors.scoreboard import make_board
from mainspring.jobstores.health import enforce

__all__ = ["Sentinel"]

TICK_SECONDS: Final = 1.0
LISTEN_PAUSE_SECONDS: Final = 0.02
"""Read the messages of the workers in batches, this many seconds apart."""
QUICK_DEATH_SECONDS: Final = 10.0
"""Wait longer and longer to replace a worker that dies this soon without having executed a run."""
LONGEST_RESTART_PAUSE_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 10.0
"""Give the other runs in the process of a stuck run this long to end, and a worker without runs this long to end."""
DRAIN_ANSWER_SECONDS: Final = 1.0
"""A worker confirms within this time that it drains, unless a task holds its interpreter."""
SILENT_SECONDS: Final = 5.0
"""A worker answers within this time, unless it holds the store's lock and its interpreter at the same time."""
END_POLL_SECONDS: Final = 0.2
"""Check this often for runs and workers that do not end."""

log = logging.getLogger("mainspring.cluster")


class Sentinel:
    """The supervisor of the worker processes of one machine; `run` returns once they have all ended."""

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[ClusterStat], None] | None = None,
        parent: Connection | None = None,
    ) -> None:
        if settings.start_method not in multiprocessing.get_all_start_methods():
            methods = ", ".join(multiprocessing.get_all_start_methods())
            raise ConfigurationError(f"start_method is {settings.start_method!r}, but this system knows {methods}")
        self.settings = settings
        self.app = find_app(settings.app, settings.include)
        warn_of_forgotten(self.app)
        # Report a wrong URL, a missing driver or too little durability here, once, instead of in every worker.
        if self.app.store.volatile:
            raise ConfigurationError(
                f"{self.app!r} lives in the memory of each process, so a worker would never see what others enqueue; "
                "give the app a URL such as sqlite:///jobs.db, or work in the same process with app.run()"
            )
        with suppress(StoreUnavailable):  # the workers wait for it
            enforce(self.app.store, self.app.require)
        self.state = "starting"
        self._tell = tell or (lambda stat: None)
        self._parent, self._parent_pid = parent, os.getppid()
        self._context: Any = multiprocessing.get_context(settings.start_method)
        self._slots = [WorkerSlot(number) for number in range(settings.size)]
        self._signals = 0
        self._heard = self._introduced = False
        self._deadline = float("inf")
        self._looked_at = 0.0
        self._started_at = time.time()
        self._began_at = time.monotonic()
        self._asked = False
        """Whether the parent has asked for the state of the cluster."""
        self._told: str | None = None
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        self._bell.setblocking(False)

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Supervise until stopped; return the exit code."""
        handlers = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        wakeup = signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        self._keeper = LeaseKeeper(self.app, self._workers)
        self._orphans = Orphans()
        try:
            return self._supervise()
        finally:
            self._kill_all()
            for worker in self._workers():
                worker.reap()
                worker.close()
            self._orphans.end(set())
            self._keeper.close()
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._bell.close()
            self._ringer.close()
            self.app.close()

    def stop(self) -> None:
        """Stop the workers, as after a first SIGTERM; any thread may call this."""
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
            if self.state == "stopping" and not self._workers():
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
                log.warning("second signal: killing the workers; other nodes recover their runs")
                stopping_now = True
                self._kill_all()
            if time.monotonic() > self._deadline:
                log.warning("giving back the runs that did not end within %g s", self.settings.grace)
                self._deadline = float("inf")
                self._kill_all()

    def _begin_to_stop(self) -> None:
        self.state = "stopping"
        self._deadline = time.monotonic() + self.settings.grace
        log.info("stopping: started runs may end, the others are given back")
        for worker in self._workers():
            worker.ask_to_stop("the cluster is stopping")

    # -- workers -----------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        if self.state == "stopping":
            return
        for slot in self._slots:
            if slot.worker is None and not slot.finished and time.monotonic() >= slot.start_at:
                try:
                    self._start(slot)
                except OSError as error:  # out of memory, processes or files, perhaps only for now
                    log.error("worker %s cannot be started: %s", slot.number, error)
                    slot.wait_longer()
        if not self._introduced and any(slot.ready for slot in self._slots):
            self._introduce()
        if self.state == "starting" and all(slot.ready for slot in self._slots):
            self.state = "running"

    def _introduce(self) -> None:
        """Log the tasks and schedules once, after the first worker has compared the schedules with the store."""
        self._introduced = True
        if log.isEnabledFor(logging.INFO):
            settings = self.settings
            processes = f"{settings.size}, each with {settings.threads} threads"
            queues = list(settings.queues or self.app.declared_queues())
            log.info("%s", start_block(self.app, queues=queues, fires=settings.schedule, processes=processes))

    def _start(self, slot: WorkerSlot) -> None:
        with ExitStack() as undo:
            board = make_board(self.settings.entries)
            undo.callback(board.close)
            ours, theirs = self._context.Pipe()
            undo.callback(ours.close)
            strangers = [*(worker.pipe for worker in self._workers()), ours]
            forks = self.settings.start_method == "fork"
            process = self._context.Process(
                target=work,
                args=(
                    *(self.settings, theirs, board, slot.number, strangers if forks else ()),
                    *(self._keeper.steady_since, self._began_at),
                ),
                name=f"mainspring-worker-{slot.number}",
            )
            try:
                with self._keeper.busy, keyboard_held():
                    process.start()
            finally:
                theirs.close()
            undo.pop_all()
        slot.starts += 1
        slot.worker = WorkerHandle(process, ours, board)
        if not slot.away:
            log.info("worker %s started as process %s", slot.number, process.pid)

    def _listen(self) -> None:
        """Wait for messages, deaths and signals, and handle them."""
        ends: dict[Any, WorkerSlot] = {}
        for slot in self._slots:
            if slot.worker is not None:
                ends[slot.worker.end] = slot
                if not slot.worker.deaf:
                    ends[slot.worker.pipe] = slot
        urgent: list[Any] = [self._bell] if self._parent is None else [self._bell, self._parent]
        urgent += [worker.end for worker in self._workers()]
        if self._heard:
            # Workers send a message with every batch, and waking up for each would cost as much as the work.
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
            log.warning("stopping, because the process that started the cluster is gone")
            self._parent = None
            self._signals += 1
        for slot in dict.fromkeys(ends[end] for end in ready if end in ends):
            worker = slot.worker
            if worker is None:
                continue
            worker.hear()
            if worker.leaving and not self._signals:  # only once: all workers report it, and a second would kill them
                self._signals += 1
            if worker.has_ended():
                self._bury(slot, worker)

    def _hear_parent(self) -> bool:
        """Read the parent's request for the state of the cluster; return False if the parent is gone."""
        assert self._parent is not None
        try:
            self._parent.recv_bytes()
        except (EOFError, OSError):
            return False
        self._asked = True
        return True

    def _patience(self) -> float:
        now = time.monotonic()
        waits = [slot.start_at - now for slot in self._slots if slot.worker is None and not slot.finished]
        return max(0.0, min([TICK_SECONDS, self._deadline - now, *waits]))

    def _bury(self, slot: WorkerSlot, worker: WorkerHandle) -> None:
        """Settle the runs of a worker that has ended, and decide when to replace it."""
        code = worker.reap()
        slot.worker = None
        slot.away = worker.away is not None
        lived = time.monotonic() - worker.started_at
        in_order = worker.draining is not None and code == 0
        if in_order:
            log.info("worker %s (process %s) has ended: %s", slot.number, worker.pid, worker.draining)
        elif worker.killed:  # on purpose, and the log already has the reason
            log.info("worker %s (process %s) was killed after %.1f s", slot.number, worker.pid, lived)
        elif not slot.away:
            how = WorkerDied(worker.pid, code).how
            log.error("worker %s (process %s) ended %s after %.1f s", slot.number, worker.pid, how, lived)
        if orphans := self._orphans.end(self._pids()):
            count = f"{orphans} processes" if orphans > 1 else "a process"
            log.warning("killed %s that worker %s left behind", count, slot.number)
        self._keeper.settle(worker, code)
        worker.close()
        slot.finished = self.settings.burst and in_order and worker.draining == NOTHING_LEFT
        if in_order or worker.killed:
            slot.quick_deaths = 0
            return
        if slot.away:
            text = "the store does not answer; worker %s tries again in %g s: %s"
            log.error(text, slot.number, slot.wait_longer(), worker.away)
        elif lived >= QUICK_DEATH_SECONDS or worker.runs:
            slot.quick_deaths = 0
        elif (pause := slot.wait_longer()) >= 1:
            log.error("worker %s died right after its start; the next try is in %.0f s", slot.number, pause)

    def _workers(self) -> list[WorkerHandle]:
        return [worker for slot in self._slots if (worker := slot.worker) is not None]

    def _pids(self) -> set[int]:
        return {worker.pid for worker in self._workers()}

    def _look_at_deadlines(self) -> None:
        """Kill workers that do not end, or whose runs do not end at a time-out or a cancellation; reap orphans."""
        now = time.monotonic()
        if now < self._looked_at + END_POLL_SECONDS:
            return
        self._looked_at = now
        self._orphans.reap(self._pids())
        for worker in self._workers():
            if not worker.killed:
                self._look_at(worker, now)

    def _look_at(self, worker: WorkerHandle, now: float) -> None:
        worker.say_again()
        worker.note_stuck(now, self.settings.timeout_grace)
        if worker.draining is None or worker.claims:
            worker.empty_since = None
        elif worker.empty_since is None:
            worker.empty_since = now
        elif now - worker.empty_since > DRAIN_SECONDS:
            log.error("killing process %s: it has nothing left to do and does not end", worker.pid)
            worker.kill()
        if self._keeper.locked_out and worker.ready:
            worker.ping()
            if worker.asked_at is not None and now - worker.asked_at > SILENT_SECONDS:
                # Code that holds the interpreter lock may have stopped another thread inside a transaction.
                log.error("killing process %s: it does not answer, and the store is locked", worker.pid)
                worker.kill()
        if not worker.stuck:
            return
        if worker.stuck_since is None:
            worker.stuck_since = now
            worker.ask_to_stop("a run did not end when it was stopped")
        waited = now - worker.stuck_since
        only_stuck = worker.claims.keys() <= worker.stuck
        # A process whose task holds the interpreter lock cannot even confirm that it drains.
        if waited > DRAIN_SECONDS or (waited > DRAIN_ANSWER_SECONDS and (only_stuck or worker.draining is None)):
            log.error("killing process %s: run %s does not end", worker.pid, ", ".join(sorted(worker.stuck)))
            worker.kill()

    def _kill_all(self) -> None:
        for worker in self._workers():
            worker.kill()

    # -- showing -----------------------------------------------------------------------------------------------

    @property
    def stat(self) -> ClusterStat:
        """The state of the cluster and its workers."""
        found = tuple(stat for slot in self._slots if (stat := slot.stat()) is not None)
        return ClusterStat(pid=os.getpid(), state=self.state, started_at=self._started_at, workers=found)

    def _show(self) -> None:
        """Send the parent a changed state or a requested one, but nothing else: it may not be reading."""
        if self._asked or self.state != self._told:
            self._asked, self._told = False, self.state
            self._tell(self.stat)


class WorkerSlot:
    """The place of one worker: the process in it, and when the next one may start."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: WorkerHandle | None = None
        self.starts = 0
        self.start_at = 0.0
        self.quick_deaths = 0
        self.away = False
        """Whether the last worker here could not reach the store."""
        self.finished = False

    @property
    def ready(self) -> bool:
        """Whether the worker here has started."""
        return self.worker is not None and self.worker.ready

    def wait_longer(self) -> float:
        """Delay the next start, longer each time; return the seconds."""
        pause = min(LONGEST_RESTART_PAUSE_SECONDS, 0.5 * 2.0 ** min(self.quick_deaths, 16))
        self.quick_deaths += 1
        self.start_at = time.monotonic() + pause
        return pause

    def stat(self) -> WorkerStat | None:
        """Return the state of the worker, None if there is none now."""
        worker = self.worker
        if worker is None:
            return None
        state = (
            "killed" if worker.killed else "draining" if worker.draining else "running" if worker.ready else "starting"
        )
        return WorkerStat(
            pid=worker.pid,
            state=state,
            started_at=worker.since,
            claims=len(worker.claims),
            runs=worker.runs,
            restarts=self.starts - 1,
        )
