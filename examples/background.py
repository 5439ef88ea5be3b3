"""Jobs beside a program's own work: an interval, a date, a pause, and a clean end."""

import threading
import time
from datetime import UTC, datetime, timedelta

from mainspring.schedulers.background import BackgroundScheduler

ticked = threading.Event()


def tick(word: str) -> None:
    print(word, flush=True)
    if word == "once":
        ticked.set()


with BackgroundScheduler() as scheduler:
    job = scheduler.add_job(tick, "interval", args=["tick"], seconds=0.5, id="ticker")
    scheduler.add_job(tick, "date", args=["once"], run_date=datetime.now(UTC) + timedelta(seconds=0.7))
    ticked.wait(30)  # the program does its own work meanwhile

    job.pause()
    scheduler.print_jobs()
    job.resume()
    time.sleep(0.7)
print("stopped")
