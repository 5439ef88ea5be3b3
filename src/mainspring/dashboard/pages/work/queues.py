"""Queues: the stuck ones with the reason, the waiting runs of each, and the nodes that serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.insight.explanation import Explanation
from mainspring.core.insight.metrics import Counts, MetricSeries
from mainspring.core.insight.wording import several
from mainspring.core.instants import SECOND
from mainspring.core.run import HELD_PREFIX
from mainspring.core.showing.searching import MOST_RUNS_SEARCHED
from mainspring.dashboard.looks.charts import Series
from mainspring.dashboard.looks.clock_labels import ClockLabel, clock_labels
from mainspring.dashboard.looks.rows import run_row
from mainspring.dashboard.looks.spreads import wait_chart
from mainspring.dashboard.looks.values import cut_middle
from mainspring.dashboard.page import Action, Deed, Page, Question, View
from mainspring.dashboard.pages.work.limits import ACTIONS as LIMIT_ACTIONS
from mainspring.dashboard.pages.work.limits import gate_rows, limit_of, oldest_searched, queue_of
from mainspring.dashboard.rates import RANGES, QueueRate, queue_rates, rate_text, waits_of
from mainspring.dashboard.roles import Role
from mainspring.jobstores.values import NodeInfo, QueueInfo

__all__ = ["PAGE", "QUEUE_PAGE", "QueueRow", "queue_rows"]

MOST_ROWS: Final = 50
"""The most queues on one page; visitors search for others."""
LINES_DRAWN: Final = 5
LEAST_WAIT_SECONDS: Final = 0.001
_ORDER: Final = ("unserved", "growing", "full", "waiting", "flowing", "paused")


class QueueRow(NamedTuple):
    """A table row of a queue."""

    info: QueueInfo
    state: str
    why: str
    slots: int
    tone: str
    rate: QueueRate = QueueRate()

    @property
    def limit(self) -> int | None:
        """The number of its runs that may run at once, on all nodes together."""
        return limit_of(self.info)

    @property
    def per_minute(self) -> tuple[str, str]:
        """The runs that come and leave per minute, as text."""
        came, left = self.rate.per_minute
        return rate_text(came), rate_text(left)

    @property
    def empty_in(self) -> str:
        """The time until the queue is empty, as text."""
        if self.info.waiting and self.state in ("unserved", "paused"):
            return "never"
        return self.rate.empty_in(self.info.waiting)


def queue_rows(view: View) -> list[QueueRow]:
    """Read the queues and the nodes that serve them, those in trouble first."""
    return view.once("queue rows", lambda: _read_rows(view))


def _read_rows(view: View) -> list[QueueRow]:
    nodes, rates = view.nodes, queue_rates(view)
    queues = [queue for queue in view.app.queues() if not queue.name.startswith(HELD_PREFIX)]
    rows = [_growing(_row(queue, nodes)._replace(rate=rates.get(queue.name, QueueRate()))) for queue in queues]
    return sorted(rows, key=lambda row: (_ORDER.index(row.state), -row.info.waiting, row.info.name))


def _row(queue: QueueInfo, nodes: list[NodeInfo]) -> QueueRow:
    serving = [node for node in nodes if queue.name in node.queues and node.state == "running"]
    slots = sum(node.slots for node in serving)
    holds = queue.waiting or queue.delayed
    if queue.paused:
        return QueueRow(queue, "paused", "Paused: its runs are not handed out until it is resumed.", slots, "")
    if not serving and holds:
        idle = sum(queue.name in node.queues for node in nodes)
        why = "all nodes with this queue are paused, stopping or silent" if idle else "no living node has this queue"
        return QueueRow(queue, "unserved", f"Nobody serves it: {why}.", 0, "bad")
    limit = limit_of(queue)
    if queue.waiting and limit is not None and queue.running >= limit:
        why = f"Its limit lets {several(limit, 'run')} go at once, and {queue.running:,} do."
        return QueueRow(queue, "full", why, min(slots, limit), "warn")
    if queue.waiting and slots and queue.running >= slots:
        return QueueRow(queue, "full", f"All {several(slots, 'slot')} for it are busy.", slots, "warn")
    if queue.waiting:
        return QueueRow(queue, "waiting", "", slots, "")
    return QueueRow(queue, "flowing", "" if serving else "Empty, and nobody serves it.", slots, "")


def _growing(row: QueueRow) -> QueueRow:
    if row.state not in ("full", "waiting") or not row.rate.is_growing:
        return row
    came, left = row.per_minute
    than = f"{several(row.slots, 'slot')} can do" if row.info.running >= row.slots else "leaves"
    why = f"More comes in than {than}: {came} a minute against {left}."
    return row._replace(state="growing", why=why, tone="warn")


def read(view: View) -> dict[str, Any]:
    """Read all queues once, for both regions."""
    wanted = view.text("q", most=200)
    rows = queue_rows(view)
    shown = [row for row in rows if wanted.lower() in row.info.name.lower()]
    return {
        "rows": shown[:MOST_ROWS],
        "number": len(rows),
        "found": len(shown),
        "wanted": wanted,
        "all_rows": rows,
        "span": view.choice("range", RANGES, "1h"),
        "spans": [(key, f"{key[:-1]} {key[-1]}") for key in RANGES],
        "table": view.choice("table", ("", "waits"), ""),
    }


def _told(view: View, row: QueueRow) -> Explanation:
    """Explain a queue by the state in its table row, which also knows the rates."""
    told = view.explain(row.info, queues=[row.info, *(each.info for each in queue_rows(view))])
    head, _, rest = told.sentence.partition(": ")
    if row.state in ("growing", "full") and head == "Waiting":
        why = f"{row.why[:1].lower()}{row.why[1:]}"
        told = replace(told, sentence=f"{row.state.capitalize()}: {why} {rest[:1].upper()}{rest[1:]}")
    return told


def state(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Explain the queue with the worst state, or say that all are fine."""
    wrong = [row for row in data["all_rows"] if row.state in ("unserved", "growing", "full")]
    others = Counter(row.state for row in wrong[1:])
    also = [f"{number:,} more {'is' if number == 1 else 'are'} {word}" for word, number in others.items()]
    return {"wrong": wrong, "told": _told(view, wrong[0]) if wrong else None, "also": also}


