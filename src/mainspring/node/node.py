"""A node: stores, executors and the four ticks. START READING HERE.

Each store is a `StoreLink` with three loops. The first claims and fires (`worker`, `scheduler`). The second settles
runs that have ended; for a store in memory the first does that too. The third keeps claims alive and cleans up after
dead nodes (`heartbeat`, `janitor`). A listener thread turns the store's hints into wake-ups. All nodes are equal: where
two may try the same thing, the store decides.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final, Protocol

from msgspec.structs import replace

from mainspring.clock import Clock, SystemClock
from mainspring.core.insight.alerts import AlertTarget
from mainspring.core.instants import from_us
from mainspring.core.lanes import QUEUE_EXECUTORS, lane_of
from mainspring.core.policy import Policy
from mainspring.core.references import ref_to_obj
from mainspring.core.run import Call, Report, Result, Run
from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import JobStore
from mainspring.node.events.complaints import Complaints
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.heartbeat import cluster_of
from mainspring.node.store_link import StoreLink

__all__ = ["Node", "Watcher"]

CLAIM_AHEAD_SECONDS: Final = 0.2
"""Claim this many seconds of work ahead of what the slots execute now."""
MOST_CLAIMED_RUNS: Final = 4000
"""Hold at most this many claimed runs: the node executes and settles some while the store hands out the next."""
FIRST_RATE_PER_SECOND: Final = 250.0
"""Assume that this many runs end per second until the node has measured it."""
RATE_WINDOW_SECONDS: Final = 0.1
"""Count ended runs for this many seconds to measure the rate."""


class Watcher(Protocol):
    """The supervisor of this process, which needs to know what it has claimed."""

    steady_since: float | None
    """Since when the store has answered, by the monotonic clock; outages before this process began count, too."""

    @property
    def runs_left(self) -> int | None:
        """How many more runs this process may execute, including those it holds; None for any number."""

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None:
        """Note that a claim is about to be tried: repeating it with this token finds what it brought."""

    def claimed(self, runs: Sequence[Run]) -> None:
        """Note claimed runs, before any of them is executed."""

    def ended(self, run_ids: Sequence[str]) -> None:
        """Note that claims are over."""

    @property
    def began_at(self) -> float:
        """Since when the supervisor is there, by the monotonic clock."""

    def stop_all(self) -> None:
        """Ask the supervisor to stop, with all its processes."""


class Node:
    """One process at work: it is started once, drained, stopped."""

    def __init__(
        self,
        executors: dict[str, BaseExecutor],
        *,
        clock: Clock | None = None,
        lease: float = 15.0,
        retry_interval: float = 10.0,
        timezone: tzinfo | None = None,
        listeners: Listeners | None = None,
        events: RunEvents | None = None,
        queues: Mapping[str, int | None] | None = None,
        prepare: Callable[[Run], Run] | None = None,
        executor_for: Callable[[Call, Policy], str | None] | None = None,
        unstarted: Mapping[str, int] | None = None,
        schedules: bool = True,
        watcher: Watcher | None = None,
        declare: Callable[[], None] | None = None,
        code: str = "",
        alerts: Mapping[str, AlertTarget] | None = None,
        app_name: str = "",
        leave: Callable[[], object] | None = None,
    ) -> None:
        self.host = platform.node()
        self.id = f"{self.host}:{os.getpid()}:{os.urandom(4).hex()}"
        self.clock = clock or SystemClock()
        self.executors = executors
        self.links: dict[str, StoreLink] = {}
        self._leaving: list[StoreLink] = []
        self.lease = lease
        self.retry_interval = retry_interval
        self.timezone = timezone
        self.queues = queues
        """The queues this node serves, each with its limit of runs at once; None: those named after its executors."""
        self.prepare = prepare or _with_function
        """Finds the function and the executor of a claimed run; raises LookupError if this node lacks the code."""
        self.executor_for = executor_for or _unknown
        """Names the executor that the runs of a call in a queue need, None if that is not known here."""
        self.unstarted = unstarted or {}
        """The slots of executors that start when a run first needs them."""
        self._lanes: tuple[object, dict[str, tuple[str, ...]]] = None, {}
        self.schedules = schedules
        self.watcher = watcher
        self.declare = declare
        """Adds the declared schedules that are not in the store; called when the store has lost data."""
        self.code = code
        """The version of the user's code, for people to read."""
        self.alerts = {} if alerts is None else alerts
        """Where to send changes of the health of jobs, by name."""
        self.app_name = app_name
        self.done = 0
        """How many runs have ended here."""
        self.paused = False
        self.quiet = False
        """Whether somebody has told this node, from elsewhere, to fire and claim nothing."""
        self.draining = False
        self.finishing = False
        """While draining, also execute the runs that wait in a store from which no other node could take them later."""
        self.missing = Complaints()
        """References of functions that this node cannot import."""
        self.pace: dict[str, float] = {}
        """Recent seconds per run, by executor."""
        self.rates: dict[str, float] = {}
        """Runs that ended per second lately, by executor."""
        self._ended: dict[str, tuple[float, int]] = {}
        """By executor: an instant of the monotonic clock, and how many runs have ended since."""
        self.events = events or RunEvents(listeners, zone=lambda: timezone)
        """Publishes events about runs."""
        self._started = False
        self.started_at = self.clock.now()
        self._began_at = self.clock.monotonic()
        self._leave = leave
        """Stops whatever started this node; it may block."""
        self._tokens = 0
        self._stem = os.urandom(8).hex()

    # -- life --------------------------------------------------------------------------------------------------

    def add_store(self, alias: str, store: JobStore) -> StoreLink:
        """Add a store: claim, fire and settle its runs from now on."""
        link = self.links[alias] = StoreLink(self, alias, store)
        if self._started:
            link.start()
        return link

    def start(self) -> None:
        """Start the loops of all stores, now and later added ones."""
        self._started = True
        for link in list(self.links.values()):
            link.start()

    def remove_store(self, alias: str) -> StoreLink:
        """Claim and fire nothing more from a store; `close_store` waits for its started runs."""
        link = self.links.pop(alias)
        link.leaving = True
        self._leaving.append(link)
        return link

    def close_store(self, link: StoreLink) -> None:
        """Give back the unstarted runs of a removed store, and leave it when the others have ended."""
        self.withdraw()
        link.close()
        self._leaving.remove(link)

    def pause(self) -> None:
        """Fire and claim nothing until resumed."""
        self.paused = True

    def resume(self) -> None:
        """Fire and claim again."""
        self.paused = False
        self.wake()

    def be_quiet(self, quiet: bool) -> None:
        """Fire and claim nothing, or go on, as somebody has ordered; a paused node stays paused."""
        if self.quiet != quiet:
            self.quiet = quiet
            self.wake()
            for link in list(self.links.values()):
                link.announce()

    def leave(self) -> None:
        """Stop whatever started this node, as somebody has ordered: the sentinel, or the app or scheduler."""
        if self.watcher is not None:
            self.watcher.stop_all()
        elif self._leave is not None and not self.draining:
            # Stopping waits for the loop that called this. The thread is no daemon, so the interpreter waits for it.
            threading.Thread(target=self._leave, name="mainspring-leave").start()

    @property
    def order_name(self) -> str:
        """The name under which people give orders to this node: worker processes follow those to their sentinel."""
        return self.id if self.watcher is None else cluster_of(self)

    @property
    def ordered_since(self) -> float:
        """Since when orders under that name mean this node, by the monotonic clock."""
        return self._began_at if self.watcher is None else self.watcher.began_at

    def wake(self) -> None:
        """Let all loops look at their stores now."""
        for link in list(self.links.values()):
            link.wake()

    def wake_for(self, alias: str, at: int | None) -> None:
        """Make sure that the scheduler loop sees a job that is due at `at` in time."""
        link = self.links.get(alias)
        if link is not None and at is not None:
            link.scheduler.wake_for(at)

    def drain(self, *, finish: bool) -> None:
        """Fire nothing more, and give back unstarted runs; with `finish`, only those that another node could take."""
        self.finishing = finish
        self.draining = True
        self.wake()

    def stop(self, *, finish: bool = True) -> None:
        """Drain, and wait until all started runs have ended and are settled."""
        self.drain(finish=finish)
        if not (finish and all(link.store.volatile for link in self.links.values())):
            self.withdraw()
        for link in list(self.links.values()):
            link.close()

    def withdraw(self, executors: Iterable[BaseExecutor] | None = None, older_than: int | None = None) -> None:
        """Take unstarted runs back from the executors and give them back to their stores."""
        for executor in list(self.executors.values() if executors is None else executors):
            taken = executor.withdraw(older_than)
            if taken and older_than is not None:  # what is executed now takes longer than what was before
                alias = taken[0].executor or taken[0].queue[1:]
                self.pace[alias] = max(self.pace.get(alias, 0.0), CLAIM_AHEAD_SECONDS)
            for run in taken:
                for link in [*self.links.values(), *self._leaving]:
                    if link.claims.get(run.id) is run:
                        link.report(Report(run, Result.UNSTARTED))

    # -- what the ticks ask ------------------------------------------------------------------------------------

    @property
    def firing(self) -> bool:
        """Whether due jobs are fired."""
        return self.schedules and not (self.paused or self.quiet or self.draining)

    @property
    def served_queues(self) -> tuple[str, ...]:
        """The queues this node claims from."""
        return tuple(f".{alias}" for alias in self.executors) if self.queues is None else tuple(self.queues)

    @property
    def lanes(self) -> dict[str, tuple[str, ...]]:
        """The lanes that this node claims for each of its executors.

        The first executor also gets the lanes for those that this node lacks: `prepare` knows where the runs go.
        """
        if self.queues is None:
            return {alias: (f".{alias}",) for alias in list(self.executors)}
        aliases = tuple(dict.fromkeys((*self.executors, *self.unstarted)))
        known = aliases, tuple(self.queues)
        if self._lanes[0] != known and aliases:
            lacking = [alias for alias in QUEUE_EXECUTORS if alias not in aliases]
            lanes = {alias: tuple(lane_of(queue, alias) for queue in self.queues) for alias in aliases}
            more = (lane_of(queue, alias) for alias in lacking for queue in self.queues)
            lanes[aliases[0]] = tuple(dict.fromkeys((*lanes[aliases[0]], *more)))
            self._lanes = known, lanes
        return self._lanes[1] if aliases else {}

    @property
    def listening(self) -> int:
        """The mask of the events that have a listener: other events are not even made."""
        return self.events.listeners.mask

    def new_token(self) -> str:
        """Make a token that no other claim has ever had."""
        self._tokens += 1
        return f"{self._stem}{self._tokens:x}"

    def elapsed(self) -> int:
        """Return microseconds by the monotonic clock, by which executors measure the runs of every store."""
        return int(self.clock.monotonic() * 1e6)

    def local(self, us: int) -> datetime:
        """Return an instant as a datetime in the user's zone."""
        return from_us(us).astimezone(self.timezone)

    def free(self, alias: str) -> int:
        """Return how many more runs an executor should be given, of those that this process may still execute."""
        left = MOST_CLAIMED_RUNS if self.watcher is None else self.runs_left()
        return min(left, self.room_of(alias))

    def room_of(self, alias: str) -> int:
        """Return how many more runs an executor has room for: its slots, or what they will end in a moment."""
        executor = self.executors.get(alias)
        slots = self.unstarted.get(alias, 0) if executor is None else executor.usable_slots
        pace = self.pace.get(alias)
        wanted = slots
        if slots and pace is not None:
            # Bounded by the time that a run takes, and by how many really end: the store or the machine may be slower.
            rate = self.rates.get(alias, FIRST_RATE_PER_SECOND)
            wanted = max(
                slots,
                min(
                    MOST_CLAIMED_RUNS,
                    int(slots * CLAIM_AHEAD_SECONDS / max(pace, 1e-6)),
                    slots + int(2 * CLAIM_AHEAD_SECONDS * rate),
                ),
            )
        for link in self.links.values():
            wanted -= link.in_flight.get(alias, 0)
        return wanted

    def runs_left(self) -> int:
        """Return how many more runs this process may claim before it reaches its limit of executed runs."""
        left = None if self.watcher is None else self.watcher.runs_left
        # In this order, since a run is counted as executed before its claim is forgotten: none is counted as neither.
        if left is None:
            return MOST_CLAIMED_RUNS
        return min(MOST_CLAIMED_RUNS, left - sum(len(link.claims) for link in self.links.values()))

    def note_ended(self, alias: str, number: int) -> None:
        """Measure how many runs an executor ends per second: a rise counts at once, a fall by and by."""
        self.done += number
        now = self.clock.monotonic()
        since, count = self._ended.get(alias, (now, 0))
        count += number
        if now - since >= RATE_WINDOW_SECONDS:
            rate = count / (now - since)
            self.rates[alias] = max(rate, (rate + self.rates.get(alias, rate)) / 2)
            since, count = now, 0
        self._ended[alias] = since, count

    def publish(self, event: SchedulerEvent) -> None:
        """Tell the listeners."""
        self.events.publish(event)

    def notify(self, code: int, run: Run, reason: str) -> None:
        """Publish an event about a run."""
        self.events.tell(code, run, None, reason)


def _unknown(call: Call, policy: Policy) -> str | None:
    """Say that nothing is known of the executor that a call needs."""
    return None


def _with_function(run: Run) -> Run:
    """Import the function of a run, as APScheduler's schedulers do."""
    backoff = run.policy.backoff
    if isinstance(backoff, str):
        run = replace(run, policy=replace(run.policy, backoff=ref_to_obj(backoff)))
    return replace(run, call=run.call.found(ref_to_obj(str(run.call.func))))
