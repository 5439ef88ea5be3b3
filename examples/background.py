"""Jobs beside a program's own work: an interval, a date, a pause, and a clean end."""

import time
from datetime import datetime, timedelta

from mainspring.schedulers.background import BackgroundScheduler


def tick(word: str) -> None:
    print(word, flush=True)


with BackgroundScheduler() as scheduler:
    job = scheduler.add_job(tick, "interval", args=["tick"], seconds=0.5, id="ticker")
    scheduler.add_job(tick, "date", args=["once"], run_date=datetime.now() + timedelta(seconds=0.7))
    time.sleep(1.2)  # the program does its own work meanwhile

    job.pause()
    scheduler.print_jobs()
    job.resume()
    time.sleep(0.7)
print("stopped")
