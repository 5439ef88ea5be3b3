"""A node: stores, executors and the four ticks. START READING HERE.

Each store is a `StoreLink` with three loops. One claims and fires (`worker`, `scheduler`). One settles what has ended;
for a store in memory the first does that too. One keeps claims alive and cleans up after the dead (`heartbeat`,
`janitor`). A listener thread turns the store's hints into wake-ups. All nodes are equal: where two may both try, the
store decides.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final, Protocol

from msgspec.structs import replace

from mainspring import __version__
from mainspring.clock import Clock, SystemClock
from mainspring.core.instants import from_us
from mainspring.core.references import ref_to_obj
from mainspring.core.run import Report, Result, Run
from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import JobStore, NodeInfo
from mainspring.node.complaints import Complaints
from mainspring.node.listeners import Listeners
from mainspring.node.run_events import RunEvents
from mainspring.node.store_link import StoreLink

__all__ = ["Node", "Watcher"]

CLAIM_AHEAD_SECONDS: Final = 0.2
"""Seconds of work that a node claims beyond what its slots execute now."""
MOST_CLAIMED_RUNS: Final = 4000
"""In several batches, so that some are executed and some settled while the store hands out the next."""
FULL_EXECUTOR_CLAIM_RUNS: Final = 10
FIRST_RATE_PER_SECOND: Final = 250.0
"""Runs that are supposed to end in a second until it is known how many do."""
RATE_WINDOW_SECONDS: Final = 0.1
"""Seconds for which ended runs are counted."""
RARE_EXECUTOR_SHARE: Final = 0.01
"""The share of the claimed runs below which an executor's room does not count."""
ISOLATED_EXECUTOR: Final = "processes"
"""The executor of runs that are isolated, or have crashed a worker before: see `working`."""
REFERENCE_LIMIT_CHARS: Final = 200
"""Characters of a function's name in what the node says of itself."""
MOST_ISOLATED_AHEAD_RUNS: Final = 100
"""Runs that a node holds for it, unstarted, at most: what waits behind so many is not kept waiting by them."""
MOST_MISSING_FUNCTIONS: Final = 100
"""References that a node names, with every beat, as those it cannot call."""


