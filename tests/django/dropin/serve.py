"""With mainspring in the place of django-q2: start a cluster by code, wait until all is done, and stop it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import django

django.setup()

from mainspring.django_q.cluster import Cluster
from mainspring.django_q.models import OrmQ, Schedule, Success, Task
from mainspring.django_q.status import Stat

PATIENCE_SECONDS = 120.0


def is_done() -> bool:
    fired = {"by hand", "by a migration"} <= set(Success.objects.values_list("name", flat=True))
    return fired and not OrmQ.objects.exists()


def main() -> None:
    cluster = Cluster()
    pid = cluster.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.05)
    (stat,) = Stat.get_all()
    found: dict[str, Any] = {"done": is_done(), "cluster": [stat.sentinel == pid, len(stat.workers), stat.uptime() > 0]}
    found["state"] = [cluster.is_running, cluster.is_starting, cluster.is_stopping]
    found["stopped"] = [cluster.stop(), cluster.has_stopped, cluster.stop()]
    found["runs"] = {task.name: [task.status, str(task.result)[:200]] for task in Task.objects.all()}
    found["schedules"] = dict(Schedule.objects.values_list("name", "repeats"))
    json.dump(found, sys.stdout)


main()
