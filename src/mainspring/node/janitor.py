"""The janitor tick: make the runs of dead nodes claimable again, and delete runs past their retention."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mainspring.core.insight.alerts import ALERTS_QUEUE
from mainspring.core.instants import SECOND
from mainspring.core.run import BY_HAND_PREFIX, Outcome, Report, Result, Run, Status
from mainspring.core.transitions import cancel, recover
from mainspring.core.waiting.flows import MARKER_QUEUE
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.finding import pages
from mainspring.node.settling import Settler
from mainspring.node.watch.lookouts import JobHealthWatch, UnservedQueues

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["JanitorTick"]

RECOVERY_PAGE_RUNS: Final = 100
RESTORE_SECONDS: Final = 60.0
"""Try this often to restore records that a node with other keys could not read."""

ABANDONED_SECONDS: Final = 600.0
"""Cancel a flow that is not stored completely after this many seconds: the process that stored it is gone."""
MARKERS_SECONDS: Final = 60.0
"""Look this often for flows that are not stored completely."""

SWEEP_SECONDS: Final = 300.0
"""Look this often for records that were altered in the store so that no other query finds them."""
PRUNING_PAUSE_SECONDS: Final = 3600.0
"""Prune nothing for this long after the store's clock jumped: a deleted run does not come back."""

log = logging.getLogger("mainspring.janitor")


class JanitorTick:
    """Cleans up after dead nodes. Every node has a janitor; where two try the same step, the store decides."""

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        self._restores_at = link.node.clock.monotonic() + RESTORE_SECONDS
        self._sweeps_at = link.node.clock.monotonic() + SWEEP_SECONDS
        self._seen: tuple[int, float] | None = None
        """The store's time at the last look, and this node's monotonic time just before that look."""
        self._patient_until = self._prunes_at = 0.0
        self._markers_at = link.node.clock.monotonic() + MARKERS_SECONDS * link.node.clock.random()
        self.unserved, self.health = UnservedQueues(link), JobHealthWatch(link)
        self.chores: list[Callable[[], object]] = []
        """Functions to call at each look; an error of a chore is logged, and the next look calls it again."""

    def __call__(self) -> float:
        """Recover a page of expired runs; prune; now and then restore records that other nodes have set aside."""
        link, node = self.link, self.link.node
        steady, jumped = link.heartbeat.steady_since, self._has_jumped()
        if not jumped:
            # This node's own runs are alive even if their leases are over: this machine may have slept. They may fill
            # the page, so ask for more.
            mine = set(link.claims)
            expired = link.store.find_runs(RunQuery(lapsed=True), limit=RECOVERY_PAGE_RUNS + len(mine))
            dead = [run for run in expired if run.id not in mine and run.id not in link.claims]
            # No node can renew its leases during an outage. So recover runs only after a whole lease without one.
            if steady is None or node.clock.monotonic() - steady < node.lease:
                dead = [run for run in dead if run.node is not None and run.node.startswith(BY_HAND_PREFIX)]
            if dead and self._recover(dead) and len(expired) >= RECOVERY_PAGE_RUNS:
                return 0.0
        if node.clock.monotonic() >= self._prunes_at and link.store.prune() >= 1000:
            return 0.0
        if not jumped and node.clock.monotonic() >= self._markers_at:
            self._markers_at = node.clock.monotonic() + MARKERS_SECONDS * (0.5 + node.clock.random())
            self._cancel_abandoned()
        self.unserved.look_if_due()
        self.health.look_if_due()
        self._mend()
        for chore in self.chores:
            try:
                chore()
            except Exception as error:
                log.warning("a chore failed and is tried again: %s", error)
        return node.lease / 3 * (0.5 + 0.5 * node.clock.random())

    def _mend(self) -> None:
        """Restore records that other nodes have set aside; now and then look for altered records."""
        link, clock = self.link, self.link.node.clock
        now = clock.monotonic()
        thorough = now >= self._sweeps_at
        if now < self._restores_at and not thorough:
            return
        self._restores_at = now + RESTORE_SECONDS * (0.5 + clock.random())
        if thorough:
            self._sweeps_at = now + SWEEP_SECONDS * (0.5 + clock.random())
        if link.store.mend(thorough=thorough):
            link.wake()

    def _has_jumped(self) -> bool:
        """Return True if leases may be over only because the store's clock jumped ahead or all machines slept."""
        link, clock = self.link, self.link.node.clock
        before, asked = self._seen, clock.monotonic()
        now = link.store.beat()
        link.observe(now, asked)
        self._seen, here = (now, asked), clock.monotonic()
        if before is not None:
            ahead = (now - before[0]) / SECOND - (here - before[1])  # a lower bound, however slowly the store answered
            if ahead > link.node.lease / 3:
                alias = link.alias
                log.warning(
                    "the clock of store %r jumped by %.0f s; waiting for living nodes to renew their leases",
                    alias,
                    ahead,
                )
                self._patient_until, self._prunes_at = here + link.node.lease, here + PRUNING_PAUSE_SECONDS
        return here < self._patient_until

    def _recover(self, dead: list[Run]) -> int:
        """Make runs claimable again, or end them if their policy forbids that; return the number of recovered runs."""
        now, settler, recovered = self.link.now(), Settler(self.link.store), 0
        for run in dead:
            try:
                settler.add(Report(run, Result.INTERRUPTED), recover(run, now), now)
            except Exception as error:  # its follow-ups cannot be made
                log.error("run %r was lost with its node and cannot be recovered", run.id, exc_info=error)
        try:
            for each in settler.settle(now):
                self.link.sums.settled([each], now)
                if each.accepted and each.dropped:
                    self.link.node.events.settled(each.outcome, self.link.alias)
                elif each.accepted:
                    recovered += 1
                    self._announce(each.outcome)
        except OSError:  # the store is away
            raise
        except Exception as error:
            lost = ", ".join(repr(report.run.id) for report, *_ in settler.unsettled)
            log.error("runs lost with their nodes cannot be recovered: %s", lost, exc_info=error)
        return recovered

    def _cancel_abandoned(self) -> None:
        """Cancel the markers of abandoned flows; cancelling a marker cancels its flow."""
        link, now = self.link, self.link.now()
        query = RunQuery(status=(Status.PENDING,), queue=MARKER_QUEUE)
        settler = Settler(link.store)
        for run in chain.from_iterable(pages(link.store, query)):
            if now - run.created_at > ABANDONED_SECONDS * SECOND:
                marker = replace(run, reason="the process that stored the flow is gone")
                settler.add(Report(marker, Result.CANCELLED), cancel(marker, now), now)
                log.warning("the flow %r was not stored as a whole, and is cancelled", run.group)
        for each in settler.settle(now):
            if each.accepted:
                link.node.events.settled(each.outcome, link.alias)

    def _announce(self, outcome: Outcome) -> None:
        link, run = self.link, outcome.run
        link.node.events.recovered(outcome, link.alias)
        link.worker.look(run.queue, run.run_at)
        if run.queue == ALERTS_QUEUE:
            link.wake_alerts()
