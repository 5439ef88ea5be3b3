"""Any number of schedulers of a process share one memory store: each fire happens once."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.events import EVENT_JOB_EXECUTED, EVENT_JOB_SUBMITTED
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.schedulers.background import BackgroundScheduler
from tests.schedulers.compat.kit import LIMIT

SCHEDULERS, JOBS, FIRES = 8, 300, 3


def test_each_fire_of_each_job_happens_once() -> None:
    store = MemoryJobStore()
    lock, finished = threading.Condition(), Counter[tuple[str, datetime]]()
    submitted: Counter[tuple[str, datetime]] = Counter()
    calls: Counter[str] = Counter()

    def hear(event: Any) -> None:
        with lock:
            if event.code == EVENT_JOB_SUBMITTED:
                submitted.update((event.job_id, moment) for moment in event.scheduled_run_times)
            else:
                finished[event.job_id, event.scheduled_run_time] += 1
                lock.notify_all()

    def work(job_id: str) -> None:
        with lock:
            calls[job_id] += 1

    schedulers = [BackgroundScheduler(timezone="UTC", jobstores={"default": store}) for _ in range(SCHEDULERS)]
    start = datetime.now(UTC) + timedelta(seconds=0.5)
    end = start + timedelta(seconds=0.3 * (FIRES - 1))
    for scheduler in schedulers:
        scheduler.add_listener(hear, EVENT_JOB_EXECUTED | EVENT_JOB_SUBMITTED)
        scheduler.start()
    for number in range(JOBS):
        name = f"job{number}"
        options: dict[str, Any] = {"coalesce": False, "max_instances": FIRES}
        schedulers[number % SCHEDULERS].add_job(
            work, "interval", [name], id=name, seconds=0.3, start_date=start, end_date=end, **options
        )
    with lock:
        assert lock.wait_for(lambda: len(finished) >= JOBS * FIRES, LIMIT), len(finished)
    for scheduler in schedulers:
        scheduler.shutdown()
    times = [start + timedelta(seconds=0.3 * n) for n in range(FIRES)]
    expected = Counter({(f"job{number}", moment): 1 for number in range(JOBS) for moment in times})
    assert finished == expected
    assert submitted == expected
    assert calls == Counter({f"job{number}": FIRES for number in range(JOBS)})


def test_a_job_added_by_one_scheduler_is_seen_and_changed_by_another() -> None:
    store = MemoryJobStore()
    with (
        BackgroundScheduler(timezone="UTC", jobstores={"default": store}) as one,
        BackgroundScheduler(timezone="UTC", jobstores={"default": store}) as other,
    ):
        job = one.add_job(print, "interval", id="x", hours=1)
        found = other.get_job("x")
        assert found is not None
        found.pause()
        assert job.next_run_time is None


def test_shutting_one_down_leaves_the_store_to_the_others() -> None:
    store, done = MemoryJobStore(), threading.Event()
    one = BackgroundScheduler(timezone="UTC", jobstores={"default": store})
    other = BackgroundScheduler(timezone="UTC", jobstores={"default": store})
    one.start()
    other.start()
    one.add_job(done.set, "interval", id="x", seconds=0.3)
    one.shutdown()
    assert done.wait(LIMIT)
    other.shutdown()
