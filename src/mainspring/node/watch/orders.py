"""Orders of people to this node: be quiet, go on, stop. The store keeps orders as acts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mainspring.core.insight.acts import Act, about
from mainspring.core.instants import SECOND

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["ORDERS_LOOKED_AT", "OrderWatch"]

ORDERS_LOOKED_AT: Final = 10
"""Read this many of the newest acts about the node, so that later acts do not hide an order."""

log = logging.getLogger("mainspring.node")


class OrderWatch:
    """Looks for orders at each look of the janitor, and follows each of them once."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._followed = ""
        """The id of the newest order that this node has followed."""

    def __call__(self) -> None:
        """Follow the new orders, the oldest first."""
        link, node = self._link, self._link.node
        name = node.order_name
        # Orders name a sentinel by its process id, which an earlier sentinel may have had. Ignore orders to that one.
        since = link.now() - int((node.clock.monotonic() - node.ordered_since) * SECOND)
        found = link.store.acts(about=about("node", name), limit=ORDERS_LOOKED_AT)
        for act in reversed(found):
            if act.id > self._followed and act.at > since and act.target == name:
                self._followed = act.id
                self._follow(act)

    def _follow(self, act: Act) -> None:
        node = self._link.node
        why = f": {act.why}" if act.why else ""
        if act.verb == "quiet_node":
            log.info("%s has told this node to be quiet: it fires and claims nothing%s", act.by, why)
            node.be_quiet(True)
        elif act.verb == "resume_node":
            log.info("%s has told this node to go on%s", act.by, why)
            node.be_quiet(False)
        elif act.verb == "stop_node":
            log.info("%s has told this node to stop%s", act.by, why)
            node.leave()