def waits(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Draw the p95 of the waits by queue, on a logarithmic scale."""
    found = waits_of(view, data["span"])
    busy = sorted(
        (name for name in found.lines if name),
        key=lambda name: -(found.total(name).waited.percentile(0.95) or 0),
    )
    names = [name for name in busy if found.total(name).waited.number][:LINES_DRAWN]
    lines = [
        Series(cut_middle(name, 14), [_p95(each) for each in found.line(name)], f"l{number + 1}")
        for number, name in enumerate(names)
    ]
    label = f"How long runs waited, p95 by queue: {', '.join(names) or 'nothing started'}"
    return {
        "chart": wait_chart(lines, _wait_labels(view, found), label) if lines else "",
        "cells": _wait_cells(view, found, names) if data["table"] else [],
    }


def _p95(counts: Counts) -> float | None:
    found = counts.waited.percentile(0.95)
    return None if found is None else max(found / SECOND, LEAST_WAIT_SECONDS)


def _wait_labels(view: View, found: MetricSeries) -> list[tuple[float, ClockLabel]]:
    labels = clock_labels(view.times, found.since, found.step, found.number)
    return [(number / max(1, found.number - 1), label) for number, label in enumerate(labels) if label.text]


def _wait_cells(view: View, found: MetricSeries, names: Sequence[str]) -> list[tuple[str, ...]]:
    rows = [
        (
            view.times.text(found.since + number * found.step),
            *(view.times.span(found.line(name)[number].waited.percentile(0.95)) for name in names),
        )
        for number in reversed(range(found.number))
    ]
    return [("From", *names), *rows]


# -- actions -------------------------------------------------------------------------------------------------------


def ask_pause(view: View) -> Question:
    """Ask before pausing a queue."""
    queue = queue_of(view)
    stays = several(queue.waiting, "run waits in it and stays there", "runs wait in it and stay there")
    text = f"{stays if queue.waiting else 'Nothing waits in it'}.{_going_on(queue)}"
    return Question(f"Pause the queue “{queue.name}”?", text, "Pause it")


def _going_on(queue: QueueInfo) -> str:
    running = several(queue.running, "run that runs now goes on", "runs that run now go on")
    return f" {running}." if queue.running else ""


def pause(view: View, form: Mapping[str, str]) -> Deed:
    """Pause a queue."""
    name = queue_of(view).name
    view.app.pause_queue(name)
    return Deed(f"Queue {name} is paused", undo=view.act("queue.resume", name=name).url)


def ask_resume(view: View) -> Question:
    """Ask before resuming a queue."""
    queue = queue_of(view)
    text = several(queue.waiting, "run waits in it and is handed out again", "runs wait in it and are handed out again")
    text = f"{text if queue.waiting else 'Nothing waits in it'}."
    return Question(f"Resume the queue “{queue.name}”?", text, "Resume it")


def resume(view: View, form: Mapping[str, str]) -> Deed:
    """Resume a queue."""
    name = queue_of(view).name
    view.app.resume_queue(name)
    return Deed(f"Queue {name} is handed out again", undo=view.act("queue.pause", name=name).url)


def ask_purge(view: View) -> Question:
    """Ask before cancelling the waiting runs of a queue."""
    queue = queue_of(view)
    number = queue.waiting + queue.delayed
    title = f"Purge the queue “{queue.name}”?"
    if not number:
        return Question(title, f"There is nothing to purge: no run waits in it.{_going_on(queue)}", "")
    text = (
        f"{several(number, 'waiting run is', 'waiting runs are')} cancelled, each as if you had cancelled it; their "
        f"hooks are called.{_going_on(queue)} This cannot be undone."
    )
    return Question(title, text, f"Purge {several(number, 'run')}", queue.name, bad=True)


def purge(view: View, form: Mapping[str, str]) -> Deed:
    """Cancel the waiting runs of a queue."""
    name = queue_of(view).name
    number = view.app.purge(name)
    link = view.url("/runs", queue=name, status="cancelled")
    return Deed(f"{several(number, 'run')} of {name} cancelled", link=link)


PAGE = Page(
    path="/queues",
    nav="queues",
    title="Queues",
    template="work/queues.html",
    read=read,
    regions={"state": state, "table": None, "waits": waits},
    actions=(
        Action("queue.pause", "/queues/{name:path}/pause", pause, ask_pause, weight="undo"),
        Action("queue.resume", "/queues/{name:path}/resume", resume, ask_resume, weight="undo"),
        Action("queue.purge", "/queues/{name:path}/purge", purge, ask_purge, Role.OPERATE, weight="type"),
        *LIMIT_ACTIONS,
    ),
)


# -- one queue -------------------------------------------------------------------------------------------------------

ENDED: Final = ("succeeded", "failed", "cancelled", "missed")
ENDED_SHOWN: Final = 10
RUNS_COUNTED: Final = 500
"""The number of waiting runs to count by task."""


def read_one(view: View) -> dict[str, Any]:
    """Read one queue: the explanation of its state, its nodes, its waiting runs."""
    name = view.params["name"]
    row = next((each for each in queue_rows(view) if each.info.name == name), None) or _row(queue_of(view), view.nodes)
    serving = [node for node in view.nodes if name in node.queues]
    return {"row": row, "told": _told(view, row), "serving": serving, "title": name}


def waiting(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Count waiting runs by task, and show the next to start and the last that ended."""
    name = data["row"].info.name
    pending = view.app.find(queue=name, status="pending", limit=RUNS_COUNTED)
    due = sorted(pending, key=lambda run: (-run.priority, run.record.run_at))
    gates, unread = gate_rows(view, name)
    oldest = oldest_searched(view)
    ended = view.app.find(queue=name, status=ENDED, since=oldest, limit=ENDED_SHOWN)
    return {
        "tasks": Counter(run.task for run in pending).most_common(8),
        "more": pending.more,
        "gates": gates,
        "gates_unread": unread,
        "next_runs": [run_row(view.app, run, view.now) for run in due[:10]],
        "ended": [run_row(view.app, run, view.now) for run in ended],
        "looked_through": MOST_RUNS_SEARCHED if oldest is not None and len(ended) < ENDED_SHOWN else 0,
    }


QUEUE_PAGE = Page(
    "/queues/{name:path}", "queues", "Queue", "work/queue.html", read_one, regions={"state": None, "waiting": waiting}
)
