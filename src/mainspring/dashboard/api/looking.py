"""The endpoints that only read: they change nothing in the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from mainspring.core.insight.explanation import Explanation
from mainspring.core.job import Job
from mainspring.core.quantities import read_seconds
from mainspring.dashboard.api.plain import (
    act_data,
    error_data,
    job_data,
    mark_data,
    metrics_data,
    node_data,
    plain,
    queue_data,
    run_data,
    task_data,
)
from mainspring.dashboard.api.request import ApiRequest
from mainspring.dashboard.filtering import cursor_of, run_at_cursor
from mainspring.dashboard.page import BadParameter, there
from mainspring.jobstores.base import NodeInfo

__all__ = ["audit", "bulk", "count", "error", "errors", "explain", "fires", "job", "jobs", "marks", "node", "nodes"]
__all__ += ["metrics", "queue", "queues", "run", "runs", "stats", "story", "tasks"]

DAY: Final = timedelta(days=1)
RUNS_SEARCHED: Final = 3000


def runs(asked: ApiRequest) -> dict[str, Any]:
    """Return a page of runs."""
    limit = asked.number("limit", 50, 1, 500)
    after = run_at_cursor(asked.text("after"))
    page = asked.app.search(asked.filter, limit=limit, after=after, most=RUNS_SEARCHED)
    return {
        "runs": [run_data(asked.app, each, asked.now) for each in page.runs],
        "next": None if page.next is None else cursor_of(page.next),
        "looked_through": page.looked_through,
        "complete": page.complete,
    }


def count(asked: ApiRequest) -> dict[str, Any]:
    """Count the runs that match, up to 10,000."""
    found = asked.app.count_up_to(asked.filter)
    return {"number": found.number, "exact": found.exact}


def run(asked: ApiRequest) -> dict[str, Any]:
    """Return a run with all its details."""
    return run_data(asked.app, asked.app.get(asked.params["id"]), asked.now, whole=True)


def story(asked: ApiRequest) -> dict[str, Any]:
    """Return the events of a run, in order."""
    found = asked.app.story(asked.params["id"])
    return {"episodes": [{**plain(each), "seconds": each.seconds} for each in found]}


def jobs(asked: ApiRequest) -> dict[str, Any]:
    """Return all jobs with their health, by next run time."""
    found = _jobs(asked)
    healths = asked.app.healths(found)
    return {"jobs": [job_data(asked.app, each, healths[each.id]) for each in found]}


def _jobs(asked: ApiRequest) -> list[Job]:
    """Read the jobs; do not set unreadable ones aside, since a read must change nothing."""
    found = asked.app.store.examine_jobs()[0]
    return sorted(found, key=lambda each: (each.at is None, each.at or 0, each.id))


def job(asked: ApiRequest) -> dict[str, Any]:
    """Return a job, its next fires and its last runs."""
    name = asked.params["id"]
    found = there(next((each for each in _jobs(asked) if each.id == name), None), "job", name)
    ahead = [] if found.at is None else asked.app.preview(found, 10)
    last = asked.app.find(job=found.id, limit=20)
    return {
        **job_data(asked.app, found, asked.app.health(found)),
        "fires": [each.isoformat() for each in ahead],
        "runs": [run_data(asked.app, each, asked.now) for each in last],
    }


def fires(asked: ApiRequest) -> dict[str, Any]:
    """Return the coming fires of all jobs."""
    limit = asked.number("limit", 100, 1, 1000)
    hours = asked.number("hours", 24, 1, 24 * 60)
    found = asked.app.fires(until=timedelta(hours=hours), limit=limit)
    return {
        "fires": [
            {"job_id": each.job_id, "at": each.at.isoformat(), "note": each.note and each.note.text} for each in found
        ]
    }


def queues(asked: ApiRequest) -> dict[str, Any]:
    """Return the queues."""
    nodes = asked.app.nodes()
    return {"queues": [queue_data(each, asked.now, nodes) for each in asked.app.queues()]}


def queue(asked: ApiRequest) -> dict[str, Any]:
    """Return a queue, and the explanation of its state."""
    name = asked.params["name"]
    found = there(next((each for each in asked.app.queues() if each.name == name), None), "queue", name)
    return {**queue_data(found, asked.now, asked.app.nodes()), "explanation": asked.app.explain(found).to_dict()}


def nodes(asked: ApiRequest) -> dict[str, Any]:
    """Return the living nodes."""
    return {"nodes": [node_data(each, asked.now) for each in _nodes(asked)]}


def node(asked: ApiRequest) -> dict[str, Any]:
    """Return a node, and the explanation of its state."""
    name = asked.params["id"]
    found = there(next((each for each in _nodes(asked) if each.id == name), None), "node", name)
    return {**node_data(found, asked.now), "explanation": asked.app.explain(found).to_dict()}


def _nodes(asked: ApiRequest) -> list[NodeInfo]:
    return sorted(asked.app.nodes(), key=lambda each: (each.host, each.pid))


def tasks(asked: ApiRequest) -> dict[str, Any]:
    """Return the cost of each task."""
    return {"tasks": [task_data(each) for each in asked.app.task_figures(asked.since(DAY))]}


def metrics(asked: ApiRequest) -> dict[str, Any]:
    """Return the counters for each step of a time range."""
    named: dict[str, Any] = {kind: asked.text(kind) or None for kind in ("by", "queue", "task", "job")}
    seconds = read_seconds(asked.text("step")) if asked.text("step") else None
    if asked.text("step") and (seconds is None or not 1 <= seconds <= 366 * 86_400):
        raise BadParameter(f"step={asked.text('step')[:20]!r} is not a length of time; write 1m, 1h or 1d")
    try:
        found = asked.app.metrics(
            asked.since(DAY), step=None if seconds is None else timedelta(seconds=seconds), **named
        )
    except (TypeError, ValueError) as error:
        raise BadParameter(str(error)) from None
    return metrics_data(found)


def errors(asked: ApiRequest) -> dict[str, Any]:
    """Return the groups of errors, newest first."""
    page = asked.app.errors(asked.since(DAY))
    return {"errors": [error_data(each) for each in page.groups], "complete": page.complete}


def error(asked: ApiRequest) -> dict[str, Any]:
    """Return one group of errors with its runs."""
    key = asked.params["key"]
    group, failed = there(asked.app.error(key, asked.since(DAY)), "error", key)
    return {"error": error_data(group), "runs": [run_data(asked.app, each, asked.now) for each in failed[:100]]}


def stats(asked: ApiRequest) -> dict[str, Any]:
    """Return the numbers of the whole system."""
    app = asked.app
    found = app.queues()
    nodes = app.nodes()
    return {
        "waiting": sum(each.waiting for each in found),
        "delayed": sum(each.delayed for each in found),
        "blocked": sum(each.blocked for each in found),
        "running": sum(each.running for each in found),
        "counters": app.counters(),
        "queues": len(found),
        "nodes": len(nodes),
        "slots": sum(each.slots for each in nodes),
        "busy": sum(each.busy for each in nodes),
    }


def explain(asked: ApiRequest) -> dict[str, Any]:
    """Explain a run, a job, a queue or a node; without a subject, list the problems that need a person."""
    told: Explanation = asked.app.explain(asked.text("subject") or None)
    return told.to_dict()


def audit(asked: ApiRequest) -> dict[str, Any]:
    """Return people's acts, newest first."""
    entries = asked.app.audit(since=asked.since(timedelta(days=90)), limit=asked.number("limit", 100, 1, 1000))
    return {"acts": [act_data(each) for each in entries]}


def marks(asked: ApiRequest) -> dict[str, Any]:
    """Return the marks for charts."""
    return {"marks": [mark_data(each) for each in asked.app.marks(asked.since(timedelta(days=30)))]}


def bulk(asked: ApiRequest) -> dict[str, Any]:
    """Return the progress of a bulk action."""
    name = asked.params["id"]
    return dict(plain(there(asked.app.bulk(name), "bulk", name).to_dict()))
