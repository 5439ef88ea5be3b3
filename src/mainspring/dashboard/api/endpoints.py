"""The table of endpoints, from which the routes, the OpenAPI document and the API page are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from mainspring.dashboard.api import acting, looking
from mainspring.dashboard.api.request import ApiRequest
from mainspring.dashboard.roles import Role

__all__ = ["ENDPOINTS", "ROOT", "Endpoint", "Parameter"]

ROOT: Final = "/api/v1"


class Parameter(NamedTuple):
    """A parameter of the query string."""

    name: str
    words: str
    kind: str = "string"


class Endpoint(NamedTuple):
    """One endpoint: its parameters, and the shape of its answer."""

    method: str
    path: str
    words: str
    do: Callable[[ApiRequest], dict[str, Any]] | None
    answer: str
    body: str = ""
    query: tuple[Parameter, ...] = ()
    role: Role = Role.VIEW
    media: str = "application/json"


_LIMIT: Final = Parameter("limit", "How many to return at most.", "integer")
_AFTER: Final = Parameter("after", "Where to go on: `next` of the page before.")
_SINCE: Final = Parameter("since", "How far back to look: 15m, 1h, 7d.")
_HOURS: Final = Parameter("hours", "How far ahead.", "integer")
_SUBJECT: Final = Parameter("subject", "A run, a job, a queue or a node; `queue:mail` names one kind.")
_FILTER: Final = Parameter(
    "filter", "A filter such as `status:failed queue:mail since:1h`; each key may also be a parameter."
)
Answerer = Callable[[ApiRequest], dict[str, Any]]


def _get(
    path: str, words: str, do: Answerer | None, answer: str, *query: Parameter, media: str = "application/json"
) -> Endpoint:
    return Endpoint("GET", path, words, do, answer, query=query, media=media)


def _change(
    method: str, path: str, words: str, do: Answerer, answer: str, body: str = "Why", role: Role = Role.OPERATE
) -> Endpoint:
    return Endpoint(method, path, words, do, answer, body, role=role)


_post, _delete = partial(_change, "POST"), partial(_change, "DELETE")

ENDPOINTS: Final = (
    _get("/runs", "Find runs, newest first.", looking.runs, "Runs", _FILTER, _LIMIT, _AFTER),
    _get("/runs/count", "Count runs, up to 10,000.", looking.count, "Count", _FILTER),
    _get("/runs.csv", "Export up to 100,000 runs.", None, "", _FILTER, media="text/csv"),
    _get("/runs.json", "Export up to 100,000 runs, one a line.", None, "", _FILTER, media="application/x-ndjson"),
    _post("/runs", "Enqueue a call of a task.", acting.enqueue, "Run", "NewRun"),
    _get("/runs/{id}", "All there is to know of a run.", looking.run, "WholeRun"),
    _get("/runs/{id}/story", "What happened to a run.", looking.story, "Story"),
    _post("/runs/{id}/retry", "Send a run back.", acting.retry, "Run", "RetryBody"),
    _post("/runs/{id}/cancel", "Cancel or stop a run.", acting.cancel, "Run"),
    _post("/runs/{id}/again", "Enqueue the call of a run once more.", acting.again, "Run", "AgainBody"),
    _post("/runs/{id}/change", "Move, postpone or prioritize a run.", acting.change_run, "Run", "ChangeBody"),
    _delete("/runs/{id}", "Delete a run that has ended.", acting.delete_run, "Deleted"),
    _post("/bulk", "Act on all runs that match a filter.", acting.begin_bulk, "Bulk", "BulkBody"),
    _get("/bulk/{id}", "How far an action on many runs has come.", looking.bulk, "Bulk"),
    _delete("/bulk/{id}", "Stop an action on many runs.", acting.stop_bulk, "Bulk"),
    _get("/jobs", "All jobs with their health.", looking.jobs, "Jobs"),
    _get("/jobs/{id}", "A job, its next fires, its last runs.", looking.job, "WholeJob"),
    _get("/jobs/{id}/badge.svg", "The health of a job as a picture.", None, "", media="image/svg+xml"),
    _post("/jobs/{id}/run", "Run a job at once.", acting.run_job, "Run"),
    _post("/jobs/{id}/pause", "Pause a job.", acting.pause_job, "Job"),
    _post("/jobs/{id}/resume", "Resume a job.", acting.resume_job, "Job"),
    _post("/jobs/{id}/skip", "Leave out the next fire of a job.", acting.skip_job, "Job"),
    _delete("/jobs/{id}", "Remove a job.", acting.remove_job, "Deleted", "RemoveBody"),
    _get("/fires", "The coming fires of all jobs.", looking.fires, "Fires", _LIMIT, _HOURS),
    _get("/queues", "The queues.", looking.queues, "Queues"),
    _get("/queues/{name}", "A queue, and why it stands as it does.", looking.queue, "WholeQueue"),
    _post("/queues/{name}/pause", "Pause a queue.", acting.pause_queue, "QueueState"),
    _post("/queues/{name}/resume", "Resume a queue.", acting.resume_queue, "QueueState"),
    _post("/queues/{name}/purge", "Cancel all waiting runs of a queue.", acting.purge_queue, "Purged", "PurgeBody"),
    _get("/nodes", "The living nodes.", looking.nodes, "Nodes"),
    _get("/nodes/{id}", "A node, and why it stands as it does.", looking.node, "WholeNode"),
    _post("/nodes/{id}/quiet", "Let a node take no more runs.", acting.quiet_node, "Ordered"),
    _post("/nodes/{id}/resume", "Let a quiet node go on.", acting.resume_node, "Ordered"),
    _post("/nodes/{id}/stop", "Let a node finish what it runs, and end.", acting.stop_node, "Ordered", role=Role.ADMIN),
    _get("/tasks", "What each task costs.", looking.tasks, "Tasks", _SINCE),
    _get(
        "/metrics",
        "What was counted in each step of a time; counters outlive runs.",
        looking.metrics,
        "Metrics",
        _SINCE,
        Parameter("step", "How long a step is: 1m, 1h, 1d."),
        Parameter("by", "One line for each queue, task or job."),
        Parameter("queue", "Only this queue."),
        Parameter("task", "Only this task."),
        Parameter("job", "Only this job."),
    ),
    _get("/errors", "Errors by exception and place.", looking.errors, "Errors", _SINCE),
    _get("/errors/{key}", "One group of errors and its runs.", looking.error, "WholeError", _SINCE),
    _get("/stats", "The numbers of the whole system.", looking.stats, "Stats"),
    _get("/explain", "Why something has or has not run.", looking.explain, "Explanation", _SUBJECT),
    _get("/audit", "What people did.", looking.audit, "Audit", _SINCE, _LIMIT),
    _get("/marks", "The marks that charts show.", looking.marks, "Marks", _SINCE),
    _post("/marks", "Mark this moment.", acting.mark, "MarkText", "MarkText"),
)
"""Every endpoint, below the root of the API."""
