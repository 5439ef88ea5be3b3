"""`mainspring status`: queues, schedules, nodes and counts of a store."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from mainspring.app.doctor import OVERDUE, duration
from mainspring.cli.common.output import print_json
from mainspring.cli.common.target import json_option, opened, target_options
from mainspring.cli.common.visible import visible
from mainspring.core.instants import from_us

__all__ = ["status"]

SHOWN: Final = 10
"""Jobs that are listed, those that are due first."""


@click.command()
@click.argument("target", metavar="[MODULE:APP|URL]", required=False)
@target_options
@json_option
def status(target: str | None, where: str | None, name: str, as_json: bool) -> None:
    """Show the queues, schedules, nodes and counts of an app, or of the store at a URL.

    \b
    Example:
      mainspring status shop:app
    """
    with opened(target or where, name) as app:
        found = _gather(app)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _gather(app: Any) -> dict[str, Any]:
    now = app.now()
    queues = [
        {
            "name": queue.name,
            "waiting": queue.waiting,
            "delayed": queue.delayed,
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
            "queues": list(node.lanes),
            "uptime_seconds": round(max(0, now - node.started_at) / 1e6),
            "heard_seconds_ago": round(max(0, now - node.beat_at) / 1e6, 1),
            "missing": list(node.missing),
        }
        for node in app.nodes()
    ]
    jobs = sorted((job.at, job.id) for job in app.store.examine_jobs()[0] if job.at is not None)
    schedules = [
        {"id": job_id, "next_run_time": from_us(at).isoformat(), "in_seconds": round((at - now) / 1e6, 1)}
        for at, job_id in jobs[:SHOWN]
    ]
    served = {lane for node in nodes if node["state"] != "silent" for lane in node["queues"]}
    unserved = [queue["name"] for queue in queues if queue["waiting"] and queue["name"] not in served]
    return {
        "queues": queues,
        "schedules": schedules,
        "overdue": sum(now - at > OVERDUE for at, _ in jobs),
        "nodes": nodes,
        "counters": app.counters(),
        "broken": len(app.broken()),
        "unserved": unserved,
    }


def _show(found: dict[str, Any]) -> None:
    found = visible(found)
    console = Console(markup=False, emoji=False)  # a queue may be called [/x] or :x:
    queues = Table(title="queues", title_justify="left")
    for column in ("queue", "waiting", "delayed", "running", "oldest", ""):
        queues.add_column(column, justify="left" if column in ("queue", "") else "right")
    for queue in found["queues"]:
        oldest = "" if queue["oldest_seconds"] is None else f"{queue['oldest_seconds']:.0f} s"
        words = "paused" if queue["paused"] else "nobody serves it" if queue["name"] in found["unserved"] else ""
        queues.add_row(
            queue["name"], str(queue["waiting"]), str(queue["delayed"]), str(queue["running"]), oldest, words
        )
    console.print(queues)
    schedules = Table(title="next fires", title_justify="left")
    for column in ("job", "next run time", ""):
        schedules.add_column(column)
    for job in found["schedules"]:
        us = round(job["in_seconds"] * 1e6)
        late = -us > OVERDUE
        when = f"{duration(-us)} overdue" if late else f"in {duration(us)}" if us > 0 else "now"
        moment = datetime.fromisoformat(job["next_run_time"]).astimezone()
        schedules.add_row(job["id"], f"{moment:%Y-%m-%d %H:%M:%S %Z}", when)
    console.print(schedules)
    if found["overdue"]:
        console.print(f"{found['overdue']} jobs are overdue: `mainspring doctor` says why")
    nodes = Table(title="nodes", title_justify="left")
    for column in ("host", "pid", "state", "up", "heard", "queues"):
        nodes.add_column(column)
    for node in found["nodes"]:
        up = time.strftime("%H:%M:%S", time.gmtime(node["uptime_seconds"]))
        heard = f"{node['heard_seconds_ago']:.0f} s ago"
        nodes.add_row(node["host"], str(node["pid"]), node["state"], up, heard, ", ".join(node["queues"]))
    console.print(nodes)
    missing = Counter(name for node in found["nodes"] for name in node["missing"])
    for name, number in sorted(missing.items()):
        console.print(f"missing code: {name!r} is asked for and not known on {number} of {len(found['nodes'])} nodes")
    ended = {word: number for word, number in found["counters"].items() if number and word != "jobs"}
    counts = ", ".join(f"{number} {word}" for word, number in sorted(ended.items()))
    jobs = found["counters"].get("jobs", 0)
    console.print(f"jobs: {jobs}; runs ended so far: {counts or 'none'}; broken now: {found['broken']}")
