"""Queues: which do not flow and why, what waits in each, who serves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mainspring.core.insight.wording import several
from mainspring.core.validation import check_queue
from mainspring.dashboard.looks.rows import run_row
from mainspring.dashboard.page import Action, Deed, NoSuchThing, Page, Question, View
from mainspring.dashboard.roles import Role
from mainspring.jobstores.values import NodeInfo, QueueInfo

__all__ = ["PAGE", "QUEUE_PAGE", "QueueRow", "queue_rows"]

MOST_ROWS: Final = 50
"""Queues on one page; beyond that one searches."""
_ORDER: Final = ("unserved", "full", "waiting", "flowing", "paused")


class QueueRow(NamedTuple):
    """A queue as the table shows it."""

    info: QueueInfo
    state: str
    why: str
    slots: int
    tone: str


def queue_rows(view: View) -> list[QueueRow]:
    """Read the queues and who serves them, those in trouble first."""
    nodes = view.app.nodes()
    rows = [_row(queue, nodes) for queue in view.app.queues()]
    return sorted(rows, key=lambda row: (_ORDER.index(row.state), -row.info.waiting, row.info.name))


def _row(queue: QueueInfo, nodes: list[NodeInfo]) -> QueueRow:
    serving = [node for node in nodes if queue.name in node.queues and node.state == "running"]
    slots = sum(node.slots for node in serving)
    holds = queue.waiting or queue.delayed
    if queue.paused:
        return QueueRow(queue, "paused", "Paused: its runs are not handed out until it is resumed.", slots, "")
    if not serving and holds:
        return QueueRow(queue, "unserved", "Nobody serves it: no living node was started with this queue.", 0, "bad")
    if queue.waiting and slots and queue.running >= slots:
        return QueueRow(queue, "full", f"All {several(slots, 'slot')} for it are busy.", slots, "warn")
    if queue.waiting:
        return QueueRow(queue, "waiting", "", slots, "")
    return QueueRow(queue, "flowing", "" if serving else "Empty, and nobody serves it.", slots, "")


def read(view: View) -> dict[str, Any]:
    """Read all queues once, for both regions."""
    wanted = view.text("q", most=200)
    rows = queue_rows(view)
    shown = [row for row in rows if wanted.lower() in row.info.name.lower()]
    return {"rows": shown[:MOST_ROWS], "number": len(rows), "found": len(shown), "wanted": wanted, "all_rows": rows}


def state(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Explain the queue that is worst off, or say that all flow."""
    wrong = [row for row in data["all_rows"] if row.state in ("unserved", "full")]
    return {"wrong": wrong, "told": view.app.explain(f"queue:{wrong[0].info.name}") if wrong else None}


# -- actions -------------------------------------------------------------------------------------------------------


def _queue(view: View) -> QueueInfo:
    name = check_queue(view.params["name"])
    found = next((queue for queue in view.app.queues() if queue.name == name), None)
    if found is None:
        raise NoSuchThing("queue", name)
    return found


def ask_pause(view: View) -> Question:
    """Ask before a queue is paused."""
    queue = _queue(view)
    text = f"{several(queue.waiting, 'run')} wait in it and stay there. {several(queue.running, 'run')} of it go on."
    return Question(f"Pause the queue “{queue.name}”?", text, "Pause it")


def pause(view: View, form: Mapping[str, str]) -> Deed:
    """Pause a queue."""
    name = _queue(view).name
    view.app.pause_queue(name)
    return Deed(f"Queue {name} is paused", undo=view.act("queue.resume", name=name).url)


def ask_resume(view: View) -> Question:
    """Ask before a queue is resumed."""
    queue = _queue(view)
    text = f"{several(queue.waiting, 'run')} wait in it and are handed out again."
    return Question(f"Resume the queue “{queue.name}”?", text, "Resume it")


def resume(view: View, form: Mapping[str, str]) -> Deed:
    """Resume a queue."""
    name = _queue(view).name
    view.app.resume_queue(name)
    return Deed(f"Queue {name} is handed out again", undo=view.act("queue.pause", name=name).url)


def ask_purge(view: View) -> Question:
    """Ask before the waiting runs of a queue are cancelled."""
    queue = _queue(view)
    number = queue.waiting + queue.delayed
    text = (
        f"{several(number, 'waiting run is', 'waiting runs are')} cancelled, each as if you had cancelled it; their "
        f"hooks are called. {several(queue.running, 'run that runs now goes', 'runs that run now go')} on. "
        "This cannot be undone."
    )
    return Question(f"Purge the queue “{queue.name}”?", text, f"Purge {several(number, 'run')}", queue.name, bad=True)


def purge(view: View, form: Mapping[str, str]) -> Deed:
    """Cancel the waiting runs of a queue."""
    name = _queue(view).name
    number = view.app.purge(name)
    link = view.url("/runs", queue=name, status="cancelled")
    return Deed(f"{several(number, 'run')} of {name} cancelled", link=link)


PAGE = Page(
    path="/queues",
    nav="queues",
    title="Queues",
    template="queues.html",
    read=read,
    regions={"state": state, "table": None},
    actions=(
        Action("queue.pause", "/queues/{name:path}/pause", pause, ask_pause, weight="undo"),
        Action("queue.resume", "/queues/{name:path}/resume", resume, ask_resume, weight="undo"),
        Action("queue.purge", "/queues/{name:path}/purge", purge, ask_purge, Role.OPERATE, weight="type"),
    ),
)


# -- one queue -------------------------------------------------------------------------------------------------------

RUNS_COUNTED: Final = 500
"""Waiting runs that are counted by task."""


def read_one(view: View) -> dict[str, Any]:
    """Read one queue: why it stands as it does, who serves it, what waits in it."""
    name = view.params["name"]
    row = next((each for each in queue_rows(view) if each.info.name == name), None)
    if row is None:
        raise NoSuchThing("queue", name)
    serving = [node for node in view.app.nodes() if name in node.queues]
    return {"row": row, "told": view.app.explain(f"queue:{name}"), "serving": serving, "title": name}


def waiting(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Count what waits by task, and show what starts next and what ended last."""
    name = data["row"].info.name
    pending = view.app.find(queue=name, status="pending", limit=RUNS_COUNTED)
    due = sorted(pending, key=lambda run: (-run.priority, run.record.run_at))
    ended = view.app.find(queue=name, status=("succeeded", "failed", "cancelled", "missed"), limit=10)
    return {
        "tasks": Counter(run.task for run in pending).most_common(8),
        "more": pending.more,
        "next_runs": [run_row(view.app, run, view.now) for run in due[:10]],
        "ended": [run_row(view.app, run, view.now) for run in ended],
    }


QUEUE_PAGE = Page(
    path="/queues/{name:path}",
    nav="queues",
    title="Queue",
    template="queue.html",
    read=read_one,
    regions={"state": None, "waiting": waiting},
)
