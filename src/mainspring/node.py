"""A node: stores, executors and the four ticks. START READING HERE.

Each store is a `Link` with three loops: one claims and fires (`worker`, `scheduler`), one settles what has ended (for a
store in memory the first does both), one keeps what was claimed alive and cleans up after the dead (`heartbeat`,
`janitor`). A listener thread turns the store's hints into wake-ups. All nodes are equal; what two may both try is
decided by the store.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final, Protocol

from msgspec.structs import replace

from mainspring import __version__
from mainspring.clock import SECOND, Clock, SystemClock, from_us
from mainspring.context import Live
from mainspring.events import EVENT_STORE_DOWN, EVENT_STORE_UP, RunEvent, SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import JobStore, NodeInfo
from mainspring.listeners import Listeners
from mainspring.run import Report, Result, Run
from mainspring.task import ref_to_obj
from mainspring.ticks.heartbeat import HeartbeatTick
from mainspring.ticks.janitor import JanitorTick
from mainspring.ticks.loop import IDLE, Loop
from mainspring.ticks.scheduler import SchedulerTick
from mainspring.ticks.worker import WorkerTick

__all__ = ["Link", "Node", "Watcher"]

AHEAD: Final = 0.2
"""Seconds of work that a node claims beyond what its slots execute now."""
MOST_CLAIMED: Final = 2000
TRICKLE: Final = 10
ISOLATED: Final = "processes"
"""The executor of runs that are isolated, or have crashed a worker before: see `working`."""
HELD: Final = 100
"""Runs that a node holds for it, unstarted, at most: what waits behind so many is not kept waiting by them."""

log = logging.getLogger("mainspring.node")


class Watcher(Protocol):
    """Whoever supervises this process and needs to know what it has claimed."""

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None:
        """Take notice that a claim is tried: who repeats it finds what it has brought."""

    def claimed(self, runs: Sequence[Run]) -> None:
        """Take notice of claims, before anything of them is executed."""

    def ended(self, run_ids: Sequence[str]) -> None:
        """Take notice of claims that are over."""


class Node:
    """One process's part in the work: started once, drained, stopped."""

    def __init__(
        self,
        executors: dict[str, BaseExecutor],
        *,
        clock: Clock | None = None,
        lease: float = 15.0,
        retry_interval: float = 10.0,
        timezone: tzinfo | None = None,
        listeners: Listeners | None = None,
        deliver: Callable[[SchedulerEvent], None] | None = None,
        queues: Mapping[str, int | None] | None = None,
        prepare: Callable[[Run], Run] | None = None,
        schedules: bool = True,
        watcher: Watcher | None = None,
    ) -> None:
        self.host = platform.node()
        self.id = f"{self.host}:{os.getpid()}:{os.urandom(4).hex()}"
        self.clock = clock or SystemClock()
        self.executors = executors
        self.links: dict[str, Link] = {}
        self.lease = lease
        self.retry_interval = retry_interval
        self.timezone = timezone
        self.queues = queues
        """The queues this node serves, each with the most runs of it at once; None: the lanes of its executors."""
        self.prepare = prepare or _with_function
        """Finds a claimed run's function and executor; LookupError if this node has not got the code."""
        self.schedules = schedules
        self.watcher = watcher
        self.paused = False
        self.draining = False
        self.finishing = False
        """While draining: also execute what waits in a store that nobody could take it from later."""
        self.missing: set[str] = set()
        """References that this node cannot import."""
        self.pace: dict[str, float] = {}
        """Recent seconds per run, by executor."""
        self._listeners = listeners or Listeners()
        self._deliver = deliver or self._listeners.call
        self._started = False
        self._started_at = self.clock.now()
        self._tokens = 0
        self._stem = os.urandom(8).hex()

    # -- life --------------------------------------------------------------------------------------------------

    def add_store(self, alias: str, store: JobStore) -> Link:
        """Take part in a store from now on."""
        link = self.links[alias] = Link(self, alias, store)
        if self._started:
            link.start()
        return link

    def start(self) -> None:
        """Start the loops of all stores, now and later added ones."""
        self._started = True
        for link in list(self.links.values()):
            link.start()

    def remove_store(self, alias: str) -> Link:
        """Take part in a store no longer: give back what has not started, let the rest end."""
        link = self.links[alias]
        link.leaving = True
        self.withdraw()
        del self.links[alias]
        link.close()
        return link

    def pause(self) -> None:
        """Fire and claim nothing until resumed."""
        self.paused = True

    def resume(self) -> None:
        """Fire and claim again."""
        self.paused = False
        self.wake()

    def wake(self) -> None:
        """Have all loops look at their stores now."""
        for link in list(self.links.values()):
            link.wake()

    def wake_for(self, alias: str, at: int | None) -> None:
        """Have a job that is due at `at` seen in time."""
        link = self.links.get(alias)
        if link is not None and at is not None and at < link.scheduler.looks_at:
            link.work.wake(link.scheduler)

    def drain(self, *, finish: bool) -> None:
        """Fire nothing more; give back what has not started (with `finish` only where another node could take it)."""
        self.finishing = finish
        self.draining = True
        self.wake()

    def stop(self, *, finish: bool = True) -> None:
        """Drain and wait until everything that has started has ended and is settled."""
        self.drain(finish=finish)
        if not (finish and all(link.store.volatile for link in self.links.values())):
            self.withdraw()
        for link in list(self.links.values()):
            link.close()

    def withdraw(self, executors: Iterable[BaseExecutor] | None = None, older_than: int | None = None) -> None:
        """Take back from executors what they have not started, and give it back to its store."""
        for executor in list(self.executors.values() if executors is None else executors):
            for run in executor.withdraw(older_than):
                for link in list(self.links.values()):
                    if link.claims.get(run.id) is run:
                        link.report(Report(run, Result.UNSTARTED))

    # -- what the ticks ask ------------------------------------------------------------------------------------

    @property
    def firing(self) -> bool:
        """Whether due jobs are fired."""
        return self.schedules and not (self.paused or self.draining)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes this node claims from."""
        return tuple(f".{alias}" for alias in self.executors) if self.queues is None else tuple(self.queues)

    @property
    def listening(self) -> int:
        """The mask of the events somebody listens to: others are not even made."""
        return self._listeners.mask

    def new_token(self) -> str:
        """Make a token that no other claim has ever had."""
        self._tokens += 1
        return f"{self._stem}{self._tokens:x}"

    def time(self) -> Callable[[], int]:
        """Return what tells the time: the first store's, or this machine's."""
        for link in self.links.values():
            return link.now
        return self.clock.now

    def local(self, us: int) -> datetime:
        """Return an instant as a datetime in the user's zone."""
        return from_us(us).astimezone(self.timezone)

    def free(self, alias: str) -> int:
        """Return how many more runs an executor should be given: its slots, or what they will end in a moment."""
        executor = self.executors[alias]
        if not getattr(executor, "accepting", True):
            return 0
        slots = executor.slots - executor.stuck
        pace = self.pace.get(alias)
        wanted = slots if pace is None else max(slots, min(MOST_CLAIMED, int(slots * AHEAD / max(pace, 1e-6))))
        return wanted - sum(link.in_flight.get(alias, 0) for link in self.links.values())

    def room(self) -> int:
        """Return how many more runs to claim from queues, whose runs may need any executor.

        When some executors are full and others are not, a few at a time: those for a full one are given back, those
        for the others do not starve behind them. Isolated runs, which have few slots, may be many of those.
        """
        rooms = []
        for alias, executor in list(self.executors.items()):
            rooms.append(self.free(alias))
            if rooms[-1] <= -(max(HELD, executor.slots) if alias == ISOLATED else executor.slots):
                return 0
        least = min(rooms)
        return least if least > 0 else min(TRICKLE, max(rooms))

    def publish(self, event: SchedulerEvent) -> None:
        """Tell the listeners."""
        if self._listeners.mask & event.code:
            self._deliver(event)

    def notify(self, code: int, run: Run, reason: str) -> None:
        """Tell the listeners about a run."""
        self.publish(RunEvent(code, run.id, None, reason))

    def info(self, link: Link) -> NodeInfo:
        """Describe this node for the others."""
        return NodeInfo(
            id=self.id,
            host=self.host,
            pid=os.getpid(),
            started_at=self._started_at,
            lanes=self.lanes,
            state="draining" if self.draining else "paused" if self.paused else "running",
            version=__version__,
            missing=tuple(sorted(self.missing)),
            stuck=sum(executor.stuck for executor in self.executors.values()),
        )


