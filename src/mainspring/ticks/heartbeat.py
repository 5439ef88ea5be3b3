"""The heartbeat tick: renew the leases of what runs here, announce the node, pass on what is to be stopped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring.jobstores.base import Hold
from mainspring.run import Beat

if TYPE_CHECKING:
    from mainspring.node import Link

__all__ = ["HeartbeatTick"]

log = logging.getLogger("mainspring.heartbeat")


class HeartbeatTick:
    """Keeps the claims of one store alive."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.steady_since: float | None = None
        """Since when every beat has succeeded; None after one that failed."""

    def __call__(self) -> float:
        """Beat once."""
        link, node = self.link, self.link.node
        try:
            link.store.beat(node.info(link), ttl=2 * node.lease)
            self._extend()
        except Exception:
            self.steady_since = None
            raise
        link.answered()
        if self.steady_since is None:
            self.steady_since = node.clock.monotonic()
        return node.lease / 3

    def _extend(self) -> None:
        link = self.link
        runs = [run for run in list(link.claims.values()) if run.token is not None]
        if not runs:
            return
        answers = link.store.extend([Beat(run.id, str(run.token)) for run in runs], link.node.lease)
        for run, answer in zip(runs, answers, strict=True):
            if answer is Hold.HELD or link.claims.get(run.id) is not run:
                continue
            if answer is Hold.LOST:
                log.warning("the lease of run %r is lost; it is stopped here if it can be", run.id)
            link.stop_run(run)