class Watcher(Protocol):
    """Whoever supervises this process and needs to know what it has claimed."""

    steady_since: float | None
    """Since when it has found the store answering, by the monotonic clock: outages before this process began count."""

    @property
    def runs_left(self) -> int | None:
        """How many more runs this process may execute, including those that it holds; None: any number."""

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
        events: RunEvents | None = None,
        queues: Mapping[str, int | None] | None = None,
        prepare: Callable[[Run], Run] | None = None,
        schedules: bool = True,
        watcher: Watcher | None = None,
        declare: Callable[[], None] | None = None,
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
        """The queues this node serves, each with the most runs of it at once; None: the lanes of its executors."""
        self.prepare = prepare or _with_function
        """Finds a claimed run's function and executor; LookupError if this node has not got the code."""
        self.schedules = schedules
        self.watcher = watcher
        self.declare = declare
        """Adds the schedules of the code that are not in the store: called when the store has lost data."""
        self.paused = False
        self.draining = False
        self.finishing = False
        """While draining: also execute what waits in a store that nobody could take it from later."""
        self.missing = Complaints()
        """References that this node cannot import."""
        self.pace: dict[str, float] = {}
        """Recent seconds per run, by executor."""
        self.rates: dict[str, float] = {}
        """Runs that ended lately in a second, by executor."""
        self._ended: dict[str, tuple[float, int]] = {}
        """By executor, runs that ended since an instant of the monotonic clock."""
        self.shares: dict[str, float] = {}
        """Which part of the runs claimed lately from queues each executor got."""
        self.events = events or RunEvents(listeners, zone=lambda: timezone)
        """Tells the listeners what happens to runs."""
        self._started = False
        self._started_at = self.clock.now()
        self._tokens = 0
        self._stem = os.urandom(8).hex()

    # -- life --------------------------------------------------------------------------------------------------

    def add_store(self, alias: str, store: JobStore) -> StoreLink:
        """Take part in a store from now on."""
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
        """Claim and fire nothing more from a store; `close_store` waits for what has started."""
        link = self.links.pop(alias)
        link.leaving = True
        self._leaving.append(link)
        return link

    def close_store(self, link: StoreLink) -> None:
        """Give back what has not started of a removed store, and leave it when the rest has ended."""
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
        return self.schedules and not (self.paused or self.draining)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes this node claims from."""
        return tuple(f".{alias}" for alias in self.executors) if self.queues is None else tuple(self.queues)

    @property
    def listening(self) -> int:
        """The mask of the events somebody listens to: others are not even made."""
        return self.events.listeners.mask

    def new_token(self) -> str:
        """Make a token that no other claim has ever had."""
        self._tokens += 1
        return f"{self._stem}{self._tokens:x}"

    def elapsed(self) -> int:
        """Return microseconds by the monotonic clock: what executors measure by, whichever store a run is of."""
        return int(self.clock.monotonic() * 1e6)

    def local(self, us: int) -> datetime:
        """Return an instant as a datetime in the user's zone."""
        return from_us(us).astimezone(self.timezone)

    def free(self, alias: str) -> int:
        """Return how many more runs an executor should be given, of those that this process may still execute."""
        return min(self._runs_left(), self._free(alias))

    def _free(self, alias: str) -> int:
        """Return how many more runs an executor has room for: its slots, or what they will end in a moment."""
        executor = self.executors[alias]
        if not getattr(executor, "accepting", True):
            return 0
        slots = executor.slots - executor.stuck
        pace = self.pace.get(alias)
        wanted = slots
        if pace is not None:  # by what one takes, and by how many really end: the store, or the machine, may be slower
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

    def _runs_left(self) -> int:
        """Return how many more runs to claim before this process has executed as many as it may."""
        left = None if self.watcher is None else self.watcher.runs_left
        # In this order, since a run is counted as executed before its claim is forgotten: none is counted as neither.
        if left is None:
            return MOST_CLAIMED_RUNS
        return min(MOST_CLAIMED_RUNS, left - sum(len(link.claims) for link in self.links.values()))

    def room(self) -> tuple[int, bool]:
        """Return how many more runs to claim from queues, and whether there is room for whatever they need.

        What an executor has room for is divided by its share of what came lately: one that is hardly ever needed does
        not hold the others up. While one is full, a few at a time are claimed for the sake of the others: those for the
        full one are given back. Isolated runs, which have few slots, may be many of those.
        """
        left = self._runs_left()
        room, most = left, 0
        for alias, executor in list(self.executors.items()):
            free, share = self._free(alias), self.shares.get(alias, 1.0)
            if free <= -(
                max(MOST_ISOLATED_AHEAD_RUNS, executor.slots) if alias == ISOLATED_EXECUTOR else executor.slots
            ):
                return 0, False
            most = max(most, free)
            if share > RARE_EXECUTOR_SHARE:
                room = min(room, int(free / share))
        return (room, True) if room > 0 else (min(FULL_EXECUTOR_CLAIM_RUNS, most, left), False)

    def note_ended(self, alias: str, number: int) -> None:
        """Learn how many runs an executor ends in a second: more at once, fewer by and by."""
        now = self.clock.monotonic()
        since, count = self._ended.get(alias, (now, 0))
        count += number
        if now - since >= RATE_WINDOW_SECONDS:
            rate = count / (now - since)
            self.rates[alias] = max(rate, (rate + self.rates.get(alias, rate)) / 2)
            since, count = now, 0
        self._ended[alias] = since, count

    def note_shares(self, numbers: Mapping[str, int]) -> None:
        """Learn which executors the runs need that come from the queues."""
        total = sum(numbers.values())
        weight = min(0.5, total / 20)
        for alias in self.executors:
            share = self.shares.get(alias, 1.0)
            self.shares[alias] = share + (numbers.get(alias, 0) / total - share) * weight

    def publish(self, event: SchedulerEvent) -> None:
        """Tell the listeners."""
        self.events.publish(event)

    def notify(self, code: int, run: Run, reason: str) -> None:
        """Tell the listeners about a run."""
        self.events.tell(code, run, None, reason)

    def info(self, link: StoreLink) -> NodeInfo:
        """Describe this node for the others."""
        return NodeInfo(
            id=self.id,
            host=self.host,
            pid=os.getpid(),
            started_at=self._started_at,
            lanes=self.lanes,
            state="draining" if self.draining else "paused" if self.paused else "running",
            version=__version__,
            missing=tuple(sorted(name[:REFERENCE_LIMIT_CHARS] for name in self.missing.first(MOST_MISSING_FUNCTIONS))),
            stuck=sum(executor.stuck for executor in self.executors.values()),
        )


def _with_function(run: Run) -> Run:
    """Import what a run calls, as APScheduler's front ends do."""
    backoff = run.policy.backoff
    if isinstance(backoff, str):
        run = replace(run, policy=replace(run.policy, backoff=ref_to_obj(backoff)))
    return replace(run, call=run.call.found(ref_to_obj(str(run.call.func))))
