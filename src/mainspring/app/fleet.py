"""The verbs about nodes: list them, and order one to be quiet, go on or stop. A node finds its orders in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import NodeNotFound
from mainspring.jobstores.base import NodeInfo

if TYPE_CHECKING:
    from mainspring.app.store import AppStore

__all__ = ["Fleet", "named", "order_name"]


def order_name(node: NodeInfo) -> str:
    """Return the name that orders to a node use; worker processes follow the orders to their sentinel."""
    return node.cluster or node.id


def named(nodes: list[NodeInfo], name: str) -> list[NodeInfo]:
    """Return the nodes with a name, which is an id, `host:pid` of a process, or `host:pid` of a sentinel."""
    found = [node for node in nodes if name in (node.id, f"{node.host}:{node.pid}", node.cluster)]
    units = {order_name(node) for node in found}
    return [node for node in nodes if order_name(node) in units]


class Fleet:
    """The nodes on an app's store."""

    def __init__(self, app_store: AppStore, lease: float) -> None:
        self._app_store, self._lease = app_store, lease

    def nodes(self, *, now: int | None = None) -> list[NodeInfo]:
        """Return the living nodes; a node without recent heartbeats has the state `silent`.

        `now` is the store's time in microseconds, if the caller has just asked for it.
        """
        store = self._app_store.store
        now = store.beat() if now is None else now
        return [node.seen_at(now, self._lease) for node in store.nodes()]

    def quiet_node(self, name: str) -> list[str]:
        """Let a node fire and claim nothing until it is resumed; started runs go on. Return the ids of the processes.

        `name` is the id of a node, or `host:pid` of its process. All worker processes of one `mainspring worker` follow
        the order together. They find it in the store within a third of the lease, 5 s by default. Raise NodeNotFound.
        """
        return self._order("quiet_node", name)

    def resume_node(self, name: str) -> list[str]:
        """Let a quiet node fire and claim again; `name` is as in `quiet_node`."""
        return self._order("resume_node", name)

    def stop_node(self, name: str) -> list[str]:
        """Let a node finish its started runs, give back the others and leave; `name` is as in `quiet_node`.

        A `mainspring worker` ends as after a first SIGTERM. A process that called `app.start()` goes on without a node.
        """
        return self._order("stop_node", name)

    def _order(self, verb: str, name: str) -> list[str]:
        nodes = self.nodes()
        found = named(nodes, name)
        if not found:
            raise NodeNotFound(name, tuple(f"{node.host}:{node.pid}" for node in nodes))
        self._app_store.acts.order(verb, "node", order_name(found[0]), processes=[node.pid for node in found])
        return [node.id for node in found]
