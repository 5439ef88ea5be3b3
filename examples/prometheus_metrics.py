"""Prometheus: one process serves the numbers of the whole fleet, which come from the store."""

from urllib.request import urlopen

from mainspring import Mainspring
from mainspring.contrib.prometheus import serve_metrics

app = Mainspring("memory://")


@app.task
def work() -> None:
    """Do nothing."""


with app:
    app.start(work=True)
    server = serve_metrics(app, port=0)  # in production a fixed one: serve_metrics(app, 9464)
    work.enqueue().result(timeout=10)
    with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(("mainspring_runs_ended_total", "mainspring_queue_waiting")):
                print(line)
    server.shutdown()
    server.server_close()
