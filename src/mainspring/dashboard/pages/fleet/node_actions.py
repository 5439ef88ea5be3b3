"""The orders that people can give to a node: quiet, resume, stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainspring.app.fleet import named, order_name
from mainspring.core.insight.wording import several
from mainspring.dashboard.page import Action, Deed, NoSuchThing, Question, View
from mainspring.dashboard.roles import Role
from mainspring.jobstores.values import NodeInfo

__all__ = ["ACTIONS"]


def shown_name(node: NodeInfo) -> str:
    """Return the name of the processes that follow orders together, for people to read and type: `host:pid`."""
    return node.cluster or f"{node.host}:{node.pid}"


def _meant(view: View) -> list[NodeInfo]:
    found = named(view.nodes, view.params["id"])
    if not found:
        raise NoSuchThing("node", view.params["id"])
    return found


def _who(nodes: list[NodeInfo]) -> str:
    """Return the nodes as the subject of a sentence."""
    if not nodes[0].cluster:
        return f"The process {nodes[0].pid} on {nodes[0].host}"
    return f"The sentinel {shown_name(nodes[0])} with its {several(len(nodes), 'process', 'processes')}"


def _goes_on(nodes: list[NodeInfo]) -> str:
    busy = sum(node.busy for node in nodes)
    return f"{several(busy, 'run that runs there goes', 'runs that run there go')} on"


def _heard(view: View) -> str:
    return f"It hears of it within {view.app.lease / 3:.0f} s."


def _ordered(view: View, node: NodeInfo, does: str, undo: str) -> Deed:
    back = view.act(undo, id=order_name(node)).url
    return Deed(f"{shown_name(node)} {does} as soon as it hears of it", undo=back)


def ask_quiet(view: View) -> Question:
    """Ask before making a node quiet."""
    nodes = _meant(view)
    text = f"{_who(nodes)} fires nothing and takes no more runs until it is resumed. {_goes_on(nodes)}."
    return Question(f"Make {shown_name(nodes[0])} quiet?", text, "Make it quiet", note=_heard(view))


def quiet(view: View, form: Mapping[str, str]) -> Deed:
    """Order a node to take no more runs."""
    node = _meant(view)[0]
    view.app.quiet_node(node.id)
    return _ordered(view, node, "takes no more runs", "node.resume")


def ask_resume(view: View) -> Question:
    """Ask before resuming a quiet node."""
    nodes = _meant(view)
    text = f"{_who(nodes)} fires and takes runs again."
    return Question(f"Resume {shown_name(nodes[0])}?", text, "Resume it", note=_heard(view))


def resume(view: View, form: Mapping[str, str]) -> Deed:
    """Order a quiet node to resume."""
    node = _meant(view)[0]
    view.app.resume_node(node.id)
    return _ordered(view, node, "goes on", "node.quiet")


def ask_stop(view: View) -> Question:
    """Ask before stopping a node; the visitor must type its name."""
    nodes = _meant(view)
    text = (
        f"{_who(nodes)} takes no more runs, gives back what has not started, and ends. {_goes_on(nodes)} as long as "
        "the grace allows. Nobody can start it again from here."
    )
    name = shown_name(nodes[0])
    return Question(f"Stop {name}?", text, "Stop it", name, note=_heard(view), bad=True)


def stop(view: View, form: Mapping[str, str]) -> Deed:
    """Order a node to finish its running runs, and end."""
    nodes = _meant(view)
    view.app.stop_node(nodes[0].id)
    return Deed(f"{shown_name(nodes[0])} ends as soon as it hears of it and its runs have ended", go="/nodes")


ACTIONS: Final = (
    Action("node.quiet", "/nodes/{id:path}/quiet", quiet, ask_quiet, weight="undo"),
    Action("node.resume", "/nodes/{id:path}/resume", resume, ask_resume, weight="undo"),
    Action("node.stop", "/nodes/{id:path}/stop", stop, ask_stop, Role.ADMIN, weight="type"),
)
