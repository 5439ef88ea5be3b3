"""Overview: problems that need a person, seven numbers, the past, the coming load, the slowest queues, the errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from mainspring.core.insight.explanation import Explanation
from mainspring.core.insight.wording import several
from mainspring.core.instants import SECOND, to_us
from mainspring.core.run import Run
from mainspring.core.schedules.upcoming import LoadStep
from mainspring.dashboard.history import (
    HOUR,
    RANGES,
    HistoryRange,
    RunHistory,
    deploys_within,
    read_history,
    usual_range,
)
from mainspring.dashboard.looks.charts import Deploy, Heat, Step, heat, up_and_down
from mainspring.dashboard.looks.clock_labels import clock_labels
from mainspring.dashboard.page import Page, View
from mainspring.dashboard.pages.work.errors import failure_bars
from mainspring.dashboard.pages.work.queues import QueueRow, queue_rows
from mainspring.dashboard.schedule import clock_band, job_board, load_ahead
from mainspring.dashboard.summary import HEALS_ITSELF

__all__ = ["PAGE"]

ROWS_SHOWN: Final = 5
FIRES_SHOWN: Final = 7
QUEUES_SHOWN: Final = 6
GROUPS_SHOWN: Final = 4
MOST_RETRYING: Final = 1000
MOST_PENDING: Final = 100
"""Search for the next due run only among this many: no store lists runs by their time."""
HOURS_AHEAD: Final = 24
STEP_AHEAD: Final = 15 * 60 * SECOND
_WORDS: Final = ("Nothing", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


class TodoRow(NamedTuple):
    """One problem that needs a person: its subject, the reason, its beginning, and the run that decides it."""

    part: Explanation
    why: str
    since: int | None
    run_id: str


def read(view: View) -> dict[str, Any]:
    """Read the requested range; each region reads the rest."""
    name = view.choice("range", RANGES, "24h") if "range" in view.query else usual_range(view)
    table = view.choice("table", ("", "throughput", "ahead"), "")
    return {"table": table, "range_name": name, "range": RANGES[name]}


# -- what needs a person -------------------------------------------------------------------------------------------


def todo(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the problems that need a person, the most pressing first."""
    told, needs = view.summary.explanation, view.summary.needs
    ordered = sorted(told.parts, key=lambda part: part.state in HEALS_ITSELF)  # problems that heal themselves come last
    rows = [_todo_row(view, part) for part in ordered[:ROWS_SHOWN]]
    healing = sum(max(1, len(part.ids)) for part in told.parts if part.state in HEALS_ITSELF)
    return {
        "told": told,
        "needs": needs,
        "head": f"{_number(needs)} {'thing needs' if needs == 1 else 'things need'} you.",
        "rest": _rest(view, told, healing),
        "rows": rows,
        "more": len(told.parts) - len(rows),
        "more_of": list(dict.fromkeys((part.kind, f"/{part.kind}s") for part in told.parts[ROWS_SHOWN:])),
    }


