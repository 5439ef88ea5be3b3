"""The heartbeat tick: renew the leases of this node's runs, announce the node, stop lost or cancelled runs."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from mainspring import __version__
from mainspring.codec import EncodeError
from mainspring.core.insight.alerts import ALERTS_QUEUE
from mainspring.core.run import Beat
from mainspring.jobstores.base import Hold, NodeInfo
from mainspring.jobstores.values import NodeRun, sign_of_life_seconds

if TYPE_CHECKING:
    from mainspring.core.run import Run
    from mainspring.node.node import Node
    from mainspring.node.store_link import StoreLink

__all__ = ["HeartbeatTick", "cluster_of", "describe", "resident_bytes"]

NOTES_SECONDS: Final = 1.0
"""Store the progress, data and log lines of runs this often."""
REFERENCE_LIMIT_CHARS: Final = 200
"""Announce only this many characters of the name of a function that the node lacks."""
MOST_SLOTS_SHOWN: Final = 100
"""Announce only the busy slots of an executor that has more slots than this, such as an event loop."""
MOST_RUNS_SHOWN: Final = 64
"""Announce at most this many of the runs that the node executes."""
MOST_MISSING_FUNCTIONS: Final = 100
"""Announce at most this many functions that the node lacks."""

log = logging.getLogger("mainspring.heartbeat")


class HeartbeatTick:
    """Keeps the claims of one store alive."""

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        watcher = link.node.watcher
        self.steady_since: float | None = None if watcher is None else watcher.steady_since
        """The time since which every heartbeat has succeeded, here or in the watcher; None after a failed one."""

        self._beats_at = 0.0
        """The time of the next whole heartbeat, by the monotonic clock."""
        self._announced_at = 0.0
        self._notes_stored_at = 0.0
        self._hurried = False
        """Whether the notes of a run wait to be stored."""

    def hurry(self) -> None:
        """Store the notes of a run within a second."""
        if not self._hurried:
            self._hurried = True
            self.link.care.wake(self)

    def __call__(self) -> float:
        """Send what is due: a whole heartbeat, or only a sign of life, or only the changed notes of runs."""
        node, now = self.link.node, self.link.node.clock.monotonic()
        every = sign_of_life_seconds(node.lease)
        if now >= self._beats_at or self.steady_since is None:
            self._beat(now)
        elif now >= self._announced_at + every:
            self._announce(now)
        elif self._hurried and now >= self._notes_stored_at + NOTES_SECONDS:
            self._store_notes(now)
        soonest = min(self._beats_at, self._announced_at + every)
        if self._hurried:
            soonest = min(soonest, self._notes_stored_at + NOTES_SECONDS)
        return max(0.0, soonest - node.clock.monotonic())

    def _announce(self, now: float) -> None:
        """Announce that the node is alive, and its load."""
        try:
            self.link.announce()
        except BaseException:  # the next tick sends a whole heartbeat
            self.steady_since = None
            raise
        self._announced_at = now

    def _beat(self, now: float) -> None:
        link, node = self.link, self.link.node
        try:
            self._announce(now)
            link.look_for_losses()
            self._hurried, self._notes_stored_at = False, now
            if node.watcher is None:
                self._extend([run for run in list(link.claims.values()) if run.token is not None])
            else:  # the watcher renews the leases, even while a task holds the GIL
                self._store_notes(now)
        except BaseException:
            self.steady_since = None
            raise
        link.answered()
        link.hand_over_sums()
        self._beats_at = now + node.lease / 3
        if self.steady_since is None:
            self.steady_since = node.clock.monotonic()

    def _store_notes(self, now: float) -> None:
        link = self.link
        self._hurried, self._notes_stored_at = False, now
        self._extend(
            [notes.run for notes in list(link.notes.values()) if notes.changed and notes.run.id in link.claims]
        )

    def _extend(self, runs: list[Run]) -> None:
        link = self.link
        if not runs:
            return
        beats = []
        for run in runs:
            notes = link.notes.get(run.id)
            beats.append(Beat(run.id, str(run.token)) if notes is None or not notes.changed else notes.beat())
        for run, answer in zip(runs, self._extend_in_store(beats), strict=True):
            if answer is Hold.HELD:
                continue
            # A run whose outcome is on its way is not lost: the settle finds out whether another node took it. Check
            # `reported` first, because `end` drops the claim before the report.
            if (answer is Hold.LOST and run.id in link.reported) or link.claims.get(run.id) is not run:
                continue
            if answer is Hold.LOST:
                log.warning("the lease of run %r is lost; stopping the run here if possible", run.id)
            link.stop_run(run)

    def _extend_in_store(self, beats: list[Beat]) -> list[Hold]:
        store, lease = self.link.store, self.link.node.lease
        try:
            return store.extend(beats, lease)
        except EncodeError:  # renew all leases first; then find the run whose notes cannot be stored
            answers = store.extend([Beat(beat.run_id, beat.token) for beat in beats], lease)
        for beat in beats:
            if beat.progress is None and beat.data is None and not beat.log:
                continue
            try:
                store.extend([beat], lease)
            except EncodeError as error:
                log.error("cannot store the progress, data or log lines of run %r: %s", beat.run_id, error)
        return answers


# -- the announcement of a node ------------------------------------------------------------------------------------


def describe(link: StoreLink) -> NodeInfo:
    """Describe a node for the other nodes on one of its stores."""
    node = link.node
    return NodeInfo(
        id=node.id,
        host=node.host,
        pid=os.getpid(),
        started_at=node.started_at,
        queues=(*node.served_queues, ALERTS_QUEUE) if node.alerts else node.served_queues,
        state="draining" if node.draining else "paused" if node.paused or node.quiet else "running",
        version=__version__,
        missing=tuple(sorted(name[:REFERENCE_LIMIT_CHARS] for name in node.missing.first(MOST_MISSING_FUNCTIONS))),
        stuck=sum(executor.stuck for executor in node.executors.values()),
        cluster="" if node.watcher is None else cluster_of(node),
        code=node.code,
        done=node.done,
        rss=resident_bytes(),
        every=sign_of_life_seconds(node.lease),
        **_load(link),
    )


def cluster_of(node: Node) -> str:
    """Return the name of the sentinel of a worker process."""
    return f"{node.host}:{_sentinel_pid()}"


def _load(link: StoreLink) -> dict[str, Any]:
    """Return the number of slots, the number of busy slots, and some of their runs, the oldest claims first."""
    slots = busy = 0
    for alias, executor in list(link.node.executors.items()):
        held = sum(each.in_flight.get(alias, 0) for each in link.node.links.values())
        size = executor.slots if executor.slots <= MOST_SLOTS_SHOWN else held
        slots, busy = slots + size, busy + min(held, size)
    claims = [run for run in list(link.claims.values()) if run.id not in link.reported]
    runs = tuple(NodeRun(run.id, run.started_at or 0) for run in claims[: min(busy, MOST_RUNS_SHOWN)])
    return {"slots": slots, "busy": busy, "runs": runs}


def _sentinel_pid() -> int:
    """Return the id of the process that started this worker process, even through a fork server."""
    from multiprocessing import parent_process  # a worker process has imported it

    parent = parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def resident_bytes() -> int:
    """Return the bytes of memory that this process uses, or 0 if the system does not report them."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
