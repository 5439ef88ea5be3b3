"""Jobs: those in trouble first, each with its next fire, its last runs and its actions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mainspring.core.insight.health import JobHealth
from mainspring.core.job import Job
from mainspring.core.schedules.declaration import SCHEDULE, Difference
from mainspring.dashboard.page import Page, View
from mainspring.dashboard.pages.schedules.actions import ACTIONS
from mainspring.dashboard.schedule import (
    STRIP_RUNS,
    Strip,
    differences_of,
    expression_of,
    job_board,
    strip_of,
    words_of,
)

__all__ = ["PAGE"]

PAGE_ROWS: Final = 40
"""The jobs on one page: a row has some forty elements, and a page should have at most 2,500."""
_HEALTHS: Final = ("broken", "down", "late", "up", "paused", "new")
_ORDERS: Final = {"health": "Health", "next": "Next", "name": "Name"}


class ScheduleRow(NamedTuple):
    """A table row of a job."""

    job: Job
    health: JobHealth
    words: str
    expression: str
    zone: str
    strip: Strip
    drift: str
    gone: bool


def drift_of(found: list[Difference]) -> tuple[str, bool]:
    """Describe in two or three words how a job differs from the code; also return whether the code lacks it."""
    if any(each.field == SCHEDULE and each.code is None for each in found):
        return "gone from the code", True
    fields = sorted({each.field for each in found})
    if fields == ["trigger"]:
        return "schedule by hand", False
    return (f"{len(fields)} {'field' if len(fields) == 1 else 'fields'} by hand" if fields else ""), False


def read(view: View) -> dict[str, Any]:
    """Choose and order the jobs."""
    board, drifts = job_board(view), differences_of(view)
    wanted, health = view.text("q", most=300), view.choice("health", ("", *_HEALTHS), "")
    order, drift = view.choice("order", _ORDERS, "health"), view.choice("drift", ("", "yes"), "")
    known = [job for job in board.jobs.values() if _matches(job, board.healths[job.id], wanted, drifts)]
    counts = {state: sum(str(board.healths[job.id].state) == state for job in known) for state in _HEALTHS}
    broken = _broken(view, wanted)
    counts["broken"] = len(broken)
    drifting = sum(bool(drifts.get(job.id)) for job in known)
    chosen = [job for job in known if not health or str(board.healths[job.id].state) == health]
    chosen = [job for job in chosen if not drift or drifts.get(job.id)]
    chosen.sort(key=lambda job: _place(job, board.healths[job.id], order))
    after = view.text("after", most=300)
    start = next((number + 1 for number, job in enumerate(chosen) if job.id == after), 0)
    page = chosen[start : start + PAGE_ROWS]
    return {
        "board": board,
        "wanted": wanted,
        "health": health,
        "order": order,
        "orders": list(_ORDERS.items()),
        "drift": drift,
        "drifting": drifting,
        "differing": sum(map(bool, drifts.values())),
        "counts": counts,
        "known": len(known) + len(broken),
        "found": len(chosen),
        "start": start,
        "jobs": page,
        "broken": list(broken.items())[:PAGE_ROWS] if health in ("", "broken") and not drift and not start else [],
        "next": page[-1].id if start + len(page) < len(chosen) else "",
        "drifts": drifts,
    }


def _broken(view: View, wanted: str) -> dict[str, str]:
    """Return the broken jobs that match a filter; only their ids can be read."""
    words = [word for word in wanted.lower().split() if word != "health:broken"]
    return {job_id: why for job_id, why in view.summary.broken_jobs.items() if all(w in job_id.lower() for w in words)}


def _matches(job: Job, health: JobHealth, wanted: str, drifts: dict[str, list[Difference]]) -> bool:
    """Return True if the job fits each word: a `health:`, `drift:`, `zone:` or `queue:` term, or a part of a name."""
    for word in wanted.lower().split():
        key, colon, value = word.partition(":")
        if colon and key == "health":
            fits = str(health.state) == value
        elif colon and key == "drift":
            fits = bool(drifts.get(job.id)) is (value == "yes")
        elif colon and key == "zone":
            fits = value in str(job.trigger.timezone).lower()
        elif colon and key == "queue":
            fits = job.queue.lower() == value
        else:
            fits = any(word in text.lower() for text in (job.id, job.call.task_name, job.queue, job.name))
        if not fits:
            return False
    return True


def _place(job: Job, health: JobHealth, order: str) -> tuple[Any, ...]:
    soon = (job.at is None, job.at or 0, job.id)
    if order == "name":
        return (job.id.lower(), job.id)
    return soon if order == "next" else (_RANK[str(health.state)], *soon)


_RANK: Final = {"down": 0, "late": 1, "up": 2, "new": 3, "paused": 4}


def table(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Read the last runs of the jobs on this page."""
    board = data["board"]
    recent = view.app.recent([job.id for job in data["jobs"]], STRIP_RUNS)
    rows = []
    for job in data["jobs"]:
        drift, gone = drift_of(data["drifts"].get(job.id, []))
        rows.append(
            ScheduleRow(
                job,
                board.healths[job.id],
                words_of(job.trigger),
                expression_of(job.trigger),
                str(job.trigger.timezone or view.app.timezone),
                strip_of(recent.get(job.id, [])),
                drift,
                gone,
            )
        )
    return {"rows": rows, "unreadable": data["board"].unreadable}


PAGE = Page("/jobs", "jobs", "Jobs", "schedules/jobs.html", read, regions={"table": table}, actions=ACTIONS)
