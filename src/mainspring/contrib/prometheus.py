"""Metrics for Prometheus: the dashboard serves them at `/metrics`, `serve_metrics(app)` serves them alone.

No package is needed. The metrics come from the store, so one process can serve them for all nodes. The only labels are
statuses and queues, which limits the number of series.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mainspring.core.run import FINAL, Status

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from mainspring.app import Mainspring

__all__ = ["metrics_text", "serve_metrics"]

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_QUEUES: Final = 100
"""The number of queues with a label; the sum of the others is labelled `other`."""


def metrics_text(app: Mainspring) -> str:
    """Return the metrics of an app in Prometheus's text format."""
    now, queues, nodes, counters = app.store.beat(), app.queues(), app.nodes(), app.counters()
    ranked = sorted(queues, key=lambda queue: -(queue.waiting + queue.delayed + queue.running))
    named, rest = sorted(ranked[:MOST_QUEUES], key=lambda queue: queue.name), ranked[MOST_QUEUES:]
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, values: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP mainspring_{name} {text}")
        lines.append(f"# TYPE mainspring_{name} {kind}")
        lines.extend(f"mainspring_{name}{labels} {_number(value)}" for labels, value in values)

    statuses = [str(status) for status in Status if status in FINAL]
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


def serve_metrics(app: Mainspring, port: int = 9464, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Serve the metrics of an app at `/metrics` from a thread of this process; `.shutdown()` ends it.

    With port 0 the system chooses a port: read `.server_port`. There is no login, so serve it only inside your network.
    """
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # imported late: most programs serve nothing

    class MetricsHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                return self.send_error(404, "there is only /metrics")
            try:
                body = metrics_text(app).encode()
            except OSError as error:  # the store does not answer
                return self.send_error(503, type(error).__name__)
            self.send_response(200)
            self.send_header("Content-Type", TEXT_FORMAT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a scrape every few seconds is not news."""

    server = ThreadingHTTPServer((host, port), MetricsHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="mainspring-metrics", daemon=True).start()
    return server


def _number(value: float) -> str:
    """Write a number with all digits: six are too few for a counter."""
    return f"{value:.0f}" if value == int(value) else f"{value:.6f}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
