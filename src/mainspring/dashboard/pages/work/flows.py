"""Flows: the steps each waits for, its expected end, its graph, and the same as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mainspring.core.insight.flows import FlowGraph, FlowStep
from mainspring.core.insight.wording import several, took
from mainspring.core.instants import SECOND
from mainspring.core.run import FINAL, HELD_PREFIX, Status
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.looks.graph import MOST_NODES, GraphNode, draw
from mainspring.dashboard.looks.rows import CANCELLABLE, RETRYABLE, RunLine, run_row
from mainspring.dashboard.looks.values import arguments_text, cut_middle, percent
from mainspring.dashboard.page import NoSuchThing, Page, View
from mainspring.errors import RunNotFound

__all__ = ["FLOW_PAGE", "PAGE"]

MOST_FLOWS: Final = 100
MOST_STEPS_SHOWN: Final = 200
FOLD_FROM: Final = 12
"""The number of equal steps above which they are drawn as one."""
MOST_IDS: Final = 200
USUAL_SECONDS: Final = 10.0


class StepRow(NamedTuple):
    """A step in the table: its run, if it exists, its predecessors, and whether it is on the critical path."""

    id: str
    kind: str
    title: str
    arguments: str
    line: RunLine | None
    after: str
    usual: float | None
    hot: bool


def read(view: View) -> dict[str, Any]:
    """Read the flows among the newest runs."""
    found, complete = view.cached("flows", 2.0, view.app.flow_graphs)
    wanted = view.text("q", most=200)
    rows = [each for each in found if wanted.lower() in f"{each.key} {each.title}".lower()]
    return {
        "rows": rows[:MOST_FLOWS],
        "found": len(rows),
        "wanted": wanted,
        "complete": complete,
        "going": sum(each.goes_on for each in found),
        "failed": [each for each in found if each.failed],
    }


PAGE = Page("/flows", "flows", "Flows", "work/flows.html", read, regions={"table": None})


# -- one flow ----------------------------------------------------------------------------------------------------------


def read_one(view: View) -> dict[str, Any]:
    """Read one flow, and find the steps that decide when it ends."""
    try:
        flow = view.app.flow_graph(view.params["id"])
    except RunNotFound:
        raise NoSuchThing("flow", view.params["id"]) from None
    usual = view.cached("flows.usual", USUAL_SECONDS, lambda: _usual(view))
    ends, hot = _critical(flow, usual, view.now)
    rows = [_row(view, step, flow, usual, step.id in hot) for step in flow.steps]
    runs = flow.runs
    nodes = _folded([_node(view, row, step) for row, step in zip(rows, flow.steps, strict=True)])
    return {
        "title": flow.title,
        "flow": flow,
        "rows": rows[:MOST_STEPS_SHOWN],
        "number": len(rows),
        "state": flow.state,
        "sentence": _sentence(flow, rows, ends, view),
        "facts": _facts(flow, rows),
        "begun": min(run.created_at for run in runs),
        "retry": [run.id for run in runs if run.status in RETRYABLE][:MOST_IDS],
        "cancel": [run.id for run in runs if run.status in CANCELLABLE][:MOST_IDS],
        "chart": draw(nodes, _label(rows)),
        "left_out": max(0, len(nodes) - MOST_NODES),
    }


def _usual(view: View) -> dict[str, float]:
    if not view.keeps_history:
        return {}
    return {each.name: each.p50 for each in view.app.task_figures() if each.p50 is not None}


def _critical(flow: FlowGraph, usual: Mapping[str, float], now: int) -> tuple[int | None, set[str]]:
    """Return the flow's expected end, None if it has ended or a duration is unknown, and its longest way."""
    ends: dict[str, int] = {}
    steps_to: dict[str, int] = {}
    known = True
    for step in flow.steps:
        steps_to[step.id] = 1 + max((steps_to[each] for each in step.after if each in steps_to), default=0)
        begin = max((ends[each] for each in step.after if each in ends), default=step.run.run_at if step.run else now)
        length = usual.get(step.call.task_name)
        if step.run is not None and step.run.finished_at is not None:
            ends[step.id] = step.run.finished_at
            continue
        known = known and (length is not None or step.hook)
        start = max(begin, step.run.run_at) if step.run is not None and step.run.started_at is None else begin
        if step.run is not None and step.run.status is Status.RUNNING:
            start = step.run.started_at or now
        ends[step.id] = max(now, start + int((length or 0.0) * SECOND))
    hot: set[str] = set()
    by_id = {step.id: step for step in flow.steps}

    def last(names: Iterable[str]) -> str | None:  # if no duration is known, the way with the most steps
        return max(names, key=lambda each: (ends[each], steps_to[each]), default=None)

    at = last(ends)
    while at is not None:
        hot.add(at)
        at = last(each for each in by_id[at].after if each in ends and each not in hot)
    return (max(ends.values()) if known and ends and flow.goes_on else None), hot


