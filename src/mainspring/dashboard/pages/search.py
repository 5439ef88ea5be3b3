"""Search: the places that a name leads to. Every page's palette shows them; without scripts it is a page."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, NamedTuple

from mainspring.dashboard.page import Page, View
from mainspring.dashboard.schedule import job_board
from mainspring.errors import RunNotFound

__all__ = ["PAGE"]

MOST_OF_A_KIND: Final = 5
_PLACES: Final = (
    ("Overview", "/", "overview"),
    ("Jobs", "/jobs", "jobs"),
    ("Timeline", "/timeline", "timeline"),
    ("Runs", "/runs", "runs"),
    ("Failed runs", "/runs?status=failed", "runs"),
    ("Flows", "/flows", "flows"),
    ("Queues", "/queues", "queues"),
    ("Errors", "/errors", "errors"),
    ("Tasks", "/tasks", "code"),
    ("Nodes", "/nodes", "nodes"),
    ("Broken", "/broken", "errors"),
    ("System", "/system", "system"),
    ("Audit", "/system/audit", "system"),
)


class SearchHit(NamedTuple):
    """One place that a search leads to."""

    text: str
    url: str
    icon: str
    note: str = ""


def read(view: View) -> dict[str, Any]:
    """Search pages, jobs, tasks and queues, and find the run with exactly this id."""
    wanted = view.text("q", most=300)
    low = wanted.lower()
    groups: list[tuple[str, list[SearchHit]]] = []
    if wanted:
        groups += [("Runs", _run(view, wanted)), ("Jobs", _jobs(view, low)), ("Tasks", _tasks(view, low))]
        groups.append(("Queues", _queues(view, low)))
    places = [SearchHit(text, view.url(path), icon) for text, path, icon in _PLACES if low in text.lower()]
    groups.append(("Pages", places))
    if wanted:
        text = f"Runs that mention “{wanted}”"
        groups.append(("Search", [SearchHit(text, view.url("/runs", text=wanted), "search")]))
    return {"wanted": wanted, "groups": [(head, hits) for head, hits in groups if hits]}


def _run(view: View, wanted: str) -> list[SearchHit]:
    try:
        run = view.app.get(wanted)
    except (RunNotFound, ValueError):
        return []
    return [SearchHit(run.id, view.of("run", run.id), "runs", str(run.status))]


def _jobs(view: View, low: str) -> list[SearchHit]:
    found = (job for job in job_board(view).jobs.values() if low in job.id.lower() or low in job.name.lower())
    return [
        SearchHit(job.id, view.of("job", job.id), "jobs", job.trigger.describe())
        for job in islice(found, MOST_OF_A_KIND)
    ]


def _tasks(view: View, low: str) -> list[SearchHit]:
    found = (task.name for task in view.tasks if low in task.name.lower())
    return [SearchHit(name, view.url("/runs", task=name), "code", "its runs") for name in islice(found, MOST_OF_A_KIND)]


def _queues(view: View, low: str) -> list[SearchHit]:
    found = (queue for queue in view.app.queues() if low in queue.name.lower())
    return [
        SearchHit(queue.name, view.of("queue", queue.name), "queues", f"{queue.waiting:,} waiting")
        for queue in islice(found, MOST_OF_A_KIND)
    ]


PAGE = Page("/search", "", "Search", "search.html", read)
