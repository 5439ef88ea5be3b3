"""A run that takes too long is stopped; one that fails is tried again."""

import logging
import threading
import time

from mainspring import events
from mainspring.schedulers.background import BackgroundScheduler

logging.getLogger("mainspring").addHandler(logging.NullHandler())
attempts = 0
ended = threading.Semaphore(0)


def flaky() -> str:
    global attempts
    attempts += 1
    if attempts < 3:
        raise ConnectionError("the other side hung up")
    return f"worked at attempt {attempts}"


def endless() -> None:
    while True:
        time.sleep(0.01)


def hear(event: events.JobExecutionEvent) -> None:
    print(f"{event.job_id}: {event.retval or event.exception}")
    ended.release()


with BackgroundScheduler() as scheduler:
    scheduler.add_listener(hear, events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR)
    scheduler.add_job(flaky, id="flaky", retries=3, backoff=[0.1, 0.2])
    ended.acquire()
    scheduler.add_job(endless, id="endless", timeout=0.5)
    ended.acquire()