def _number(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else f"{number:,}"


def _rest(view: View, told: Explanation, healing: int) -> str:
    """Describe the rest: the problems that heal themselves, and the number of healthy jobs."""
    jobs = view.summary.counts.get("jobs", 0)
    wrong = sum(max(1, len(part.ids)) for part in told.parts if part.kind == "job")
    late = f"{_number(healing)} jobs are late and may catch up by themselves; "
    if healing == 1:
        late = "One job is late and may catch up by itself; "
    fine = f"all {jobs:,} jobs are on time." if jobs > 1 else "the job is on time."
    if wrong:
        fine = f"the other {several(jobs - wrong, 'job is as it', 'jobs are as they')} should be."
    if not jobs or jobs <= wrong:
        return late.rstrip("; ") + "." if healing else ""
    text = (late if healing else "") + fine
    return text[0].upper() + text[1:]


def _todo_row(view: View, part: Explanation) -> TodoRow:
    head = part.state.capitalize()
    why = part.sentence.removeprefix(f"{head}: ").removeprefix(f"{head}. ")
    why = why.partition(". It fires next")[0].partition(". Its next fire")[0].rstrip(".")
    why = why[:1].lower() + why[1:] if why[1:2].islower() else why
    health = job_board(view).healths.get(part.id) if part.kind == "job" else None
    run_id = next((fact.id for fact in part.facts if fact.kind == "run" and fact.id), None)
    return TodoRow(part, why, None if health is None else health.since, run_id or "")


# -- numbers -------------------------------------------------------------------------------------------------------


def counters(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Read the seven numbers."""
    rows, nodes = queue_rows(view), view.nodes
    oldest = min((row.info.oldest_at for row in rows if row.info.oldest_at is not None), default=None)
    busiest = max(rows, key=lambda row: row.info.running, default=None)
    silent = [node for node in nodes if node.state == "silent"]
    later = _later(view, rows)
    return {
        "waiting": sum(row.info.waiting for row in rows),
        "delayed": sum(row.info.delayed for row in rows),
        "next_due": min((run.run_at for run in later), default=None),
        "next_retry": min((run.run_at for run in later if run.failures), default=None),
        "blocked": sum(row.info.blocked for row in rows),
        "running": sum(row.info.running for row in rows),
        "slots": sum(node.slots for node in nodes if node.state != "silent"),
        "oldest": oldest,
        "is_old": oldest is not None and view.now - oldest > 60 * SECOND,
        "busiest": busiest if busiest is not None and busiest.info.running else None,
        "retrying": view.cached("retrying", 3.0, lambda: view.app.count_up_to("status:retrying", MOST_RETRYING)),
        "history": read_history(view, data["range"]) if view.keeps_history else None,
        "alive": len(nodes) - len(silent),
        "silent": silent,
    }


def _later(view: View, rows: Sequence[QueueRow]) -> list[Run]:
    """Return the delayed runs of these queues; none if too many are pending to read them all."""
    if not 0 < sum(row.info.delayed for row in rows) <= MOST_PENDING - sum(row.info.waiting for row in rows):
        return []
    found = view.cached("pending", 3.0, lambda: view.app.find(status="pending", limit=MOST_PENDING))
    names = {row.info.name for row in rows}
    return [] if found.more else [run.record for run in found if run.record.run_at > view.now and run.queue in names]


# -- charts --------------------------------------------------------------------------------------------------------


def throughput(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Draw the ends of runs in the range, with deploys."""
    chosen: HistoryRange = data["range"]
    history = read_history(view, chosen)
    rows = [(view.times.text(step.at), f"{step.succeeded:,}", f"{step.failed:,}") for step in reversed(history.steps)]
    table = [("From", "Succeeded", "Failed"), *rows] if data["table"] == "throughput" else []
    return {"history": history, "chart": throughput_chart(view, history, chosen), "cells": table}


def throughput_chart(view: View, history: RunHistory, chosen: HistoryRange) -> Markup:
    """Draw a history: successes rise, failures hang."""
    times, steps = view.times, []
    labels = clock_labels(times, history.steps[0].at, history.step, len(history.steps))
    for each, label in zip(history.steps, labels, strict=True):
        moment, end = times.local(each.at), times.local(each.at + history.step)
        day = "%a " if chosen.length > HOUR else ""
        tip = f"{moment.strftime(day + '%H:%M')} to {end:%H:%M}\n{each.succeeded:,} succeeded\n{each.failed:,} failed"
        steps.append(Step(each.succeeded, each.failed, tip, *label))
    words = f"Runs that ended in the last {chosen.words}: {history.succeeded:,} succeeded, {history.failed:,} failed"
    return up_and_down(steps, words, deploys=_deploys(view, history))


def _deploys(view: View, history: RunHistory) -> list[Deploy]:
    start = history.steps[0].at
    marks = view.cached("marks", 5.0, lambda: view.app.marks(timedelta(days=31)))
    found = deploys_within(marks, start, start + history.step * len(history.steps))
    return [each for each in found if 0 <= each.at <= 1][-8:]


def ahead(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Draw the slots that the next day's fires keep busy."""
    start = view.now // STEP_AHEAD * STEP_AHEAD
    end = start + HOURS_AHEAD * 3600 * SECOND
    steps = load_ahead(view, start, end, STEP_AHEAD)
    band = clock_band(view, start, end)
    slots = sum(node.slots for node in view.nodes if node.state != "silent")
    peak = max(steps, key=lambda step: step.busy, default=None)
    words = ""
    if peak is not None and peak.busy > 0:
        of = f" of {slots:,}" if slots else ""
        words = f"peak {_slots(peak.busy)}{of} slots, {peak.at.astimezone(view.times.zone):%H:%M}"
    shown = Counter(f"{step.at.astimezone(view.times.zone):%d %H:%M}" for step in steps)
    cells = [_cell(view, step, number, shown) for number, step in enumerate(steps)]
    label = f"Slots expected to be busy in the next 24 hours; {words or 'nothing is expected'}"
    fires = sum(step.fires for step in steps)
    rows = [(view.times.text(to_us(step.at)), f"{step.fires:,}", _slots(step.busy)) for step in steps]
    table = [("From", "Fires", "Slots busy"), *rows] if data["table"] == "ahead" else []
    return {"chart": heat(cells, label, band=band, peak=words), "fires": fires, "cells": table}


def _slots(busy: float) -> str:
    return f"{busy:.0f}" if busy >= 10 else f"{busy:.1f}" if busy >= 0.1 else f"{busy:.2g}"


def _cell(view: View, step: LoadStep, number: int, shown: Mapping[str, int]) -> Heat:
    moment = step.at.astimezone(view.times.zone)
    tip = f"{moment:%a %H:%M %Z}\nabout {_slots(step.busy)} slots busy\n{several(step.fires, 'fire')}"
    # A step with due fires of unknown length must still show that something happens.
    value = step.busy or (0.001 if step.fires else 0.0)
    label = ""
    if moment.minute == 0 and moment.hour % 3 == 0 and number:
        label = f"{moment:%H:%M}" if moment.hour else f"{moment:%a}"
    twice = shown[f"{moment:%d %H:%M}"] > 1  # the clock goes back: this time occurs twice
    if twice and moment.minute == 0:
        label = f"{moment:%H}"
    return Heat(value, tip, label, strong=twice or moment.hour % 6 == 0, warn=twice)


# -- lists ---------------------------------------------------------------------------------------------------------


def fires(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the jobs that fire next."""
    board = job_board(view)
    coming = sorted((job.at, job.id) for job in board.jobs.values() if job.at is not None)
    shown = [(job_id, at, str(board.healths[job_id].state)) for at, job_id in coming[:FIRES_SHOWN]]
    return {"fires": shown, "number": len(board.jobs)}


def queues(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the queues with the longest waits."""
    rows = queue_rows(view)
    longest = sorted(rows, key=lambda row: (row.info.oldest_at is None, row.info.oldest_at or 0, -row.info.running))
    return {"rows": longest[:QUEUES_SHOWN], "number": len(rows)}


def errors(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the groups of errors of the last hour."""
    page = view.cached("errors 1h", 5.0, lambda: view.app.errors(HOUR))
    groups = sorted(page.groups, key=lambda group: -group.count)
    begin = view.now - 3600 * SECOND
    return {
        "groups": [(group, failure_bars(group, begin, view.now)) for group in groups[:GROUPS_SHOWN]],
        "number": len(page.groups),
    }


PAGE = Page(
    path="/",
    nav="overview",
    title="Overview",
    template="overview.html",
    read=read,
    regions={
        "todo": todo,
        "counters": counters,
        "throughput": throughput,
        "fires": fires,
        "ahead": ahead,
        "queues": queues,
        "errors": errors,
    },
)
