"""A job that is changed or replaced after it came due: its overdue fires are kept, or recorded as missed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.core.showing.run_view import RunPage
from mainspring.events import EVENT_JOB_MISSED, JobEvent
from mainspring.jobstores.memory.store import MemoryJobStore
from mainspring.schedulers.background import BackgroundScheduler
from tests.app.kit import EVERYWHERE, KEY, LOCAL, MakeApp

PAST = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2090, 1, 1, tzinfo=UTC)
MONTHLY = {"trigger": "calendarinterval", "months": 1, "start_date": "2025-12-01", "timezone": "UTC"}
HOURLY = {"trigger": "interval", "hours": 1, "start_date": "2025-12-01", "timezone": "UTC"}


def work() -> None: ...


def add(app: Mainspring, options: dict[str, Any], **more: Any) -> Any:
    return app.add_job(work, id="it", replace_existing=True, **options, **more)


def missed(app: Mainspring) -> list[tuple[str | None, int, datetime | None]]:
    found = app.find(job="it", status="missed")
    return [(run.record.reason, run.record.count, run.fire_time) for run in found]


@EVERYWHERE
def test_a_job_replaced_by_another_schedule_records_the_fires_it_skips(app: Mainspring) -> None:
    add(app, MONTHLY, next_run_time=PAST)
    replaced = add(app, HOURLY)
    (record,) = missed(app)
    assert record[0] == "rescheduled"
    assert record[1] >= 1
    assert record[2] == PAST
    assert replaced.next_run_time > PAST
    assert app.get_job("it").next_run_time == replaced.next_run_time


@EVERYWHERE
def test_a_job_replaced_by_the_same_schedule_keeps_the_fire_that_is_due(app: Mainspring) -> None:
    add(app, MONTHLY, next_run_time=PAST)
    replaced = add(app, MONTHLY, args=[], name="new")
    assert (replaced.next_run_time, app.get_job("it").name, missed(app)) == (PAST, "new", [])


@LOCAL
def test_a_replaced_job_that_is_not_due_leaves_no_record(app: Mainspring) -> None:
    add(app, MONTHLY)
    add(app, HOURLY)
    assert (missed(app), app.get_job("it").trigger.alias) == ([], "interval")


CHANGES: dict[str, tuple[Callable[[Mainspring], Any], str]] = {
    "reschedule": (lambda app: app.reschedule_job("it", "interval", hours=1), "rescheduled"),
    "modify": (lambda app: app.modify_job("it", next_run_time=LATER), "rescheduled"),
    "replace with a time": (
        lambda app: add(app, MONTHLY, next_run_time=LATER),
        "rescheduled",
    ),
    "pause": (lambda app: app.pause_job("it"), "paused"),
}


@LOCAL
@pytest.mark.parametrize("change", list(CHANGES))
def test_each_verb_that_moves_an_overdue_job_records_what_it_skips(app: Mainspring, change: str) -> None:
    add(app, MONTHLY, next_run_time=PAST)
    verb, reason = CHANGES[change]
    verb(app)
    assert [(record[0], record[2]) for record in missed(app)] == [(reason, PAST)]


@LOCAL
def test_a_change_that_moves_nothing_leaves_the_overdue_fire(app: Mainspring) -> None:
    add(app, MONTHLY, next_run_time=PAST)
    app.modify_job("it", name="other")
    assert (missed(app), app.get_job("it").next_run_time) == ([], PAST)


def test_a_declaration_with_another_schedule_records_the_fire_it_skips(make_app: MakeApp, tmp_path: Path) -> None:
    def declare(trigger: str) -> Mainspring:
        app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
        app.schedule(trigger, id="it")(work)
        return app

    before = declare("0 9 * * *")
    before.reconcile()
    before.modify_job("it", next_run_time=PAST)
    after = declare("0 10 * * *")
    assert after.reconcile().updated == ["it"]
    assert [record[0] for record in missed(after)] == ["rescheduled"]


def test_a_scheduler_that_starts_with_another_schedule_records_and_tells_the_fire_it_skips() -> None:
    store, heard = MemoryJobStore(), list[JobEvent]()

    def start(trigger: dict[str, Any], **options: Any) -> RunPage:
        scheduler = BackgroundScheduler(jobstores={"default": store}, timezone="UTC")
        scheduler.add_listener(heard.append, EVENT_JOB_MISSED)
        scheduler.add_job(work, id="it", replace_existing=True, **trigger, **options)
        scheduler.start(paused=True)
        found = scheduler.get_runs("it")
        scheduler.shutdown()
        return found

    assert start(MONTHLY, next_run_time=PAST) == []
    (record,) = start(HOURLY)
    assert (record.status, record.reason) == (Status.MISSED, "rescheduled")
    assert [(event.code, event.job_id, event.run_id, event.reason) for event in heard] == [
        (EVENT_JOB_MISSED, "it", record.id, "rescheduled")
    ]
