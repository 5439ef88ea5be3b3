"""Any number of schedulers share a store: each fire happens once, on one of them."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.schedulers.background import BackgroundScheduler

store = MemoryJobStore()  # one process; with a database or Redis the schedulers live anywhere
fires: Counter[tuple[str | None, datetime]] = Counter()
lock = threading.Lock()
all_there = threading.Event()


def hear(event: JobExecutionEvent) -> None:
    with lock:
        fires[event.job_id, event.scheduled_run_time] += 1
        if len(fires) == 200:
            all_there.set()


schedulers = [BackgroundScheduler(jobstores={"default": store}) for _ in range(4)]
for scheduler in schedulers:
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
start = datetime.now(UTC) + timedelta(seconds=0.3)
end = start + timedelta(seconds=0.9)
every: dict[str, Any] = {"seconds": 0.3, "start_date": start, "end_date": end, "coalesce": False, "max_instances": 4}
for number in range(50):
    schedulers[0].add_job(int, "interval", id=f"job{number}", **every)
all_there.wait(30)
for scheduler in schedulers:
    scheduler.shutdown()
print(f"{len(fires)} fires of 50 jobs by {len(schedulers)} schedulers, at most {max(fires.values())} run of each")
