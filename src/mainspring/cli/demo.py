"""`mainspring demo`: jobs of every trigger at work, and a table of what they do."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mainspring import events
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.triggers.combining import AndTrigger, OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger

__all__ = ["demo"]

_EVENTS_SHOWN = 12


def tidy_up() -> str:
    """Work for a moment."""
    time.sleep(random.uniform(0.01, 0.15))
    return "tidy"


async def fetch_news() -> str:
    """Wait for a moment, as coroutines do."""
    import asyncio

    await asyncio.sleep(random.uniform(0.05, 0.3))
    return "news"


def unreliable() -> str:
    """Fail every second time."""
    if random.random() < 0.5:
        raise ConnectionError("the other side hung up")
    return "fine"


def add_jobs(scheduler: BackgroundScheduler, now: datetime) -> None:
    """Add a job for each kind of trigger."""
    soon = now + timedelta(seconds=5)
    every: dict[str, Any] = {"start_date": now, "timezone": UTC}
    scheduler.add_job(tidy_up, "interval", seconds=1, id="interval")
    scheduler.add_job(fetch_news, "interval", seconds=3, jitter=1, id="async, jitter")
    scheduler.add_job(tidy_up, "cron", second="*/5", id="cron")
    scheduler.add_job(unreliable, "cron", second="*/2", retries=3, backoff=[0.5], id="unreliable")
    scheduler.add_job(tidy_up, "date", run_date=now + timedelta(seconds=2), id="date, once")
    clock: dict[str, Any] = {"hour": soon.hour, "minute": soon.minute, "second": soon.second}
    scheduler.add_job(tidy_up, "calendarinterval", days=1, start_date=soon.date(), **clock, id="calendar")
    both = AndTrigger([IntervalTrigger(seconds=2, **every), IntervalTrigger(seconds=3, **every)])
    scheduler.add_job(tidy_up, both, id="and")
    either = OrTrigger([CronTrigger(second="*/7", timezone=UTC), CronTrigger(second="*/11", timezone=UTC)])
    scheduler.add_job(tidy_up, either, id="or")


class DemoWatch:
    """Remembers what the scheduler tells, for the table and the summary."""

    def __init__(self, scheduler: BackgroundScheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self.latest: list[tuple[datetime, float, str, str]] = []
        self.counts: dict[str, Counter[str]] = {}
        self.lateness: list[float] = []
        scheduler.add_listener(self._submitted, events.EVENT_JOB_SUBMITTED)
        scheduler.add_listener(
            self._ended,
            events.EVENT_JOB_EXECUTED
            | events.EVENT_JOB_ERROR
            | events.EVENT_JOB_MISSED
            | events.EVENT_JOB_MAX_INSTANCES,
        )
        scheduler.add_listener(self._retried, events.EVENT_RUN_RETRIED)

    def _submitted(self, event: Any) -> None:
        now = datetime.now(UTC)
        late = (now - event.scheduled_run_times[-1]).total_seconds()
        with self._lock:
            self.lateness.append(late)
            self.latest = [*self.latest, (now, late, event.job_id, "fired")][-_EVENTS_SHOWN:]
            self.counts.setdefault(event.job_id, Counter())["fired"] += 1

    def _ended(self, event: Any) -> None:
        word = {
            events.EVENT_JOB_EXECUTED: "succeeded",
            events.EVENT_JOB_ERROR: "failed",
            events.EVENT_JOB_MISSED: "missed",
            events.EVENT_JOB_MAX_INSTANCES: "still running, skipped",
        }[event.code]
        self._note(event.job_id, word)

    def _retried(self, event: Any) -> None:
        self._note(event.run_id.split("@")[0], "retried")

    def _note(self, job_id: str, word: str) -> None:
        with self._lock:
            self.counts.setdefault(job_id, Counter())[word] += 1
            self.latest = [*self.latest, (datetime.now(UTC), 0.0, job_id, word)][-_EVENTS_SHOWN:]

    def tables(self) -> Group:
        """Draw the jobs and what happened last."""
        now = datetime.now(UTC)
        jobs = Table(title="jobs", title_justify="left", expand=True)
        jobs.add_column("job", no_wrap=True)
        jobs.add_column("trigger", no_wrap=True, ratio=1)
        for column in ("next", "fired", "ok", "failed", "retried"):
            jobs.add_column(column, justify="right", no_wrap=True)
        with self._lock:
            counts = {job_id: Counter(known) for job_id, known in self.counts.items()}
            latest = list(self.latest)
        stored = {job.id: job for job in self._scheduler.get_jobs()}
        for job_id in sorted({*stored, *counts}):
            job, known = stored.get(job_id), counts.get(job_id, Counter())
            moment = None if job is None else job.next_run_time
            when = "done" if moment is None else f"in {max(0.0, (moment - now).total_seconds()):.1f} s"
            told = [str(known[word]) for word in ("fired", "succeeded", "failed", "retried")]
            # As Text: rich takes the brackets of cron[second=5] for its own.
            jobs.add_row(job_id, Text("" if job is None else str(job.trigger)), when, *told)
        happened = Table(title="what happened last", title_justify="left", expand=True)
        for column in ("time", "job", "what", "late by"):
            happened.add_column(column, no_wrap=True)
        for moment, late, job_id, word in reversed(latest):
            style = {"failed": "red", "retried": "yellow", "succeeded": "green"}.get(word, "")
            shown = f"{late * 1000:.1f} ms" if word == "fired" else ""
            happened.add_row(f"{moment:%H:%M:%S.%f}"[:-3], job_id, Text(word, style=style), shown)
        return Group(jobs, happened)

    def summary(self, seconds: float) -> str:
        """Say in a few lines how it went."""
        total: Counter[str] = sum(self.counts.values(), Counter())
        late = sorted(self.lateness)
        median = late[len(late) // 2] * 1000 if late else 0.0
        worst = late[-1] * 1000 if late else 0.0
        return (
            f"{seconds:.0f} s: {total['fired']} fires of {len(self.counts)} jobs; {total['succeeded']} runs succeeded, "
            f"{total['failed']} failed, {total['retried']} retries, {total['missed']} missed.\n"
            f"Late by {median:.1f} ms in the middle, {worst:.1f} ms at most."
        )


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0.1), default=None, help="End by itself after so many seconds.")
def demo(seconds: float | None) -> None:
    """Watch jobs of every trigger run, in one process; Ctrl-C ends it."""
    import logging

    logging.getLogger("mainspring").addHandler(logging.NullHandler())
    logging.getLogger("mainspring").propagate = False
    console = Console()
    started = time.monotonic()
    scheduler = BackgroundScheduler(timezone=UTC)
    watch = DemoWatch(scheduler)
    scheduler.start()
    add_jobs(scheduler, datetime.now(UTC))
    end = None if seconds is None else started + seconds
    try:
        console.print(
            f"{len(scheduler.get_jobs())} jobs, one for each kind of trigger, run in this process; Ctrl-C ends it."
        )
        sys.stdout.flush()
        _show(console, watch, end)
    except KeyboardInterrupt:
        pass
    finally:
        spent = time.monotonic() - started
        scheduler.shutdown()
    console.print(watch.summary(spent))


def _show(console: Console, watch: DemoWatch, end: float | None) -> None:
    if console.is_terminal:
        with Live(watch.tables(), console=console, refresh_per_second=8, screen=False) as live:
            while end is None or time.monotonic() < end:
                time.sleep(0.125)
                live.update(watch.tables())
        return
    while end is None or time.monotonic() < end:
        time.sleep(min(1.0, max(0.01, (end or time.monotonic() + 1) - time.monotonic())))
    console.print(watch.tables())
