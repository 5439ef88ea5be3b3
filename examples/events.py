"""Listen to what happens: a run that returns, one that raises, one that comes too late."""

import logging
import threading
from datetime import UTC, datetime, timedelta

from mainspring import events
from mainspring.schedulers.background import BackgroundScheduler

logging.getLogger("mainspring").addHandler(logging.NullHandler())  # the failure is shown by the listener


def divide(a: int, b: int) -> float:
    return a / b


def hear(event: events.JobExecutionEvent) -> None:
    if event.code == events.EVENT_JOB_EXECUTED:
        print(f"{event.job_id} returned {event.retval}")
    elif event.code == events.EVENT_JOB_ERROR:
        print(f"{event.job_id} raised {event.exception!r}")
    else:
        print(f"{event.job_id} missed its time")
    heard.release()


heard = threading.Semaphore(0)
an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
with BackgroundScheduler() as scheduler:  # at its end, what was fired is let end
    scheduler.add_listener(hear, events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR | events.EVENT_JOB_MISSED)
    scheduler.add_job(divide, args=[6, 3], id="good")
    scheduler.add_job(divide, args=[6, 0], id="bad")
    scheduler.add_job(divide, "date", args=[6, 2], id="late", run_date=an_hour_ago, misfire_grace_time=60)
    for _ in range(3):
        heard.acquire(timeout=30)
