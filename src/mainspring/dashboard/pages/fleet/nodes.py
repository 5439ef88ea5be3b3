"""Nodes: the silent ones, the hosts, their processes and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mainspring.app.fleet import order_name
from mainspring.core.insight.wording import listed, several
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.filtering import text_of
from mainspring.dashboard.looks.rows import RunLine, run_row
from mainspring.dashboard.page import Page, View, there
from mainspring.dashboard.pages.fleet.node_actions import ACTIONS
from mainspring.jobstores.base import NodeInfo

__all__ = ["NODE_PAGE", "PAGE"]

RUNS_PER_NODE: Final = 3
"""The number of runs to show for each process; its page shows all that it names."""
MOST_NODES_OPEN: Final = 60
"""The number of processes above which hosts are folded."""
USUAL_SECONDS: Final = 30.0
MOST_LOST: Final = 10


class BusyRun(NamedTuple):
    """A run that a process executes: the used share of its time-out, and the position of its p95."""

    row: RunLine
    share: float
    ticks: tuple[float, ...]
    past: bool
    started_at: int


class ProcessRow(NamedTuple):
    """One process."""

    node: NodeInfo
    state: str
    name: str
    runs: list[BusyRun]
    more: int
    memory: str
    says: str


class HostGroup(NamedTuple):
    """The processes of one sentinel, or of one host without one."""

    name: str
    sentinel: str
    rows: list[ProcessRow]
    slots: int
    busy: int
    queues: tuple[str, ...]
    code: tuple[str, ...]
    started_at: int
    works: bool
    orders: str
    """The name under which all of them follow orders; empty for several processes without a sentinel."""
    quiet: bool


def _processes(view: View, nodes: Sequence[NodeInfo], most: int) -> list[ProcessRow]:
    ids = [each.id for node in nodes for each in node.runs[:most]]
    found = {run.id: run for run in view.app.runs.views(ids[:1000])} if ids else {}
    usual = _usual(view) if found else {}
    return [_process(view, node, found, usual, most) for node in nodes]


def _usual(view: View) -> dict[str, float]:
    """Return the 95th percentile of the run time of each task."""

    def read() -> dict[str, float]:
        figures = view.app.task_figures() if view.keeps_history else []
        return {each.name: each.p95 for each in figures if each.p95 is not None}

    return view.cached("nodes.usual", USUAL_SECONDS, read)


def _process(view: View, node: NodeInfo, found: dict[str, RunView], usual: dict[str, float], most: int) -> ProcessRow:
    runs = [
        _busy(view, found[each.id], each.started_at, usual.get(found[each.id].task))
        for each in node.runs[:most]
        if each.id in found
    ]
    state = {"running": "up"}.get(node.state, node.state)
    return ProcessRow(
        node,
        state,
        f"{node.host}:{node.pid}",
        runs,
        max(0, node.busy - len(runs)),
        _memory(node.rss),
        _says(view, node),
    )


def _memory(size: int) -> str:
    if not size:
        return ""
    return f"{size / 2**30:.1f} GB" if size >= 1000 * 2**20 else f"{size / 2**20:.0f} MB"


def _busy(view: View, run: RunView, started_at: int, p95: float | None) -> BusyRun:
    so_far = max(0, view.now - started_at) / 1e6
    whole = run.policy.timeout or max(so_far, 1.5 * (p95 or 0.0)) or 1.0
    ticks = () if p95 is None or p95 > whole else (p95 / whole,)
    return BusyRun(
        run_row(view.app, run, view.now),
        so_far / whole,
        ticks,
        p95 is not None and so_far > p95 and so_far > 1,
        started_at,
    )


def _says(view: View, node: NodeInfo) -> str:
    said = []
    if node.missing:
        said.append(f"Does not know {listed(node.missing, 3)}.")
    if node.stuck:
        said.append(f"{several(node.stuck, 'thread is', 'threads are')} stuck in runs that did not stop.")
    if node.state == "draining":
        said.append("Takes no more runs and ends when these have ended.")
    if node.state == "paused":
        said.append("Takes no more runs until it is resumed.")
    return " ".join(said)


def _groups(rows: Sequence[ProcessRow]) -> list[HostGroup]:
    parts: dict[tuple[str, str], list[ProcessRow]] = {}
    for row in rows:
        parts.setdefault((row.node.host, row.node.cluster), []).append(row)
    groups = []
    for (host, cluster), mine in parts.items():
        nodes = [row.node for row in mine]
        groups.append(
            HostGroup(
                name=host,
                sentinel=cluster.rpartition(":")[2],
                rows=sorted(mine, key=lambda row: (row.state == "up", row.node.pid)),
                slots=sum(node.slots for node in nodes),
                busy=sum(node.busy for node in nodes),
                queues=tuple(sorted({queue for node in nodes for queue in node.queues})),
                code=tuple(sorted({node.code for node in nodes if node.code})),
                started_at=min(node.started_at for node in nodes),
                works=any(node.queues for node in nodes),
                orders=order_name(nodes[0]) if cluster or len(nodes) == 1 else "",
                quiet=all(node.state in ("paused", "draining") for node in nodes),
            )
        )
    return sorted(groups, key=lambda group: (not group.works, group.name, group.sentinel))


def read(view: View) -> dict[str, Any]:
    """Read the living nodes and their current runs."""
    nodes = sorted(view.nodes, key=lambda node: (node.host, node.pid))
    wanted = view.text("q", most=200).lower()
    shown = [node for node in nodes if wanted in f"{node.id} {' '.join(node.queues)}".lower()]
    few = len(shown) <= MOST_NODES_OPEN
    rows = _processes(view, shown, RUNS_PER_NODE if few else 0)
    return {"nodes": nodes, "groups": _groups(rows), "few": few, "wanted": wanted}


def state(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Report the silent nodes, else those with missing tasks or stuck threads; or say that all is well."""
    nodes: list[NodeInfo] = data["nodes"]
    odd = [node for node in nodes if node.state == "silent"] or [node for node in nodes if node.missing or node.stuck]
    codes = sorted({node.code for node in nodes if node.code})
    return {
        "sentence": _sentence(view, odd) if odd else "",
        "shape": ("silent" if odd[0].state == "silent" else "late") if odd else "up",
        "slots": sum(node.slots for node in nodes),
        "busy": sum(node.busy for node in nodes),
        "codes": codes,
    }