def _row(view: View, step: FlowStep, flow: FlowGraph, usual: Mapping[str, float], hot: bool) -> StepRow:
    names = {each.id: each.call.name or each.call.task_name.rpartition(":")[2] for each in flow.steps}
    before = Counter(names[each] for each in step.after if each in names)
    after = ", ".join(f"{number} \u00d7 {name}" if number > 1 else name for name, number in before.most_common(3))
    line = None if step.run is None else run_row(view.app, RunView(step.run, view.app.timezone), view.now)
    kind = "waiting" if line is None else line.kind
    arguments = arguments_text(step.call.args, step.call.kwargs, None) if line is None else line.arguments
    return StepRow(step.id, kind, names[step.id], arguments, line, after, usual.get(step.call.task_name), hot)


def _node(view: View, row: StepRow, step: FlowStep) -> GraphNode:
    return GraphNode(
        row.id,
        row.kind,
        cut_middle(row.title, 20),
        cut_middle(row.arguments, 20),
        _word(view, row, step),
        "" if row.line is None else view.of("run", row.id),
        step.after,
        None if row.line is None or row.line.progress is None else row.line.progress.share,
        row.hot,
    )


def _word(view: View, row: StepRow, step: FlowStep) -> str:
    usual = f"usually {took(int(row.usual * SECOND))}" if row.usual else ""
    if row.line is None:
        return "hook: however it ends" if step.hook else usual
    if row.kind in ("delayed", "retrying"):
        return f"in {took(max(0, row.line.run.record.run_at - view.now))}"
    if row.kind == "running" and row.line.progress is not None and row.line.progress.share is not None:
        return percent(row.line.progress.share)
    return usual if row.line.took is None else took(int(row.line.took * SECOND))


def _folded(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Draw many equal steps, with the same predecessors and successors, as one."""
    following: dict[str, list[str]] = {}
    for node in nodes:
        for each in node.after:
            following.setdefault(each, []).append(node.id)
    groups: dict[tuple[Any, ...], list[GraphNode]] = {}
    for node in nodes:
        groups.setdefault((node.title, node.after, tuple(following.get(node.id, ()))), []).append(node)
    names = {node.id: same[0].id for same in groups.values() if len(same) > FOLD_FROM for node in same}
    found: list[GraphNode] = []
    for same in groups.values():
        if len(same) <= FOLD_FROM:
            found += same
            continue
        kinds = Counter(node.kind for node in same)
        worst = next(kind for kind in ("failed", "retrying", "running", *kinds) if kind in kinds)
        said = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(2))
        whole = same[0]._replace(
            title=f"{same[0].title} \u00d7 {len(same)}", arguments="", word=said, kind=worst, url=""
        )
        found.append(whole._replace(share=None, hot=any(node.hot for node in same)))
    order = {node.id: number for number, node in enumerate(nodes)}
    found.sort(key=lambda node: order[node.id])
    return [node._replace(after=tuple(dict.fromkeys(names.get(each, each) for each in node.after))) for node in found]


def _sentence(flow: FlowGraph, rows: Sequence[StepRow], ends: int | None, view: View) -> str:
    if flow.failed:
        name = flow.failed[0].name or flow.failed[0].call.task_name
        rest = sum(run.refused is not None for run in flow.runs)
        also = f" {several(rest, 'step')} after it will not run unless it is retried." if rest else ""
        return f"Failed: {several(len(flow.failed), 'step')}, {name} first.{also}"
    if not flow.goes_on:
        if flow.done == len(flow.steps):
            return f"Done: all {several(flow.done, 'step')} succeeded."
        return f"Over: {flow.done:,} of {several(len(flow.steps), 'step')} succeeded, nothing of it goes on."
    left = [row for row in rows if row.line is not None and row.line.run.status not in FINAL]
    order = ("retrying", "running", "delayed", "waiting", "blocked")
    waits = min(left, key=lambda row: order.index(row.kind))
    how = {"retrying": "is tried again", "running": "runs", "delayed": "is set for later"}.get(waits.kind, "waits")
    if waits.line is not None and waits.line.run.queue.startswith(HELD_PREFIX):
        how = "waits for its signal"
    end = f" If all goes well, it ends about {view.times.text(ends)}." if ends is not None else ""
    return f"Waits for {len(left):,} of {several(len(rows), 'step')}: {waits.title} {how}.{end}"


def _facts(flow: FlowGraph, rows: Sequence[StepRow]) -> list[str]:
    counts = Counter(row.kind if row.line is not None else "not made yet" for row in rows)
    return [f"{number:,} {kind}" for kind, number in counts.most_common()]


def _label(rows: Sequence[StepRow]) -> str:
    counts = Counter(row.kind for row in rows)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.most_common())
    return f"{several(len(rows), 'step')}: {said}; the table below says the same"


FLOW_PAGE = Page(
    "/flows/{id:path}", "flows", "Flow", "work/flow.html", read_one, regions={"top": None, "graph": None, "steps": None}
)
