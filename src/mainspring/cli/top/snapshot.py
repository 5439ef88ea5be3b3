"""The contents of `mainspring top`, read from the store at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainspring.app.doctor import duration
from mainspring.cli.common.output import ago, length
from mainspring.cli.jobs.group import next_time
from mainspring.cli.runs.looking import says, shown_call, status_of, took_of
from mainspring.core.instants import from_us
from mainspring.core.redaction import without_password

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.app import Mainspring
    from mainspring.core.run_view import RunView

__all__ = ["COLUMNS", "SECTIONS", "Row", "Snapshot", "take"]

RUNS_READ: Final = 50
"""The newest runs, and as many of those that run, are looked at."""
JOBS_JUDGED: Final = 200
"""Jobs whose health is looked at, the next to fire first: each costs a look at its newest runs."""
SECTIONS: Final = ("queues", "jobs", "nodes", "runs")
COLUMNS: Final = {
    "queues": ("queue", "state", "waiting", "delayed", "running", "oldest"),
    "jobs": ("job", "health", "next", "how soon", "when"),
    "nodes": ("node", "state", "up", "heard", "queues"),
    "runs": ("status", "run", "call", "made", "took", "says"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what it is about, and its cells; `state` says what keys can do to it."""

    id: str
    cells: tuple[str, ...]
    state: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store at one moment."""

    title: str
    rows: Mapping[str, Sequence[Row]]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            section: [
                dict(zip(COLUMNS[section], row.cells, strict=True)) | {"id": row.id} for row in self.rows[section]
            ]
            for section in SECTIONS
        }


def take(app: Mainspring) -> Snapshot:
    """Read what there is to see."""
    now = app.now()
    nodes = app.nodes()
    served = {queue for node in nodes if node.state != "silent" for queue in node.queues}
    rows = {
        "queues": _queues(app, served, now),
        "jobs": _jobs(app, now),
        "nodes": [
            Row(
                node.id,
                (
                    f"{node.host}:{node.pid}",
                    node.state,
                    duration(now - node.started_at),
                    ago(now - node.beat_at),
                    ", ".join(node.queues) or "none: it only schedules",
                ),
                node.state,
            )
            for node in sorted(nodes, key=lambda node: (node.host, node.pid))
        ],
        "runs": [_run(app, run, now) for run in _last_runs(app)],
    }
    return Snapshot(_title(app, now), rows)


def _title(app: Mainspring, now: int) -> str:
    store = without_password(app.url) if isinstance(app.url, str) else repr(app.url)
    ended = ", ".join(f"{number:,} {word}" for word, number in sorted(app.counters().items()) if number)
    return f"{store}  {from_us(now).astimezone(app.timezone):%H:%M:%S}  {ended}"


def _queues(app: Mainspring, served: set[str], now: int) -> list[Row]:
    rows = []
    for queue in app.queues():
        state = "paused" if queue.paused else "served" if queue.name in served else "unserved"
        oldest = "" if queue.oldest_at is None else duration(max(0, now - queue.oldest_at))
        numbers = (f"{number:,}" for number in (queue.waiting, queue.delayed, queue.running))
        rows.append(Row(queue.name, (queue.name, state, *numbers, oldest), state))
    return rows


def _jobs(app: Mainspring, now: int) -> list[Row]:
    found = sorted(app.store.examine_jobs()[0], key=lambda job: (job.at is None, job.at or 0, job.id))
    healths = {job_id: str(health.state) for job_id, health in app.healths(found[:JOBS_JUDGED]).items()}
    return [
        Row(
            job.id,
            (job.id, healths.get(job.id, ""), *next_time(app, job, now), job.trigger.describe()),
            "paused" if job.at is None else "",
        )
        for job in found
    ]


def _last_runs(app: Mainspring) -> list[RunView]:
    """Return the newest runs and those that run, the last that something happened to first."""
    found = {run.id: run for run in (*app.find(status="running", limit=RUNS_READ), *app.find(limit=RUNS_READ))}

    def happened(run: RunView) -> tuple[int, str]:
        record = run.record
        return max(record.created_at, record.started_at or 0, record.finished_at or 0), record.id

    return sorted(found.values(), key=happened, reverse=True)


def _run(app: Mainspring, run: RunView, now: int) -> Row:
    made = ago(now - run.record.created_at)
    status = status_of(run, now)
    return Row(run.id, (status, run.id, shown_call(app, run), made, length(took_of(run, now)), says(run)), status)
