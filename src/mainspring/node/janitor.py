"""The janitor tick: make the runs of dead nodes claimable again, and forget what is past its retention."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mainspring.core.instants import SECOND
from mainspring.core.run import BY_HAND_PREFIX, Outcome, Report, Result, Run
from mainspring.core.transitions import recover
from mainspring.node.settling import Settler

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["JanitorTick"]

RECOVERY_PAGE_RUNS: Final = 100
RESTORE_AFTER_SECONDS: Final = 60.0
"""Seconds after which a job that a node with other keys could not read is looked at again by one that can."""

SWEEP_SECONDS: Final = 300.0
"""Seconds after which records are looked for that somebody altered so that nothing else finds them."""
PRUNING_PAUSE_SECONDS: Final = 3600.0
"""Seconds for which nothing is pruned after the store's clock jumped: what is deleted does not come back."""

log = logging.getLogger("mainspring.janitor")


class JanitorTick:
    """Cleans up after the dead, in every node alike: each step is judged by the store."""

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        self._restores_at = link.node.clock.monotonic() + RESTORE_AFTER_SECONDS
        self._sweeps_at = link.node.clock.monotonic() + SWEEP_SECONDS
        self._seen: tuple[int, float] | None = None
        """The store's time when it was last looked at, and this node's monotonic one just before."""
        self._patient_until = self._prunes_at = 0.0

    def __call__(self) -> float:
        """Recover a page of expired runs; prune; now and then put back what others have set aside."""
        link, node = self.link, self.link.node
        steady, jumped = link.heartbeat.steady_since, self._has_jumped()
        if not jumped:
            # What runs here is alive, whatever its lease says: this machine may have slept. So ask for so many more.
            mine = set(link.claims)
            expired = link.store.expired(RECOVERY_PAGE_RUNS + len(mine))
            dead = [run for run in expired if run.id not in mine and run.id not in link.claims]
            # After an outage nobody could renew: only who has been heard for a whole lease may call others dead.
            if steady is None or node.clock.monotonic() - steady < node.lease:
                dead = [run for run in dead if run.node is not None and run.node.startswith(BY_HAND_PREFIX)]
            if dead and self._recover(dead) and len(expired) >= RECOVERY_PAGE_RUNS:
                return 0.0
        if node.clock.monotonic() >= self._prunes_at and link.store.prune() >= 1000:
            return 0.0
        if node.clock.monotonic() >= self._restores_at:
            self._restores_at = node.clock.monotonic() + RESTORE_AFTER_SECONDS * (0.5 + node.clock.random())
            if link.store.restore_readable():
                link.work.wake(link.scheduler)
        if node.clock.monotonic() >= self._sweeps_at:
            self._sweeps_at = node.clock.monotonic() + SWEEP_SECONDS * (0.5 + node.clock.random())
            if link.store.sweep():
                link.wake()
        return node.lease / 3 * (0.5 + 0.5 * node.clock.random())

    def _has_jumped(self) -> bool:
        """Tell whether leases may be over only because the store's clock was put forward, or all machines slept."""
        link, clock = self.link, self.link.node.clock
        before, asked = self._seen, clock.monotonic()
        now = link.store.server_time()
        link.observe(now, asked)
        self._seen, here = (now, asked), clock.monotonic()
        if before is not None:
            ahead = (now - before[0]) / SECOND - (here - before[1])  # at least, however slowly the store answered
            if ahead > link.node.lease / 3:
                alias = link.alias
                log.warning("the clock of store %r jumped by %.0f s; who lives renews its leases first", alias, ahead)
                self._patient_until, self._prunes_at = here + link.node.lease, here + PRUNING_PAUSE_SECONDS
        return here < self._patient_until

    def _recover(self, dead: list[Run]) -> int:
        """Make runs claimable again, or end them if that may not be; return how many."""
        now, settler, recovered = self.link.now(), Settler(self.link.store), 0
        for run in dead:
            try:
                settler.add(Report(run, Result.INTERRUPTED), recover(run, now), now)
            except Exception as error:  # its follow-ups cannot be made
                log.error("run %r was lost with its node and cannot be recovered", run.id, exc_info=error)
        while settler.unsettled:
            try:
                batch = settler.write(now)
            except OSError:  # the store is away
                raise
            except Exception as error:
                lost = ", ".join(repr(report.run.id) for report, *_ in settler.unsettled)
                log.error("runs lost with their nodes cannot be recovered: %s", lost, exc_info=error)
                break
            for _, outcome, accepted in batch:
                if accepted:
                    recovered += 1
                    self._announce(outcome)
        return recovered

    def _announce(self, outcome: Outcome) -> None:
        link, run = self.link, outcome.run
        log.warning("run %r was lost with its node and is %s now", run.id, run.status)
        link.node.events.recovered(outcome, link.alias)
        link.worker.look(run.queue, run.run_at)
