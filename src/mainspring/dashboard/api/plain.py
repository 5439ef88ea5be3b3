"""Runs, jobs, queues and nodes as plain data for JSON, with secrets hidden."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.core.insight.health import JobHealth
from mainspring.core.insight.metrics import EVENTS, Counts, MetricSeries
from mainspring.core.insight.run_texts import arguments_text, kind_of, says, took_of, waited_of
from mainspring.core.insight.task_figures import TaskFigures
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.showing.failures import ErrorGroup
from mainspring.core.showing.redaction import masked
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import function_of
from mainspring.jobstores.base import NodeInfo, QueueInfo

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.insight.acting import AuditEntry, TimeMark

__all__ = ["act_data", "error_data", "job_data", "mark_data", "metrics_data", "node_data", "plain", "queue_data"]
__all__ += ["run_data", "task_data"]

MOST_DEPTH: Final = 20
_BRIEF: Final = (
    "id task name status queue job_id group priority attempt failures reason "
    "created_at run_at started_at finished_at node copied_from"
)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can represent; replace other types by their repr."""
    if depth > MOST_DEPTH:
        return "…"
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(name): plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth + 1) for each in value]
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value), depth + 1)
    try:
        return repr(value)
    except Exception as error:  # a user's class may do anything
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def _fields(of: object, names: str) -> dict[str, Any]:
    return {name: plain(getattr(of, name)) for name in names.split()}


def run_data(app: Mainspring, run: RunView, now: int, *, whole: bool = False) -> dict[str, Any]:
    """Return a run: brief for lists, or with its errors, log, arguments and result."""
    func = function_of(app.runs, run)
    data = _fields(run, _BRIEF) | {
        "kind": kind_of(run, now),
        "arguments": arguments_text(run, func),
        "took_seconds": took_of(run, now),
        "waited_seconds": waited_of(run, now),
        "says": says(run),
        "progress": plain(masked((), {"progress": run.progress})[1]["progress"]),
    }
    if whole:
        args, kwargs = masked(run.args, run.kwargs, func)
        shown = masked((), {"result": run.result, "data": run.data})[1]
        record = run.to_dict()
        data |= {"args": plain(args), "kwargs": plain(kwargs), **plain(shown)}
        data |= {name: plain(record[name]) for name in ("errors", "starts", "log", "fire_time", "start_by")}
    return data


def job_data(app: Mainspring, job: Job, health: JobHealth) -> dict[str, Any]:
    """Return a job."""
    task = app.tasks.get(job.call.task_name)
    args, kwargs = masked(job.args, job.kwargs, None if task is None else task.func)
    return {
        "id": job.id,
        "name": job.name,
        "task": job.call.task_name,
        "args": plain(args),
        "kwargs": plain(kwargs),
        "trigger": str(job.trigger),
        "when": job.trigger.describe(),
        "next_run_time": None if job.at is None else from_us(job.at).astimezone(app.timezone).isoformat(),
        "paused": job.at is None,
        "health": str(health.state),
        "health_reason": health.why,
        "queue": job.queue if job.executor == "queue" else None,
        "max_instances": job.max_instances,
        "overlap": job.overlap,
        "coalesce": job.coalesce,
        "misfire_grace_time": plain(job.misfire_grace_time),
        "declared": job.declared is not None,
    }


def queue_data(queue: QueueInfo, now: int, nodes: list[NodeInfo]) -> dict[str, Any]:
    """Return a queue, with its number of slots."""
    serving = [node for node in nodes if queue.name in node.queues and node.state == "running"]
    return _fields(queue, "name waiting delayed blocked running paused") | {
        "oldest_seconds": None if queue.oldest_at is None else max(0, now - queue.oldest_at) / 1e6,
        "slots": sum(node.slots for node in serving),
        "served": bool(serving),
    }


def node_data(node: NodeInfo, now: int) -> dict[str, Any]:
    """Return a node."""
    return _fields(node, "id host pid state queues version code cluster slots busy done rss missing stuck") | {
        "runs": [run.id for run in node.runs],
        "uptime_seconds": max(0, now - node.started_at) / 1e6,
        "heard_seconds_ago": max(0, now - node.beat_at) / 1e6,
    }


def task_data(figures: TaskFigures) -> dict[str, Any]:
    """Return the cost of a task."""
    return _fields(figures, "name known runs succeeded failed retried failure_rate") | {
        "total_seconds": figures.total,
        "p50_seconds": figures.p50,
        "p95_seconds": figures.p95,
        "p99_seconds": figures.p99,
    }


def metrics_data(found: MetricSeries) -> dict[str, Any]:
    """Return the counters, without the steps in which nothing happened."""
    nothing = Counts()
    return {
        "since": plain(from_us(found.since)),
        "step_seconds": found.step / SECOND,
        "lines": [
            {
                "name": name,
                "steps": [
                    _step_data(found.since + number * found.step, counts)
                    for number, counts in enumerate(line)
                    if counts != nothing
                ],
            }
            for name, line in sorted(found.lines.items())
        ],
    }


def _step_data(at: int, counts: Counts) -> dict[str, Any]:
    def seconds(length: int | None) -> float | None:
        return None if length is None else length / SECOND

    return {
        "at": plain(from_us(at)),
        **dict(zip(EVENTS, counts.events, strict=True)),
        "waited_p95_seconds": seconds(counts.waited.percentile(0.95)),
        "took_p50_seconds": seconds(counts.took.percentile(0.5)),
        "took_p95_seconds": seconds(counts.took.percentile(0.95)),
    }


def error_data(group: ErrorGroup) -> dict[str, Any]:
    """Return a group of errors."""
    return _fields(group, "key type place count starts") | {
        **_fields(group.newest, "message traceback"),
        "first_seen": group.oldest.at.isoformat(),
        "last_seen": group.newest.at.isoformat(),
        "tasks": dict(group.tasks),
        "runs": list(group.run_ids),
    }


def act_data(entry: AuditEntry) -> dict[str, Any]:
    """Return an act of a person."""
    details = plain(masked((), entry.details)[1])
    return {"id": entry.record.id, **_fields(entry, "at by verb kind target why"), "details": details}


def mark_data(mark: TimeMark) -> dict[str, Any]:
    """Return a mark."""
    return _fields(mark, "at text by")
