"""After downtime: one late run, each of them, or none; by coalesce and misfire_grace_time."""

import logging
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring import events
from mainspring.schedulers.background import BackgroundScheduler

logging.disable()  # what is missed is logged
told: Counter[str] = Counter()
heard = threading.Semaphore(0)


def hear(event: events.JobExecutionEvent) -> None:
    word = "ran" if event.code == events.EVENT_JOB_EXECUTED else "missed"
    told[f"{event.job_id}: {word}"] += 1
    heard.release()


def overdue(name: str, **policy: Any) -> None:
    """Add a job that came due each minute of the last five."""
    start = datetime.now(UTC) - timedelta(minutes=4, seconds=30)
    options: dict[str, Any] = {"minutes": 1, "start_date": start, "next_run_time": start, "args": [], "id": name}
    scheduler.add_job(int, "interval", **options, **policy)


with BackgroundScheduler() as scheduler:
    scheduler.add_listener(hear, events.EVENT_JOB_EXECUTED | events.EVENT_JOB_MISSED)
    overdue("the default, late but once")
    overdue("each of them", coalesce=False)
    overdue("those of the last 2 minutes", coalesce=False, misfire_grace_time=120)
    overdue("only in time", misfire_grace_time=5)
    for _ in range(10):
        heard.acquire(timeout=30)
for line, count in sorted(told.items()):
    print(line, count)
