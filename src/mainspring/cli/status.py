"""`mainspring status`: show the queues, schedules, nodes and counts of a store."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.app.insight.doctor import OVERDUE_US
from mainspring.cli.common.output import Column, ago, echo, print_json, table
from mainspring.cli.common.target import json_option, on_app
from mainspring.core.insight.wording import duration
from mainspring.core.instants import from_us
from mainspring.core.run import HELD_PREFIX

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["gather", "show", "status"]

JOBS_SHOWN: Final = 10
"""The number of jobs to list, the first due ones first."""


@click.command()
@click.argument("target", metavar="[MODULE:APP|URL]", required=False)
@on_app
@json_option
def status(app: Mainspring, as_json: bool) -> None:
    """Show the queues, schedules, nodes and counts of an app, or of the store at a URL.

    \b
    Example:
      mainspring status shop:app
    """
    (print_json if as_json else show)(gather(app))


def gather(app: Any) -> dict[str, Any]:
    """Return the state of an app as data."""
    now = app.now()
    queues = [
        {
            "name": queue.name,
            "waiting": queue.waiting,
            "delayed": queue.delayed,
            "blocked": queue.blocked,
            "running": queue.running,
            "paused": queue.paused,
            "oldest_seconds": None if queue.oldest_at is None else round(max(0, now - queue.oldest_at) / 1e6, 1),
        }
        for queue in app.queues()
    ]
    nodes = [
        {
            "id": node.id,
            "host": node.host,
            "pid": node.pid,
            "state": node.state,
            "queues": list(node.queues),
            "uptime_seconds": round(max(0, now - node.started_at) / 1e6),
            "heard_seconds_ago": round(max(0, now - node.beat_at) / 1e6, 1),
            "missing": list(node.missing),
        }
        for node in app.nodes()
    ]
    jobs = sorted((job.at, job.id) for job in app.store.examine_jobs()[0] if job.at is not None)
    schedules = [
        {"id": job_id, "next_run_time": from_us(at).isoformat(), "in_seconds": round((at - now) / 1e6, 1)}
        for at, job_id in jobs[:JOBS_SHOWN]
    ]
    served = {queue for node in nodes if node["state"] != "silent" for queue in node["queues"]}
    unserved = [
        queue["name"]
        for queue in queues
        if queue["waiting"] and queue["name"] not in served and not queue["name"].startswith(HELD_PREFIX)
    ]
    return {
        "queues": queues,
        "schedules": schedules,
        "overdue": sum(now - at > OVERDUE_US for at, _ in jobs),
        "nodes": nodes,
        "counters": app.counters(),
        "broken": len(app.broken()),
        "unserved": unserved,
    }


def show(found: dict[str, Any]) -> None:
    """Print what `gather` found."""
    echo("queues")
    table(
        (Column("queue", cut=True),
         *(Column(name, right=True) for name in ("waiting", "delayed", "blocked", "running", "oldest")), Column("")),
        [_queue_row(queue, found["unserved"]) for queue in found["queues"]],
    )  # fmt: skip
    if found["schedules"]:
        echo("\nnext fires")
        table((Column("job", cut=True), Column("next run time"), Column("")), map(_fire_row, found["schedules"]))
    if found["overdue"]:
        overdue = found["overdue"]
        echo(f"{overdue} {'job is' if overdue == 1 else 'jobs are'} overdue: `mainspring doctor` says why")
    if found["nodes"]:
        echo("\nnodes")
        names = ("host", "pid", "state", "up", "heard", "queues")
        table([Column(name, cut=name in ("host", "queues")) for name in names], map(_node_row, found["nodes"]))
    echo()
    missing = Counter(name for node in found["nodes"] for name in node["missing"])
    for name, number in sorted(missing.items()):
        # repr spells out control characters
        echo(f"missing code: {name!r} is asked for and not known on {number} of {len(found['nodes'])} nodes")
    ended = {word: number for word, number in found["counters"].items() if number and word != "jobs"}
    counts = ", ".join(f"{number} {word}" for word, number in sorted(ended.items()))
    jobs = found["counters"].get("jobs", 0)
    echo(f"jobs: {jobs}; runs ended so far: {counts or 'none'}; broken now: {found['broken']}")


def _queue_row(queue: dict[str, Any], unserved: list[str]) -> list[str]:
    oldest = "" if queue["oldest_seconds"] is None else duration(round(queue["oldest_seconds"] * 1e6))
    words = "paused" if queue["paused"] else "nobody serves it" if queue["name"] in unserved else ""
    return [
        queue["name"],
        *(f"{queue[kind]:,}" for kind in ("waiting", "delayed", "blocked", "running")),
        oldest,
        words,
    ]


def _fire_row(job: dict[str, Any]) -> list[str]:
    us = round(job["in_seconds"] * 1e6)
    late = -us > OVERDUE_US
    when = f"{duration(-us)} overdue" if late else f"in {duration(us)}" if us > 0 else "now"
    moment = datetime.fromisoformat(job["next_run_time"]).astimezone()
    return [job["id"], f"{moment:%Y-%m-%d %H:%M:%S %Z}", when]


def _node_row(node: dict[str, Any]) -> list[str]:
    up, heard = duration(round(node["uptime_seconds"] * 1e6)), ago(round(node["heard_seconds_ago"] * 1e6))
    return [node["host"], str(node["pid"]), node["state"], up, heard, ", ".join(node["queues"])]
