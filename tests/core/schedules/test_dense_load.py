"""The load of jobs that fire very often is estimated, not counted fire by fire."""

from __future__ import annotations

from datetime import UTC

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.core.schedules import upcoming
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger

HOUR = 3600 * SECOND
START = 1_790_000_000 * SECOND // HOUR * HOUR


def job(trigger: object) -> Job:
    made = Job(id="j", call=Call("shop:tick"), trigger=trigger)  # type: ignore[arg-type]
    made.at = made.nominal = START
    return made


@pytest.mark.parametrize(
    ("trigger", "in_a_step"),
    [
        (IntervalTrigger(seconds=1, start_date="2020-01-01", timezone="UTC"), 900),
        (IntervalTrigger(seconds=7, start_date="2020-01-01", timezone="UTC"), 128),
        (CronTrigger(second="*/5", timezone="UTC"), 180),
        (IntervalTrigger(minutes=1, start_date="2020-01-01", timezone="UTC"), 15),
    ],
)
def test_a_dense_job_is_estimated_well(trigger: object, in_a_step: int) -> None:
    steps = upcoming.expected_load([job(trigger)], {"j": 0.5}, START, START + 24 * HOUR, HOUR // 4, UTC)
    assert len(steps) == 96
    for step in steps[:-1]:
        assert abs(step.fires - in_a_step) <= max(1, in_a_step // 50)
        assert step.busy == pytest.approx(step.fires * 0.5 / 900, rel=0.1)


def test_a_job_that_fires_every_second_costs_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = IntervalTrigger(seconds=1, start_date="2020-01-01", timezone="UTC")
    asked: list[int] = []
    one = job(trigger)
    whole = type(trigger).next_fire

    def count(self: IntervalTrigger, previous: int | None, now: int) -> int | None:
        asked.append(1)
        return whole(self, previous, now)

    monkeypatch.setattr(type(trigger), "next_fire", count)
    upcoming.expected_load([one], {}, START, START + 24 * HOUR, HOUR // 4, UTC)
    assert len(asked) < 96 * 25