class Link:
    """One store as its node sees it: the ticks, the claims held, the offset of its clock."""

    def __init__(self, node: Node, alias: str, store: JobStore) -> None:
        self.node = node
        self.alias = alias
        self.store = store
        self.leaving = False
        self.claims: dict[str, Run] = {}
        self.lives: dict[str, Live] = {}
        """What the runs executed here have said of themselves."""
        self.in_flight: dict[str, int] = {}
        """How many runs each executor has."""
        self.in_queue: dict[str, int] = {}
        """How many runs of each queue are executed here."""
        self.scheduler = SchedulerTick(self)
        self.worker = WorkerTick(self)
        self.heartbeat = HeartbeatTick(self)
        self.janitor = JanitorTick(self)
        self._down = False
        self._failures = 0
        self._offset: int | None = None
        self.report = _Outbox(self)
        self._books = threading.Lock()
        clock, settles, claims = node.clock, self.worker.settles, self.worker.claims
        # Where a settle has to wait for a server, it must not keep the next claim waiting.
        self._alone = store.volatile
        work = (settles, claims, self.scheduler) if self._alone else (claims, self.scheduler)
        self.work = Loop(f"mainspring-work-{alias}", work, clock, self._failed, self._drained)
        self.monitor = (
            self.work
            if self._alone
            else Loop(f"mainspring-monitor-{alias}", (settles,), clock, self._failed, self._settled_out)
        )
        self.care = Loop(f"mainspring-care-{alias}", (self.heartbeat, self.janitor), clock, self._failed, self._ended)
        self._claimed_out = self._worked_out = False
        self._listener: threading.Thread | None = None

    def start(self) -> None:
        """Start the loops and the listener."""
        self.worker.look_everywhere()
        self.work.start()
        if not self._alone:
            self.monitor.start()
        self.care.start()
        self._listener = threading.Thread(target=self._listen, name=f"mainspring-listen-{self.alias}", daemon=True)
        self._listener.start()

    def close(self) -> None:
        """Wait until what has started is settled, and leave the store."""
        self.work.wake()
        self.work.join()
        self._claimed_out = True
        if not self._alone:
            self.node.withdraw()  # what a claim brought that was under way when the drain began
            self.monitor.wake()
            self.monitor.join()
        self._worked_out = True
        self.care.wake()
        self.care.join()
        try:
            self.store.leave(self.node.id)
        except Exception as error:
            log.warning("could not sign off from the store %r: %s", self.alias, error)

    def join_listener(self) -> None:
        """Wait for the listener, which the store has let go by now; one that hangs in a dead store is left behind."""
        if self._listener is not None and self._listener is not threading.current_thread():
            self._listener.join(1.0)

    @property
    def claiming(self) -> bool:
        """Whether waiting runs are claimed."""
        if self.node.draining or self.leaving:
            return self._finishing
        return not self.node.paused

    @property
    def _finishing(self) -> bool:
        return self.node.finishing and self.store.volatile and not self.leaving

    def _drained(self) -> bool:
        """Whether nothing more is to be claimed, and, if the same loop settles, nothing more to be settled."""
        if not (self.node.draining or self.leaving):
            return False
        return not self._alone or (self._empty() and not (self._finishing and self.worker.waits()))

    def _settled_out(self) -> bool:
        return self._claimed_out and self._empty()

    def _empty(self) -> bool:
        if self.claims or self.worker.outbox:
            # A store that is down cannot be told what has ended: others recover it when the leases are over.
            return self._down and self.worker.unsettled == len(self.claims)
        return True

    def _ended(self) -> bool:
        return self._worked_out

    # -- time --------------------------------------------------------------------------------------------------

    def observe(self, now: int) -> None:
        """Note the store's time, so that it can be told without asking."""
        self.answered()
        self._offset = now - int(self.node.clock.monotonic() * SECOND)

    def now(self) -> int:
        """Return the store's time as far as this node knows."""
        if self._offset is None:
            self.observe(self.store.server_time())
            assert self._offset is not None
        return self._offset + int(self.node.clock.monotonic() * SECOND)

    # -- runs --------------------------------------------------------------------------------------------------

    def free(self, alias: str) -> int:
        """Return how many more runs an executor should be given."""
        return self.node.free(alias)

    def begin(self, runs: Sequence[Run]) -> None:
        """Hand claimed runs to their executors."""
        if not runs:
            return
        if self.node.watcher is not None:
            self.node.watcher.claimed(runs)
        batches: dict[str, list[Run]] = {}
        claims, queues = self.claims, self.node.queues
        for run in runs:
            if run.id in claims:
                # We lost it, somebody freed it, and here it is again while it still runs: it waits for that to end.
                self._count(run, 1)
                self.report(Report(run, Result.ABSENT))
                continue
            if queues is not None or isinstance(run.call.func, str):
                found = self._prepared(run)
                if found is None:
                    self._count(run, 1)
                    claims[run.id] = run
                    self.report(Report(run, Result.ABSENT))
                    continue
                run = found
            claims[run.id] = run
            alias = run.executor or run.queue[1:]
            batch = batches.get(alias)
            if batch is None:
                batch = batches[alias] = []
            batch.append(run)
        with self._books:
            for alias, batch in batches.items():
                self.in_flight[alias] = self.in_flight.get(alias, 0) + len(batch)
                if queues is not None:
                    for run in batch:
                        self.in_queue[run.queue] = self.in_queue.get(run.queue, 0) + 1
        for alias, batch in batches.items():
            self.node.executors[alias].submit(batch, self.report)

    def _count(self, run: Run, number: int) -> None:
        alias = run.executor or run.queue[1:]
        with self._books:  # claims and settles are counted by different threads
            self.in_flight[alias] = self.in_flight.get(alias, 0) + number
            if self.node.queues is not None:
                self.in_queue[run.queue] = self.in_queue.get(run.queue, 0) + number

    def _prepared(self, run: Run) -> Run | None:
        """Find what a run calls; None if this node cannot, which is told once."""
        reference = str(run.call.func)
        try:
            prepared = self.node.prepare(run)
        except Exception as error:
            if reference not in self.node.missing:
                self.node.missing.add(reference)
                log.error("this node cannot call %r; its runs are left to nodes that can: %s", reference, error)
            return None
        if self.node.missing:
            self.node.missing.discard(reference)
        return prepared

    def end(self, reports: Iterable[Report]) -> None:
        """Forget claims that have been settled, and learn how long such runs take."""
        took: dict[str, list[int]] = {}
        ended = []
        queues = self.node.queues
        with self._books:
            for report in reports:
                run = report.run
                alias = run.executor or run.queue[1:]
                held = self.claims.get(run.id)
                if held is not None and held.token == run.token:
                    del self.claims[run.id]
                self.in_flight[alias] -= 1
                if queues is not None:
                    self.in_queue[run.queue] -= 1
                ended.append(run.id)
                if report.result is Result.RETURNED or report.result is Result.RAISED:
                    took.setdefault(alias, []).append(report.finished_at - report.started_at)
        for alias, times in took.items():
            seconds = sum(times) / len(times) / SECOND
            pace = self.node.pace.get(alias, seconds)
            self.node.pace[alias] = pace + (seconds - pace) * min(1.0, 0.1 * len(times))
        if self.node.watcher is not None:
            self.node.watcher.ended(ended)

    def stop_run(self, run: Run) -> None:
        """Stop a run that this node should no longer execute, if its executor can."""
        executor = self.node.executors.get(run.executor or run.queue[1:])
        if executor is not None:
            executor.cancel(run.id)

    # -- waking and failing --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have every tick look at the store now."""
        self.worker.look_everywhere()
        self.work.wake()

    def wake_worker(self) -> None:
        """Have the lanes looked at soon."""
        self.work.wake(self.worker.claims)

    def wake_monitor(self) -> None:
        """Have what has ended settled soon."""
        self.monitor.wake(self.worker.settles)

    def _listen(self) -> None:
        cursor = 0
        pause = self.node.clock.wake()
        deaf = False
        while not (self.node.draining or self.leaving):
            try:
                changed = self.store.wait(cursor, IDLE)
            except Exception:  # the loops report the outage
                deaf = True
                if self.node.draining or self.leaving:  # nothing failed: the store was closed
                    return
                pause.wait(0.75 + 0.5 * self.node.clock.random())
                continue
            if changed != cursor or deaf:  # after an outage the loops need not wait for their next try
                cursor, deaf = changed, False
                self.wake()

    def _failed(self, error: Exception) -> float:
        if not self._down:
            self._down = True
            log.error("job store %r failed; it is tried again until it answers", self.alias, exc_info=error)
            self.node.publish(SchedulerEvent(EVENT_STORE_DOWN, self.alias))
        self._failures += 1
        # Soon at first, then ever more seldom, and never all nodes at once.
        delay = min(self.node.retry_interval, 0.5 * 2.0 ** min(self._failures, 16))
        return delay * (0.75 + 0.5 * self.node.clock.random())

    def answered(self) -> None:
        """Note that the store has answered: an outage, if there was one, is over."""
        if self._down:
            self._down, self._failures = False, 0
            log.warning("job store %r answers again", self.alias)
            self.node.publish(SchedulerEvent(EVENT_STORE_UP, self.alias))
            # Each tick waits for its next try, the heartbeat too: without it leases end and nobody recovers the dead.
            for loop in (self.work, self.monitor, self.care):
                loop.wake()


def _with_function(run: Run) -> Run:
    """Import what a run calls, as APScheduler's front ends do."""
    backoff = run.policy.backoff
    if isinstance(backoff, str):
        run = replace(run, policy=replace(run.policy, backoff=ref_to_obj(backoff)))
    return replace(run, call=replace(run.call, func=ref_to_obj(str(run.call.func))))


class _Outbox:
    """Where the executors report: cheap, from any thread, waking the worker tick only when it may sleep."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._worker = link.worker
        self._append = link.worker.outbox.append
        self._wake = link.wake_monitor

    def __call__(self, report: Report) -> None:
        self._append(report)
        # The tick clears the flag before it empties the outbox, so a report is seen or wakes it.
        if not self._worker.told:
            self._worker.told = True
            self._wake()

    def live(self, run: Run) -> Live:
        """Return what the run has said so far."""
        lives = self._link.lives
        found = lives.get(run.id)
        if found is None or found.run.token != run.token:
            found = lives[run.id] = Live(run)
        return found

    def said(self, live: Live) -> None:
        """Have it stored soon."""
        self._link.heartbeat.hurry()
