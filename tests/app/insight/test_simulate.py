"""Simulate and lint the schedules of an app."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.app.insight.doctor import diagnose
from mainspring.testing.conformance.helpers import settle, start, succeed
from tests.app.kit import EVERYWHERE, LOCAL, MakeApp

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def report() -> None: ...


def clean() -> None: ...


def test_the_schedules_of_the_code_are_simulated_without_a_store(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/absent.db")
    app.schedule("0 3 * * *")(report)
    found = app.simulate(days=7, since=NOW)
    assert [(job.fires, job.words) for job in found.jobs] == [(7, "every day at 03:00, UTC")]
    assert list(tmp_path.iterdir()) == []


@EVERYWHERE
def test_jobs_of_the_store_are_taken_into_account(app: Mainspring) -> None:
    app.schedule("0 3 * * *", id="report")(report)
    app.schedule("0 4 * * *", id="clean")(clean)
    app.reconcile()
    app.pause_job("clean")
    app.add_job(report, "interval", minutes=10, id="by hand")
    for number in range(3):
        run = start(app.store, f"r{number}", job_id="by hand")
        assert settle(app.store, succeed(app.store, run))
    found = app.simulate(days=1)
    assert {job.job_id: job.state for job in found.jobs} == {"by hand": "fires", "clean": "paused", "report": "fires"}
    assert found.jobs[0].usual_seconds is not None
    slow = app.simulate(days=1, durations={"by hand": 900})
    assert [overlap.job_id for overlap in slow.overlaps] == ["by hand"]


@LOCAL
def test_the_time_to_simulate_is_bounded(app: Mainspring) -> None:
    for days in (0, -1, 10_000):
        with pytest.raises(ValueError, match="days must be more than 0"):
            app.simulate(days)


# -- the linter ----------------------------------------------------------------------------------------------------


@LOCAL
def test_a_schedule_that_can_never_fire_is_refused_where_it_is_declared(app: Mainspring) -> None:
    with pytest.raises(ValueError, match="can never fire"):
        app.schedule("0 0 30 2 *")(report)
    assert app.jobs.declared == 0


@LOCAL
def test_a_time_that_a_clock_change_touches_is_told_once(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    app.schedule("30 2 * * *", timezone="Europe/Berlin", id="nightly")(report)
    app.reconcile()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    told = [text for text in warnings if "nightly" in text]
    assert len([text for text in told if "comes twice that day" in text]) == 1
    assert len([text for text in told if "does not exist that day" in text]) == 1
    assert all("choose a time that every day has once" in text for text in told)


@LOCAL
def test_a_schedule_without_a_mistake_is_told_nothing(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    app.schedule("30 2 * * *")(report)
    app.schedule("interval", minutes=5)(clean)
    assert caplog.records == []


@LOCAL
def test_the_doctor_names_what_looks_like_a_mistake(app: Mainspring) -> None:
    app.add_job(report, "cron", hour=2, minute=30, timezone="Europe/Berlin", id="nightly")
    app.add_job(clean, "interval", seconds=1, id="short")
    for number in range(3):
        run = start(app.store, f"r{number}", job_id="short")
        app.store.shift_clock(2)
        [ended] = [app.store.get_runs([run.id])[0]]
        assert ended is not None
        outcome = succeed(app.store, ended)
        assert settle(app.store, outcome)
    for number in range(10):
        app.add_job(clean, "cron", hour=5, id=f"crowd-{number}")
    texts = [finding.text for finding in diagnose(app).findings if finding.subject == "schedules"]
    assert any(text.startswith("the job 'nightly': on ") and "comes twice" in text for text in texts)
    assert any("10 jobs fire at the same instant" in text for text in texts)
