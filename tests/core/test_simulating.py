"""What schedules would do, before they do it; and what looks like a mistake in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.core.schedules.clock_changes import changes_between
from mainspring.core.schedules.linting import check_possible, issues_of, issues_together
from mainspring.core.schedules.simulating import Simulation, simulate
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger

BERLIN = ZoneInfo("Europe/Berlin")
MAY = to_us(datetime(2026, 5, 4, tzinfo=UTC))
DAY = 86_400 * SECOND


def job(id: str, trigger: BaseTrigger, **fields: Any) -> Job:
    return Job(id, Call("m:f"), trigger, executor="queue", **fields)


def cron(expression: str, zone: Any = UTC) -> CronTrigger:
    return CronTrigger.from_crontab(expression, zone)


def look(*jobs: Job, since: int = MAY, days: float = 30, **options: Any) -> Simulation:
    return simulate(jobs, since, since + int(days * DAY), UTC, options.pop("usual", {}), **options)


def test_fires_are_counted_by_job_with_the_first_and_the_last() -> None:
    found = look(job("nightly", cron("0 3 * * *")), job("weekly", cron("0 3 * * mon")))
    assert [(each.job_id, each.fires, each.state) for each in found.jobs] == [
        ("nightly", 30, "fires"),
        ("weekly", 5, "fires"),
    ]
    assert found.fires == 35
    assert found.jobs[0].first == datetime(2026, 5, 4, 3, tzinfo=UTC)
    assert found.jobs[0].last == datetime(2026, 6, 2, 3, tzinfo=UTC)


def test_very_many_fires_are_counted_though_not_all_are_placed() -> None:
    every_second = IntervalTrigger(seconds=1, start_date=datetime(2026, 1, 1, tzinfo=UTC), timezone="UTC")
    [found] = look(job("ping", every_second)).jobs
    assert (found.fires, found.placed) == (30 * 86_400, 50_000)
    assert found.last == datetime(2026, 6, 2, 23, 59, 59, tzinfo=UTC)


def test_paused_later_and_finished_jobs_are_told_apart() -> None:
    found = look(
        job("paused", cron("0 3 * * *")),
        job("leap", cron("0 0 29 2 *")),
        job("past", DateTrigger(datetime(2020, 1, 1, tzinfo=UTC))),
        paused=frozenset(["paused"]),
    )
    assert {each.job_id: each.state for each in found.jobs} == {"leap": "later", "past": "never", "paused": "paused"}
    assert found.never == ("past",)


def test_a_job_that_takes_longer_than_its_interval_overlaps() -> None:
    every = IntervalTrigger(minutes=10, start_date=datetime(2026, 5, 4, tzinfo=UTC), timezone="UTC")
    found = look(job("slow", every), job("quick", cron("0 3 * * *")), days=1, usual={"slow": 900.0, "quick": 60.0})
    [overlap] = found.overlaps
    assert (overlap.job_id, overlap.started, overlap.missed) == ("slow", 0, 72)
    assert overlap.first == datetime(2026, 5, 4, 0, 10, tzinfo=UTC)
    assert found.most_at_once == 2  # the slow one, and the quick one at three o'clock
    twice = look(job("slow", every, max_instances=2), days=1, usual={"slow": 900.0})
    assert [(each.started, each.missed) for each in twice.overlaps] == [(143, 0)]
    assert twice.most_at_once == 2


def test_the_busiest_minutes_name_their_jobs() -> None:
    found = look(*(job(f"j{n}", cron("0 3 * * *")) for n in range(3)), job("other", cron("30 * * * *")), days=1)
    [busiest] = found.busiest
    assert (busiest.at, busiest.fires, busiest.job_ids) == (datetime(2026, 5, 4, 3, tzinfo=UTC), 3, ("j0", "j1", "j2"))


def test_one_job_alone_makes_no_minute_busy() -> None:
    every = IntervalTrigger(seconds=3, start_date=datetime(2026, 5, 4, tzinfo=UTC), timezone="UTC")
    assert look(job("ping", every), days=1).busiest == ()


def test_clock_changes_are_named_where_they_touch_a_fire() -> None:
    march = to_us(datetime(2027, 3, 27, 12, tzinfo=UTC))
    found = look(
        job("nightly", cron("30 2 * * *", BERLIN)), job("noon", cron("0 12 * * *", BERLIN)), since=march, days=3
    )
    [gap] = found.oddities
    assert (gap.job_id, gap.kind) == ("nightly", "gap")
    assert gap.text.startswith("02:30 does not exist that day")
    october = to_us(datetime(2026, 10, 24, 12, tzinfo=UTC))
    found = look(
        job("nightly", cron("30 2 * * *", BERLIN)), job("often", cron("*/30 * * * *", BERLIN)), since=october, days=1
    )
    assert [(each.job_id, each.kind) for each in found.oddities if each.job_id == "nightly"] == [("nightly", "once")]
    assert {each.kind for each in found.oddities if each.job_id == "often"} == {"twice"}


def test_the_changes_of_a_clock_are_found() -> None:
    since, until = to_us(datetime(2026, 1, 1, tzinfo=UTC)), to_us(datetime(2027, 1, 1, tzinfo=UTC))
    assert list(changes_between(BERLIN, since, until)) == [
        to_us(datetime(2026, 3, 29, 1, tzinfo=UTC)),
        to_us(datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ]
    assert list(changes_between(UTC, since, until)) == []


# -- the linter ----------------------------------------------------------------------------------------------------


def kinds(trigger: BaseTrigger, usual: float | None = None) -> list[str]:
    return [issue.kind for issue in issues_of(job("j", trigger), MAY, usual)]


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 feb,apr,jun *"])
def test_a_date_that_no_year_has_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="this schedule can never fire"):
        check_possible(cron(expression))


def test_a_date_that_some_years_have_is_not_refused() -> None:
    check_possible(cron("0 0 29 2 *"))
    check_possible(CronTrigger(year=2020, timezone="UTC"))
    assert kinds(CronTrigger(year=2020, timezone="UTC")) == ["over"]


def test_a_time_in_a_gap_or_a_fold_is_named_once_each() -> None:
    assert kinds(cron("30 2 * * *", BERLIN)) == ["twice", "gap"]
    assert kinds(cron("30 4 * * *", BERLIN)) == []
    assert kinds(cron("30 2 * * *", UTC)) == []
    assert kinds(cron("*/30 * * * *", BERLIN)) == []
    first = issues_of(job("j", cron("30 2 * * *", BERLIN)), MAY)[0]
    assert first.text == "on 2026-10-25 (Europe/Berlin) 02:30 comes twice that day, and it fires the first time only"


def test_an_interval_shorter_than_the_usual_run_is_named() -> None:
    every = IntervalTrigger(minutes=5, timezone="UTC")
    [issue] = issues_of(job("j", every), MAY, 420.0)
    assert (
        issue.text
        == "it fires every 5 min 0 s, and its runs usually take 7 min 0 s: fires are missed, since max_instances is 1"
    )
    assert kinds(every, 200.0) == kinds(every) == []


def test_a_trigger_of_the_users_own_that_fails_is_left_to_whoever_fires_it() -> None:
    class Failing(BaseTrigger):
        def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
            raise RuntimeError("no calendar")

    assert kinds(Failing()) == []


def test_many_jobs_at_the_same_instant_are_named() -> None:
    jobs = [job(f"j{n:02}", cron("0 3 * * *"), at=MAY + 3 * 3600 * SECOND) for n in range(12)]
    [issue] = issues_together(jobs, MAY, UTC)
    assert issue.text == "12 jobs fire at the same instant, Mon 03:00:00 UTC: 'j00', 'j01', 'j02', ..."
    assert not list(issues_together(jobs[:9], MAY, UTC))


def overlapping(overlap: str, **fields: Any) -> Any:
    every_ten = cron("*/10 * * * *")
    [found] = look(job("slow", every_ten, overlap=overlap, **fields), days=1, usual={"slow": 1500.0}).overlaps
    return found


def test_fires_that_overlap_are_missed_wait_or_cancel_the_others() -> None:
    skipped = overlapping("skip")
    assert (skipped.missed, skipped.waited, skipped.cancelled) == (96, 0, 0)
    queued = overlapping("queue", coalesce=False)
    assert (queued.missed, queued.cancelled) == (0, 0)
    assert queued.waited == 143
    assert overlapping("queue").waited > 0
    cancelled = overlapping("cancel_other")
    assert (cancelled.missed, cancelled.waited, cancelled.cancelled) == (0, 0, 143)


def test_the_linter_says_what_the_overlap_does_with_a_short_interval() -> None:
    for overlap, words in (("skip", "are missed"), ("queue", "wait ever longer"), ("cancel_other", "cancel the runs")):
        [issue] = issues_of(job("slow", cron("*/10 * * * *"), overlap=overlap), MAY, 1500.0)
        assert words in issue.text
