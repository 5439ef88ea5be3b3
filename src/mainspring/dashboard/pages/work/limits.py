"""Limits of queues and keys: the allowed, running and parked runs, and the forms to set the limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from mainspring.core.insight.wording import several, took
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import MOST_RUNS_SEARCHED
from mainspring.core.validation import check_queue
from mainspring.core.waiting.gates import Limit
from mainspring.dashboard.page import Action, BadParameter, Deed, NoSuchThing, Question, View
from mainspring.dashboard.rates import queue_rates
from mainspring.jobstores.values import QueueInfo

__all__ = ["ACTIONS", "GateRow", "gate_rows", "gate_words", "limit_of", "oldest_searched", "queue_of"]

RUNS_READ: Final = 1000
"""The blocked and running runs of a queue to read in search of limited keys."""
GATES_SHOWN: Final = 12


class GateRow(NamedTuple):
    """A key with a limit: the limit that its runs declare, its running runs, its parked runs."""

    key: str
    says: str
    running: int
    parked: int


def limit_of(queue: QueueInfo) -> int | None:
    """Return the limit of a queue, which a paused queue keeps."""
    return None if not queue.limit else abs(queue.limit)


def gate_words(gate: str) -> str:
    """Return a gate's name for people: the key of a limit."""
    return gate.partition(":")[2] or gate


def gate_rows(view: View, queue: str) -> tuple[list[GateRow], bool]:
    """Return the keys that limit runs of a queue, the fullest first, and whether some runs were not read."""
    found = view.app.find(queue=queue, status=("blocked", "running"), limit=RUNS_READ)
    blocked = [run for run in found if run.status == "blocked"]
    running = [run for run in found if run.status == "running"]
    parked = Counter(run.record.gate for run in blocked if run.record.gate and not run.waits)
    busy = Counter(run.record.gate for run in running if run.record.gate)
    said = {run.record.gate: _limit_words(run) for run in (*running, *blocked) if run.record.gate}
    names = sorted(said, key=lambda gate: (-parked[gate], -busy[gate], str(gate)))[:GATES_SHOWN]
    rows = [GateRow(gate_words(str(name)), said[name], busy[name], parked[name]) for name in names]
    return rows, found.more


def _limit_words(run: RunView) -> str:
    try:
        limit = Limit.from_text(run.record.gate_spec or "")
    except ValueError:  # a record was altered
        return ""
    parts = [] if limit.at_once is None else [f"{limit.at_once:,} at once"]
    if limit.every_us:
        parts.append(f"one every {took(limit.every_us)}")
    return ", ".join(parts)


# -- setting them ----------------------------------------------------------------------------------------------------


def _number(form: Mapping[str, str], least: int) -> int | None:
    text = form.get("limit", "").strip()
    if not text:
        return None
    if not re.fullmatch(r"\d{1,7}", text) or int(text) < least:
        raise BadParameter(f"{text[:20]!r} is no whole number from {least}; leave it empty for no limit")
    return int(text)


def queue_of(view: View) -> QueueInfo:
    """Return the queue that the address names, even if it is empty now; raise NoSuchThing if it is unknown."""
    name = view.params["name"]
    found = next((queue for queue in view.app.queues() if queue.name == name), None)
    if found is None and not _is_known(view, name):
        raise NoSuchThing("queue", name)
    return found or QueueInfo(name=name)


def _is_known(view: View, name: str) -> bool:
    """Return True if a node serves the queue, recent counters have it, or one of the newest runs was in it."""
    try:
        check_queue(name)
    except (TypeError, ValueError):
        return False
    if name in queue_rates(view) or any(name in node.queues for node in view.nodes):
        return True
    return bool(view.app.find(queue=name, since=oldest_searched(view), limit=1))


def oldest_searched(view: View) -> datetime | None:
    """Return the creation time of the oldest run that a page reads to find the runs of one queue."""
    return view.cached("made behind", 5.0, lambda: view.app.runs.made_behind(None, MOST_RUNS_SEARCHED))


def _fields(now: int | None, words: str) -> dict[str, Any]:
    return {"now": "" if now is None else str(now), "words": words}


def ask_queue(view: View) -> Question:
    """Ask for the number of runs of a queue that may run at once."""
    queue = queue_of(view)
    goes = several(queue.running, "run of it goes", "runs of it go")
    text = f"{goes} on now. A lower limit stops none of them; it holds on all nodes together."
    fields = _fields(limit_of(queue), "Runs at once")
    return Question(
        f"Limit the queue “{queue.name}”?", text, "Set the limit", template="fields/limit.html", fields=fields
    )


def set_queue(view: View, form: Mapping[str, str]) -> Deed:
    """Limit a queue."""
    queue, number = queue_of(view), _number(form, 1)
    view.app.limit_queue(queue.name, number)
    said = "has no limit now" if number is None else f"runs at most {number:,} at once"
    return Deed(f"Queue {queue.name} {said}")


def ask_key(view: View) -> Question:
    """Ask for the number of runs of a key that may run at once."""
    key = view.params["key"]
    text = "It holds for the whole key, whatever its task says. 0 lets none start; empty means what the task says."
    fields = _fields(None, "Runs at once")
    return Question(f"Limit “{key}”?", text, "Set the limit", template="fields/limit.html", fields=fields)


def set_key(view: View, form: Mapping[str, str]) -> Deed:
    """Limit a key."""
    key, number = view.params["key"], _number(form, 0)
    view.app.set_limit(key, number)
    return Deed(f"{key} is limited as its task says" if number is None else f"{key} runs at most {number:,} at once")


ACTIONS: Final = (
    Action("queue.limit", "/queues/{name:path}/limit", set_queue, ask_queue),
    Action("limit.set", "/limits/{key:path}/set", set_key, ask_key),
)
