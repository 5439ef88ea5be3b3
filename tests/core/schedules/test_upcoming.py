"""What will fire: of one job, of many in one order, and how busy that keeps the workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.core.schedules.upcoming import expected_load, fires_between, next_fires
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger

START = datetime(2026, 3, 1, tzinfo=UTC)
NOW = to_us(START)
HOUR = 3600 * SECOND


def job(job_id: str, trigger: BaseTrigger, *, paused: bool = False) -> Job:
    return Job(job_id, Call("shop:work"), trigger, at=None if paused else trigger.next_fire(None, NOW))


def hourly(minute: int = 0) -> BaseTrigger:
    return CronTrigger(minute=minute, timezone="UTC")


def test_the_next_fires_of_a_job_go_on_until_its_trigger_ends() -> None:
    twice = IntervalTrigger(hours=1, start_date=START, end_date=START + timedelta(hours=1), timezone=UTC)
    assert list(next_fires(job("twice", twice), NOW)) == [NOW, NOW + HOUR]
    assert list(next_fires(job("twice", twice, paused=True), NOW)) == [NOW, NOW + HOUR]
    assert list(next_fires(job("over", DateTrigger(START - timedelta(days=1)), paused=True), NOW))[1:] == []


def test_fires_of_many_jobs_come_in_one_order_up_to_a_time_and_a_limit() -> None:
    jobs = [job("b", hourly()), job("a", hourly()), job("half", hourly(30)), job("idle", hourly(), paused=True)]
    found = fires_between(jobs, NOW, NOW + HOUR, 100, UTC)
    assert [(fire.job_id, fire.at.hour, fire.at.minute) for fire in found] == [
        ("a", 0, 0), ("b", 0, 0), ("half", 0, 30), ("a", 1, 0), ("b", 1, 0),
    ]  # fmt: skip
    assert fires_between(jobs, NOW, NOW + HOUR, 2, UTC) == found[:2]
    assert fires_between(jobs, NOW + HOUR // 4, NOW + HOUR // 2, 100, UTC) == found[2:3]


def test_a_fire_is_shown_in_the_zone_of_its_trigger_with_what_the_clock_does_to_it() -> None:
    night = job("night", CronTrigger.from_crontab("30 2 * * *", "Europe/Berlin"))
    day = to_us(datetime(2026, 3, 28, 12, tzinfo=UTC))
    (fire,) = fires_between([night], day, day + 24 * HOUR, 9, UTC)
    assert (fire.at.isoformat(), fire.note and fire.note.kind) == ("2026-03-29T03:00:00+02:00", "gap")


def test_the_load_is_how_many_slots_are_busy_in_each_step() -> None:
    jobs = [job("a", hourly()), job("b", hourly(30)), job("never run", hourly(45))]
    steps = expected_load(jobs, {"a": 1800.0, "b": 3600.0}, NOW, NOW + 2 * HOUR, HOUR // 2, UTC)
    assert [(step.at.hour, step.at.minute, step.fires, step.busy) for step in steps] == [
        (0, 0, 1, 1.0), (0, 30, 2, 1.0), (1, 0, 1, 2.0), (1, 30, 2, 1.0),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="take a longer step"):
        expected_load(jobs, {}, NOW, NOW + 24 * HOUR, SECOND, UTC)
