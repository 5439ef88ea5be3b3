"""A node: stores, executors and the four ticks. START READING HERE.

Each store is a `StoreLink` with three loops. The first claims and fires (`worker`, `scheduler`). The second settles
runs that have ended; for a store in memory the first does that too. The third keeps claims alive and cleans up after
dead nodes (`heartbeat`, `janitor`). A listener thread hears of changes in the store, and calls the ticks of the first
loop because of them. All nodes are equal: where two try the same step, the store decides.
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
from mainspring.node.events.run_events import RunEvents
from mainspring.node.heartbeat import cluster_of
from mainspring.node.store_link import StoreLink

__all__ = ["Node", "Watcher"]

CLAIM_AHEAD_SECONDS: Final = 0.2
"""Claim this many seconds of work ahead of the runs that the slots execute now."""
MOST_CLAIMED_RUNS: Final = 4000
"""Hold at most this many claimed runs: the node executes and settles some while the store hands out the next."""
MOST_CLAIMED_BYTES: Final = 64 * 2**20
"""Hold claimed runs with stored calls of about this size at most, but always one run for each slot."""
FIRST_RATE_PER_SECOND: Final = 250.0
"""Assume that this many runs end per second until the node has measured it."""
RATE_WINDOW_SECONDS: Final = 0.1
"""Count ended runs for this many seconds to measure the rate."""


class Watcher(Protocol):
    """The supervisor of this process, which needs to know the runs that the process has claimed."""

    steady_since: float | None
    """The time since which the store has answered, by the monotonic clock.

    An outage before this process began counts, too.
    """

    @property
    def runs_left(self) -> int | None:
        """How many more runs this process may execute, including those it holds; None for any number."""

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None:
        """Note that the node is about to claim or fire: the store finds the runs that this leases by the token."""

    def claimed(self, runs: Sequence[Run]) -> None:
        """Note claimed runs, before any of them is executed."""

    def ended(self, run_ids: Sequence[str]) -> None:
        """Note that claims are over."""

    @property
    def began_at(self) -> float:
        """The time when the supervisor began, by the monotonic clock."""

    def stop_all(self) -> None:
        """Ask the supervisor to stop, with all its processes."""


class Node:
    """The node of one process. It starts once, drains and stops."""

    def __init__(
        self,
        executors: dict[str, BaseExecutor],
        *,
        clock: Clock | None = None,
        lease: float = 15.0,
        retry_interval: float = 10.0,
        timezone: tzinfo | None = None,
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
        """The queues this node serves, each with its limit of runs at once; None for the queues of its executors."""
        self.prepare = prepare or _with_function
        """Finds the function and the executor of a claimed run; raises LookupError if this node lacks the code."""
        self.executor_for = executor_for or _unknown
        """Names the executor that a call in a queue needs; None if this node does not know it."""
        self.unstarted = unstarted or {}
        """The number of slots of each executor that starts only when a run first needs it."""
        self._lanes: tuple[object, dict[str, tuple[str, ...]]] = None, {}
        self.schedules = schedules
        self.watcher = watcher
        self.declare = declare
        """Adds the declared schedules that the store lacks; called when the store has lost data."""
        self.code = code
        """The version of the user's code, for people to read."""
        self.alerts = {} if alerts is None else alerts
        """The targets of alerts about the health of jobs, by name."""
        self.app_name = app_name
        self.done = 0
        """How many runs have ended here."""
        self.paused = False
        self.quiet = False
        """Whether a person has ordered this node, through the store, to fire and claim nothing."""
        self.draining = False
        self.finishing = False
        """Whether a draining node also executes the waiting runs of memory stores, which no other node can take."""
        self.missing = Complaints()
        """References of functions that this node cannot import."""
        self.pace: dict[str, float] = {}
        """Recent seconds per run, by executor."""
        self.rates: dict[str, float] = {}
        """Recent number of ended runs per second, by executor."""
        self._call_bytes = 0.0
        """The recent size of a stored call; 0 in a store that keeps objects."""
        self._ended: dict[str, tuple[float, int]] = {}
        """The start of the current rate window by the monotonic clock, and the runs ended since, by executor."""
        self.events = events or RunEvents(zone=lambda: timezone)
        """Publishes events about runs."""
        self._started = False
        self.started_at = self.clock.now()
        self._began_at = self.clock.monotonic()
        self._leave = leave
        """Stops the app or scheduler that started this node; it may block."""
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
        """Start the loops of all stores, and of those added later."""
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
        """Give back the unstarted runs of a removed store, wait for the started ones, and leave the store."""
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
        """Follow a person's order to fire and claim nothing, or to go on; a paused node stays paused."""
        if self.quiet != quiet:
            self.quiet = quiet
            self.wake()
            for link in list(self.links.values()):
                link.announce()

    def leave(self) -> None:
        """Follow a person's order to stop: stop the sentinel, or else the app or scheduler that started this node."""
        if self.watcher is not None:
            self.watcher.stop_all()
        elif self._leave is not None and not self.draining:
            # Use a thread, because stopping waits for the loop that called this. It is not a daemon thread, so the
            # interpreter waits for it.
            threading.Thread(target=self._leave, name="mainspring-leave").start()

    @property
    def order_name(self) -> str:
        """The name by which people address orders to this node; a worker process follows the orders to its sentinel."""
        return self.id if self.watcher is None else cluster_of(self)

    @property
    def ordered_since(self) -> float:
        """The time since which `order_name` means this node, by the monotonic clock; older orders are not for it."""
        return self._began_at if self.watcher is None else self.watcher.began_at

    def wake(self) -> None:
        """Fire and claim now, in all stores."""
        for link in list(self.links.values()):
            link.wake()

    def wake_for(self, alias: str, at: int | None) -> None:
        """Make the scheduler tick look in time for a job that is due at `at`."""
        link = self.links.get(alias)
        if link is not None and at is not None:
            link.scheduler.wake_for(at)

    def drain(self, *, finish: bool) -> None:
        """Fire nothing more, and give back unstarted runs.

        With `finish`, first execute the waiting runs of memory stores, which no other node can take.
        """
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
            if taken and older_than is not None:  # the current runs take longer than the earlier ones did
                alias = taken[0].executor or taken[0].queue[1:]
                self.pace[alias] = max(self.pace.get(alias, 0.0), CLAIM_AHEAD_SECONDS)
            for run in taken:
                for link in [*self.links.values(), *self._leaving]:
                    if link.claims.get(run.id) is run:
                        link.report(Report(run, Result.UNSTARTED))

    # -- for the ticks -----------------------------------------------------------------------------------------

    @property
    def firing(self) -> bool:
        """Whether this node fires due jobs now."""
        return self.schedules and not (self.paused or self.quiet or self.draining)

    @property
    def served_queues(self) -> tuple[str, ...]:
        """The queues this node claims from."""
        return tuple(f".{alias}" for alias in self.executors) if self.queues is None else tuple(self.queues)

    def claims_freely(self, queue: str) -> bool:
        """Return True if this node serves a queue and sets it no limit of runs at once."""
        return self.queues is not None and self.queues.get(queue, 0) is None

    @property
    def lanes(self) -> dict[str, tuple[str, ...]]:
        """The lanes that this node claims for each of its executors.

        The first executor also gets the lanes of the executors that this node lacks: `prepare` finds another executor
        for their runs.
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

    def new_token(self) -> str:
        """Make a token that no other claim has ever had."""
        self._tokens += 1
        return f"{self._stem}{self._tokens:x}"

    def elapsed(self) -> int:
        """Return the monotonic time in microseconds; executors measure the runs of every store by it."""
        return int(self.clock.monotonic() * 1e6)

    def local(self, us: int) -> datetime:
        """Return an instant as a datetime in the user's zone."""
        return from_us(us).astimezone(self.timezone)

    def free(self, alias: str) -> int:
        """Return how many more runs to give an executor, within the number that this process may still execute."""
        left = MOST_CLAIMED_RUNS if self.watcher is None else self.runs_left()
        return min(left, self.room_of(alias))

    def room_of(self, alias: str) -> int:
        """Return how many more runs an executor has room for: its slots, plus the runs that will end in a moment."""
        executor = self.executors.get(alias)
        slots = self.unstarted.get(alias, 0) if executor is None else executor.usable_slots
        pace = self.pace.get(alias)
        wanted = slots
        if slots and pace is not None:
            # Bound this by the time a run takes and by the measured rate: the store or the machine may be slower.
            rate = self.rates.get(alias, FIRST_RATE_PER_SECOND)
            wanted = max(
                slots,
                min(
                    MOST_CLAIMED_RUNS,
                    int(slots * CLAIM_AHEAD_SECONDS / max(pace, 1e-6)),
                    slots + int(2 * CLAIM_AHEAD_SECONDS * rate),
                    int(MOST_CLAIMED_BYTES / max(self._call_bytes, 1.0)),
                ),
            )
        for link in self.links.values():
            wanted -= link.in_flight.get(alias, 0)
        return wanted

    def runs_left(self) -> int:
        """Return how many more runs this process may claim before it reaches its limit of executed runs."""
        left = None if self.watcher is None else self.watcher.runs_left
        # Read `left` before the claims. A run counts as executed before its claim is dropped, so every run is counted.
        if left is None:
            return MOST_CLAIMED_RUNS
        return min(MOST_CLAIMED_RUNS, left - sum(len(link.claims) for link in self.links.values()))

    def note_sizes(self, runs: Sequence[Run]) -> None:
        """Measure how large the stored calls of claimed runs are; a rise counts at once, a fall only half at a time."""
        size = 0
        for run in runs:
            if run.call.frame is not None:
                size += len(run.call.frame)
        mean = size / len(runs)
        self._call_bytes = max(mean, (mean + self._call_bytes) / 2)

    def note_ended(self, alias: str, number: int) -> None:
        """Measure how many runs an executor ends per second; a rise counts at once, a fall only half at a time."""
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
        """Deliver an event to the listeners that want it."""
        self.events.publish(event)

    def notify(self, code: int, run: Run, reason: str) -> None:
        """Publish an event about a run."""
        self.events.tell(code, run, None, reason)


def _unknown(call: Call, policy: Policy) -> str | None:
    """Return None: this node does not know which executor a call needs."""
    return None


def _with_function(run: Run) -> Run:
    """Import the function of a run, as APScheduler's schedulers do."""
    backoff = run.policy.backoff
    if isinstance(backoff, str):
        run = replace(run, policy=replace(run.policy, backoff=ref_to_obj(backoff)))
    return replace(run, call=run.call.found(ref_to_obj(str(run.call.func))))
