"""The shop of the demo: its tasks, one schedule of each kind, and its first calls.

The demo copies this file into a separate folder and imports it from there, like a user's program.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta
from typing import Any

from mainspring.app import Mainspring
from mainspring.executors.current_run import current_run
from mainspring.triggers.combining import AndTrigger, OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.util import datetime_utc_add

__all__ = ["add_late_job", "add_schedules", "add_strange_job", "begin", "make_shop"]

log = logging.getLogger("shop")


def send_mail(to: str, password: str = "") -> str:
    """Succeed, and take a secret that no log line shows."""
    time.sleep(0.02)
    return f"sent to {to}"


def ask_bank(order: int) -> str:
    """Fail at the first attempt, succeed at the second."""
    if current_run().attempt == 1:
        raise ConnectionError("the bank hung up")
    return "paid"


def print_label(order: int) -> str:
    """Fail for good, inside a library, so that its frames are folded."""
    import json

    return str(json.loads("{not JSON"))


def import_orders(count: int) -> int:
    """Report progress."""
    for number in range(count):
        time.sleep(0.25)
        current_run().progress(number + 1, count)
        log.info("imported %s of %s orders", number + 1, count)
    return count


def slow_report() -> str:
    """Take longer than the time between two fires, so that some are skipped."""
    time.sleep(1.5)
    return "done"


def tidy_up() -> None:
    """Do a little work."""
    time.sleep(0.01)


async def fetch_news() -> str:
    """Wait, as coroutines do."""
    await asyncio.sleep(0.1)
    return "no news"


def pick(order: int) -> int:
    """Be the first step of a chain."""
    return order


def pack(order: int) -> int:
    """Be the second step."""
    return order


def count_stock(shelf: str) -> int:
    """Be one of a group."""
    time.sleep(0.05)
    return len(shelf)


def make_shop(url: str, key: str) -> Mainspring:
    """Make the app with its tasks."""
    app = Mainspring(url, name="shop", secret_key=key)
    for func in (send_mail, import_orders, slow_report, tidy_up, fetch_news, pick, pack, count_stock):
        app.task(name=func.__name__)(func)
    app.task(name="ask_bank", retries=3, backoff=[0.5])(ask_bank)
    app.task(name="print_label", retries=1, backoff=[0.5])(print_label)
    return app


def add_schedules(app: Mainspring, now: datetime) -> None:
    """Declare one schedule of each kind, and one whose runs take longer than its interval."""
    soon = datetime_utc_add(now, timedelta(seconds=3))
    every: dict[str, Any] = {"start_date": now, "timezone": app.timezone}
    both = AndTrigger([IntervalTrigger(seconds=1, **every), IntervalTrigger(seconds=2, **every)])
    either = OrTrigger([CronTrigger(second="*/4", timezone="UTC"), CronTrigger(second="*/6", timezone="UTC")])
    tidy = app.tasks.find("tidy_up")
    app.schedule("interval", seconds=2, id="interval")(tidy)
    app.schedule("cron", second="*/5", id="cron")(tidy)
    app.schedule("date", run_date=datetime_utc_add(now, timedelta(seconds=1)), id="date")(tidy)
    clock: dict[str, Any] = {"hour": soon.hour, "minute": soon.minute, "second": soon.second}
    app.schedule("calendarinterval", days=1, start_date=soon.date(), **clock, id="calendar")(tidy)
    app.schedule(both, id="and")(tidy)
    app.schedule(either, id="or")(tidy)
    app.schedule("interval", seconds=3, jitter=1, id="async, jitter")(app.tasks.find("fetch_news"))
    app.schedule("interval", seconds=1, start_date=now, id="slow")(app.tasks.find("slow_report"))


def begin(app: Mainspring) -> list[str]:
    """Enqueue calls: some succeed, one is retried, one fails, and there is a chain and a group; return their ids."""
    task = app.tasks.find
    calls: list[tuple[str, Any, dict[str, Any]]] = [
        ("send_mail", "ann@example.com", {"password": "hunter2"}), ("import_orders", 5, {}),
        ("ask_bank", 1001, {}), ("print_label", 1002, {}),
    ]  # fmt: skip
    handles = [task(name).enqueue(argument, **options) for name, argument, options in calls]
    handles += app.chain([task("pick").call(1003), task("pack").call(1003), task("send_mail").call("bob@example.com")])
    handles.append(app.gather([task("count_stock").call(shelf) for shelf in ("books", "toys", "tea")]))
    return [handle.id for handle in handles]


def add_late_job(app: Mainspring, now: datetime) -> None:
    """Add a job whose time was an hour ago and that may be a minute late, so it is missed."""
    late = datetime_utc_add(now, timedelta(hours=-1))
    app.add_job(app.tasks.find("tidy_up"), "date", run_date=late, misfire_grace_time=60, id="too late")


def add_strange_job(url: str) -> None:
    """Add a job signed with another key, as a misconfigured process would, so it is set aside as broken."""
    with Mainspring(url, name="shop", secret_key="a key that the shop does not know") as stranger:
        stranger.add_job("json:dumps", "interval", seconds=1, args=[1], id="strange")
