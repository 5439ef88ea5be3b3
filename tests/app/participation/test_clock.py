"""The clock that an app or a scheduler is given is the only one: for its store, its triggers and its loops."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.instants import SECOND, from_us
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.clock import VirtualClock
from tests.app.kit import LIMIT

HOUR = 3600


@pytest.mark.parametrize("options", [{}, {"jobstores": {"default": MemoryJobStore()}}], ids=["default store", "given"])
def test_a_scheduler_with_a_clock_of_its_own_fires_when_that_clock_is_moved(options: dict[str, Any]) -> None:
    clock, called = VirtualClock(), threading.Event()
    scheduler = BackgroundScheduler(clock=clock, timezone="UTC", **options)
    scheduler.start()
    try:
        job = scheduler.add_job(called.set, "interval", hours=1)
        assert job.next_run_time == from_us(clock.now() + HOUR * SECOND)
        clock.advance(HOUR)
        assert called.wait(LIMIT)
    finally:
        scheduler.shutdown()


def test_an_app_with_a_clock_of_its_own_has_its_time_everywhere() -> None:
    clock, called = VirtualClock(), threading.Event()
    app = Mainspring("memory://", clock=clock, timezone="UTC")

    @app.schedule("interval", hours=1, id="hourly")
    def ring() -> None:
        called.set()

    app.start(work=True)
    try:
        assert app.now() == clock.now()
        assert app.get_job("hourly").next_run_time == from_us(clock.now() + HOUR * SECOND)
        clock.advance(HOUR)
        assert called.wait(LIMIT)
    finally:
        app.stop()


@pytest.mark.parametrize(("trigger", "after"), [("date", 0), ("interval", HOUR), ("calendarinterval", 24 * HOUR)])
def test_triggers_made_by_name_begin_by_the_clock_of_the_scheduler(trigger: str, after: int) -> None:
    clock = VirtualClock()
    clock.advance(1)
    scheduler = BackgroundScheduler(clock=clock, timezone="UTC")
    how: dict[str, Any] = {"interval": {"hours": 1}, "calendarinterval": {"days": 1}}.get(trigger, {})
    scheduler.start(paused=True)
    try:
        job = scheduler.add_job(print, trigger, **how)
        due = from_us(clock.now() + after * SECOND)
        assert job.next_run_time is not None
        assert job.next_run_time.date() == due.date()
    finally:
        scheduler.shutdown()


def test_a_simulation_begins_at_the_time_of_the_apps_clock() -> None:
    clock = VirtualClock()
    app = Mainspring("memory://", clock=clock, timezone="UTC")
    app.schedule("interval", hours=1, id="hourly")(print)
    found = app.simulate(days=1)
    assert found.since == from_us(clock.now())


def test_a_store_with_a_clock_of_its_own_keeps_it() -> None:
    mine, theirs = VirtualClock(), VirtualClock(start=SECOND)
    store = MemoryJobStore(mine)
    store.use_clock(theirs)
    assert store.beat() == mine.now()