def lost(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the nodes whose runs others took over in the last day."""
    found = view.cached("lost nodes", 5.0, view.app.lost_nodes)
    return {"lost": found[:MOST_LOST], "more_lost": max(0, len(found) - MOST_LOST)}


def _sentence(view: View, odd: Sequence[NodeInfo]) -> str:
    """Explain the first unusual node, with its name in front; if several are silent, give only their number."""
    node = odd[0]
    if node.state == "silent" and len(odd) > 1:
        silent = sum(each.state == "silent" for each in odd)
        return f"{silent:,} processes are silent: their runs go to others when the leases end."
    said = view.explain(node).sentence
    name = f"{node.host}:{node.pid}"
    return f"{name} is {said[:1].lower()}{said[1:]}" if node.state == "silent" else f"{name}: {said}"


PAGE = Page(
    path="/nodes",
    nav="nodes",
    title="Nodes",
    template="fleet/nodes.html",
    read=read,
    regions={"state": state, "hosts": None, "lost": lost},
    actions=ACTIONS,
)


# -- one node --------------------------------------------------------------------------------------------------------


def read_one(view: View) -> dict[str, Any]:
    """Read one node."""
    name = view.params["id"]
    found = next((each for each in view.nodes if name in (each.id, f"{each.host}:{each.pid}")), None)
    node = there(found, "node", name)
    (row,) = _processes(view, [node], 64)
    told = view.explain(node)
    recent = [
        run_row(view.app, run, view.now)
        for run in view.app.search(text_of({"node": [node.id]}), limit=20, most=1000).runs
    ]
    return {"node": node, "row": row, "told": told, "recent": recent, "title": row.name, "orders": order_name(node)}


NODE_PAGE = Page(
    path="/nodes/{id:path}",
    nav="nodes",
    title="Node",
    template="fleet/node.html",
    read=read_one,
    regions={"orders": None, "state": None, "busy": None, "recent": None},
)
