"""Tasks: their share of the workers' time, their durations, their failure rates."""

from __future__ import annotations

import inspect
from typing import Any, Final, NamedTuple

from mainspring.core.insight.metrics import BUCKETS
from mainspring.core.insight.task_figures import TaskFigures
from mainspring.core.insight.wording import took
from mainspring.core.showing.redaction import parameters_text
from mainspring.dashboard.filtering import text_of
from mainspring.dashboard.history import RANGES
from mainspring.dashboard.looks.charts import Step
from mainspring.dashboard.looks.rows import run_row
from mainspring.dashboard.page import NoSuchThing, Page, View
from mainspring.dashboard.schedule import job_board

__all__ = ["PAGE", "TASK_PAGE"]

TASKS_SECONDS: Final = 5.0
MOST_TASKS: Final = 100


class TaskRow(NamedTuple):
    """One task in the table; `share` is its part of the time that all tasks took."""

    figures: TaskFigures
    module: str
    name: str
    share: float


def _figures(view: View) -> tuple[list[TaskFigures], str]:
    span = view.choice("since", RANGES, "24h")
    return view.cached(("tasks", span), TASKS_SECONDS, lambda: view.app.task_figures(RANGES[span].length)), span


def read(view: View) -> dict[str, Any]:
    """Read the figures of all tasks."""
    figures, span = _figures(view)
    wanted = view.text("q", most=200)
    whole = sum(each.total for each in figures) or 1.0
    rows = [
        TaskRow(each, *_parted(each.name), each.total / whole)
        for each in figures
        if wanted.lower() in each.name.lower()
    ]
    worst = max((each for each in figures if each.failed), key=lambda each: each.failed, default=None)
    first = figures[0] if figures and figures[0].total else None
    return {
        "rows": rows[:MOST_TASKS],
        "found": len(rows),
        "span": span,
        "wanted": wanted,
        "first": first,
        "first_share": first.total / whole if first else 0.0,
        "worst": worst,
    }


def _parted(name: str) -> tuple[str, str]:
    module, colon, rest = name.rpartition(":")
    return f"{module}{colon}", rest


PAGE = Page("/tasks", "runs", "Tasks", "work/tasks.html", read, regions={"table": None})


# -- one task --------------------------------------------------------------------------------------------------------


def read_one(view: View) -> dict[str, Any]:
    """Read one task: its options, its figures, its histogram and its newest runs."""
    name = view.params["name"]
    figures, span = _figures(view) if view.keeps_history else ([], "24h")
    found = next((each for each in figures if each.name == name), None)
    if found is None and view.app.tasks.get(name) is None:
        raise NoSuchThing("task", name)
    runs = view.app.search(text_of({"task": [name]}), limit=15, most=2000).runs
    schedules = [job.id for job in job_board(view).jobs.values() if job.call.task_name == name]
    return {
        "figures": found or TaskFigures(name=name),
        "options": _options(view, name),
        "runs": [run_row(view.app, run, view.now) for run in runs],
        "schedules": schedules[:20],
        "steps": _histogram(found),
        "span": span,
        "title": name.rpartition(":")[2],
        "name": name,
    }


def _options(view: View, name: str) -> list[tuple[str, str]]:
    task = view.app.tasks.get(name)
    if task is None:
        return []
    policy = task.defaults.policy
    pairs = [
        ("Queue", task.defaults.queue),
        ("Parameters", parameters_text(task.func)),
        ("Retries", str(policy.retries)),
        ("Time-out", "none" if policy.timeout is None else view.times.seconds(policy.timeout)),
        ("Kind", "coroutine" if task.is_async else "function"),
    ]
    about = (inspect.getdoc(task.func) or "").partition("\n")[0]
    return [*pairs, ("About", about)] if about else pairs


def _histogram(found: TaskFigures | None) -> list[Step]:
    if found is None or not any(found.histogram):
        return []
    steps = []
    first = next(number for number, count in enumerate(found.histogram) if count)
    last = max(number for number, count in enumerate(found.histogram) if count)
    for number in range(max(0, first - 1), min(len(BUCKETS), last + 1) + 1):
        count = found.histogram[number]
        end = took(BUCKETS[number]) if number < len(BUCKETS) else ""
        words = f"up to {end}" if end else f"over {took(BUCKETS[-1])}"
        steps.append(Step(count, 0, f"{words}\n{count:,} starts", end, number % 2 == 0))
    return steps


TASK_PAGE = Page(
    "/tasks/{name:path}", "runs", "Task", "work/task.html", read_one, regions={"figures": None, "runs": None}
)
