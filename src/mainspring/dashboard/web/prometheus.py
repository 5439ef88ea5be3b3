"""Numbers for Prometheus. Labels are statuses and queues only, so that their number has a bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mainspring.core.run import FINAL

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["metrics_text"]

MOST_QUEUES: Final = 100
"""Queues with a label of their own; the rest are summed up as `other`."""


def metrics_text(app: Mainspring) -> str:
    """Return the numbers of an app in Prometheus's text format."""
    now, queues, nodes, counters = app.store.beat(), app.queues(), app.nodes(), app.counters()
    ranked = sorted(queues, key=lambda queue: -(queue.waiting + queue.delayed + queue.running))
    named, rest = sorted(ranked[:MOST_QUEUES], key=lambda queue: queue.name), ranked[MOST_QUEUES:]
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, values: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP mainspring_{name} {text}")
        lines.append(f"# TYPE mainspring_{name} {kind}")
        lines.extend(f"mainspring_{name}{labels} {value:g}" for labels, value in values)

    statuses = [str(status) for status in FINAL]
    totals = ((f'{{status="{status}"}}', counters.get(status, 0)) for status in statuses)
    metric("runs_ended_total", "counter", "Runs that have ended, by status.", totals)
    metric("jobs", "gauge", "Jobs in the store.", [("", counters["jobs"])])
    for field, text in (
        ("waiting", "Runs that are due and wait."),
        ("delayed", "Runs whose time has not come."),
        ("blocked", "Runs that wait for other runs."),
        ("running", "Runs that are being executed."),
    ):
        values = [(f'{{queue="{_label(queue.name)}"}}', float(getattr(queue, field))) for queue in named]
        if rest:
            values.append(('{queue="other"}', float(sum(getattr(queue, field) for queue in rest))))
        metric(f"queue_{field}", "gauge", text, values)
    oldest = [
        (f'{{queue="{_label(queue.name)}"}}', 0.0 if queue.oldest_at is None else max(0, now - queue.oldest_at) / 1e6)
        for queue in named
    ]
    metric("queue_oldest_seconds", "gauge", "How long the run that is due longest has waited.", oldest)
    paused = ((f'{{queue="{_label(queue.name)}"}}', float(queue.paused)) for queue in named)
    metric("queue_paused", "gauge", "Whether a queue is paused.", paused)
    states = {
        state: sum(node.state == state for node in nodes) for state in ("running", "draining", "paused", "silent")
    }
    metric("nodes", "gauge", "Nodes by state.", ((f'{{state="{state}"}}', number) for state, number in states.items()))
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
