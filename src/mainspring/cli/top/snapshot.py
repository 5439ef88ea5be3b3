"""The contents of `mainspring top`, read from the store at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mainspring.cli.common.output import ago, length
from mainspring.cli.jobs.group import next_time
from mainspring.cli.nodes import node_cells, node_data
from mainspring.cli.queues import queue_cells, queues_data
from mainspring.cli.runs.looking import call_of
from mainspring.core.insight.run_texts import kind_of, says, took_of
from mainspring.core.insight.wording import several
from mainspring.core.instants import from_us
from mainspring.core.showing.redaction import without_password

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.app import Mainspring
    from mainspring.core.job import Job
    from mainspring.core.showing.run_view import RunView
    from mainspring.jobstores.base import NodeInfo

__all__ = ["COLUMNS", "SECTIONS", "Row", "Snapshot", "take"]

RUNS_READ: Final = 50
"""The number of newest runs to read, and of running ones."""
JOBS_JUDGED: Final = 200
"""The number of jobs whose health is judged, the next to fire first: each costs a query for its newest runs."""
SECTIONS: Final = ("queues", "jobs", "nodes", "runs")
COLUMNS: Final = {
    "queues": ("queue", "state", "waiting", "delayed", "blocked", "running", "oldest"),
    "jobs": ("job", "health", "next", "how soon", "when"),
    "nodes": ("node", "state", "up", "heard", "queues"),
    "runs": ("status", "run", "call", "made", "took", "says"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of cells. `id` is its subject, `state` decides which keys apply, `data` is its JSON form."""

    id: str
    cells: tuple[str, ...]
    state: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store at one moment."""

    title: str
    rows: Mapping[str, Sequence[Row]]

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as data with numbers and times, under the names that the other verbs use."""
        return {section: [{"id": row.id, **row.data} for row in self.rows[section]] for section in SECTIONS}


def take(app: Mainspring) -> Snapshot:
    """Read the rows of all sections."""
    now = app.now()
    nodes = app.nodes()
    rows = {
        "queues": _queues(app, nodes, now),
        "jobs": _jobs(app, now),
        "nodes": [_node(node, now) for node in sorted(nodes, key=lambda node: (node.host, node.pid))],
        "runs": [_run(app, run, now) for run in _last_runs(app)],
    }
    return Snapshot(_title(app, now), rows)


def _title(app: Mainspring, now: int) -> str:
    store = without_password(app.url) if isinstance(app.url, str) else repr(app.url)
    counts = dict(app.counters())
    jobs = several(counts.pop("jobs", 0), "job")
    ended = [f"{number:,} {word}" for word, number in sorted(counts.items()) if number]
    return f"{store}  {from_us(now).astimezone(app.timezone):%H:%M:%S}  {', '.join([jobs, *ended])}"


def _queues(app: Mainspring, nodes: Sequence[NodeInfo], now: int) -> list[Row]:
    rows = []
    for data in queues_data(app, nodes, now):
        *cells, _, oldest = queue_cells(data)
        rows.append(Row(data["name"], (*cells, oldest), data["state"], data))
    return rows


def _node(node: NodeInfo, now: int) -> Row:
    cells = (f"{node.host}:{node.pid}", *node_cells(node, now))
    return Row(node.id, cells, node.state, node_data(node, now))


def _jobs(app: Mainspring, now: int) -> list[Row]:
    found = sorted(app.store.examine_jobs()[0], key=lambda job: (job.at is None, job.at or 0, job.id))
    healths = {job_id: str(health.state) for job_id, health in app.healths(found[:JOBS_JUDGED]).items()}
    return [_job(app, job, healths.get(job.id), now) for job in found]


def _job(app: Mainspring, job: Job, health: str | None, now: int) -> Row:
    when = job.trigger.describe()
    data = {
        "health": health,
        "next_run_time": None if job.at is None else from_us(job.at).astimezone(app.timezone),
        "paused": job.at is None,
        "when": when,
    }
    cells = (job.id, health or "", *next_time(app, job, now), when)
    return Row(job.id, cells, "paused" if job.at is None else "", data)


def _last_runs(app: Mainspring) -> list[RunView]:
    """Return the newest runs and the running ones, the latest change first."""
    found = {run.id: run for run in (*app.find(status="running", limit=RUNS_READ), *app.find(limit=RUNS_READ))}

    def happened(run: RunView) -> tuple[int, str]:
        record = run.record
        return max(record.created_at, record.started_at or 0, record.finished_at or 0), record.id

    return sorted(found.values(), key=happened, reverse=True)


def _run(app: Mainspring, run: RunView, now: int) -> Row:
    status, call, took = kind_of(run, now), call_of(app, run), took_of(run, now)
    data = {"status": status, "call": call, "created_at": run.created_at, "duration": took, "says": says(run)}
    cells = (status, run.id, call, ago(now - run.record.created_at), length(took), says(run))
    return Row(run.id, cells, status, data)
