"""Jobs that do not fire at excluded times: declared, stored, changed, compared, exported and run."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.triggers.excluding import ExcludingTrigger
from tests.app.kit import EVERYWHERE, LOCAL, MakeApp

EVENT = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:{}\nEND:VEVENT\nEND:VCALENDAR\n"


def report() -> None: ...


@EVERYWHERE
def test_a_declared_schedule_is_stored_with_what_it_excludes(app: Mainspring) -> None:
    options = {"exclude": ["weekends", "12-25", date(2031, 5, 1)], "timezone": "Europe/Berlin"}
    app.schedule("0 9 * * *", id="daily", **options)(report)
    app.reconcile()
    job = app.get_job("daily")
    assert isinstance(job.trigger, ExcludingTrigger)
    assert job.trigger.exclude.texts() == ["sat,sun", "12-25", "2031-05-01"]
    assert all(moment.weekday() < 5 for moment in app.preview("daily", 300))
    assert app.differences() == []
    assert app.reconcile().unchanged == ["daily"]


@LOCAL
def test_exclusions_that_were_changed_by_hand_are_told_and_adopted(app: Mainspring) -> None:
    app.schedule("0 9 * * *", id="daily", exclude="weekends", timezone="UTC")(report)
    app.reconcile()
    app.modify_job("daily", exclude=["sun"])
    [difference] = app.differences()
    assert (difference.code.describe(), difference.store.describe()) == (
        "every day at 09:00, UTC, except weekends", "every day at 09:00, UTC, except Sundays",
    )  # fmt: skip
    assert app.adopt("daily").trigger.describe() == "every day at 09:00, UTC, except weekends"
    assert app.modify_job("daily", exclude=None).trigger.describe() == "every day at 09:00, UTC"


def test_a_changed_calendar_file_is_a_changed_declaration(make_app: MakeApp, tmp_path: Path) -> None:
    calendar, url = tmp_path / "holidays.ics", f"sqlite:///{tmp_path}/jobs.db"

    def deploy(day: str) -> tuple[list[str], str]:
        calendar.write_text(EVENT.format(day))
        app = make_app(url)
        app.schedule("0 9 * * *", id="daily", exclude=calendar)(report)
        done = app.reconcile()
        app.close()
        return done.updated, app.get_job("daily").trigger.describe()

    assert deploy("20311224") == ([], "every day at 09:00, UTC, except 2031-12-24")
    assert deploy("20311224") == ([], "every day at 09:00, UTC, except 2031-12-24")
    assert deploy("20311231") == (["daily"], "every day at 09:00, UTC, except 2031-12-31")


@LOCAL
def test_a_job_all_of_whose_times_are_excluded_is_refused_where_it_is_written(app: Mainspring) -> None:
    with pytest.raises(ValueError, match="all its times are excluded"):
        app.schedule("30 12 * * *", id="lunch", exclude="12:00-13:00")(report)
    with pytest.raises(ValueError, match="all its times are excluded"):
        app.add_job(report, "cron", day_of_week="sat", exclude="weekends")
    with pytest.raises(TypeError, match=r"no argument 'exlude'.*'exclude'|'exlude' is not an argument.*'exclude'"):
        app.add_job(report, "0 9 * * *", exlude="weekends")


@LOCAL
def test_changed_exclusions_give_the_next_time_anew_and_a_paused_job_stays_paused(app: Mainspring) -> None:
    job = app.add_job(report, "cron", hour=9, id="daily", timezone="UTC")
    assert job.next_run_time is not None
    soon = job.next_run_time.date()
    assert app.modify_job("daily", exclude=soon).next_run_time.date() > soon  # type: ignore[union-attr]
    app.pause_job("daily")
    assert app.modify_job("daily", exclude="weekends").next_run_time is None


@LOCAL
def test_a_backfill_leaves_out_what_is_excluded(app: Mainspring) -> None:
    app.add_job(report, "cron", hour=9, id="daily", timezone="UTC", exclude="weekends")
    done = app.backfill("daily", datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 12, tzinfo=UTC), trial=True)
    assert [moment.day for moment in done.fires] == [1, 4, 5, 6, 7, 8, 11]


def test_apschedulers_schedulers_take_exclude_too_and_export_it() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(report, "cron", hour=9, id="daily", exclude=["weekends", "12-25"])
    scheduler.add_job(report, "interval", hours=1, id="hourly")
    scheduler.start(paused=True)
    try:
        scheduler.reschedule_job("hourly", trigger="interval", hours=2, exclude="22:00-06:00")
        out = io.StringIO()
        scheduler.export_jobs(out)
        [exported] = [job for job in json.loads(out.getvalue())["jobs"] if job["id"] == "daily"]
        assert exported["trigger"]["exclude"] == {"weekly": [[432_000, 604_800]], "yearly": ["12-25"]}
        before = {job.id: job.trigger for job in scheduler.get_jobs()}
        scheduler.remove_all_jobs()
        scheduler.import_jobs(io.StringIO(out.getvalue()))
        assert {job.id: job.trigger for job in scheduler.get_jobs()} == before
    finally:
        scheduler.shutdown()
