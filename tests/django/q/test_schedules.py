"""Schedule rows and their jobs: written together, fired together, compared now and then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from mainspring.core.instants import from_us, to_us
from mainspring.core.plan import Place, firing, plan
from mainspring.django.app import app
from mainspring.django.models import Schedule, Task
from mainspring.django.schedules.jobs import job_id_of, read_args, read_kwargs
from mainspring.django.schedules.writing import compare
from mainspring.django.tasks import schedule
from mainspring.django.testing import run_queue

BERLIN = ZoneInfo("Europe/Berlin")
SHOP = "tests.django.project.shop.tasks"

pytestmark = pytest.mark.usefixtures("project")


def job_of(row: Any) -> Any:
    return app.store.lookup_job(job_id_of(row.pk))


def fire(now: datetime | None = None) -> int:
    """Fire what is due, as a scheduler does it; return how many jobs fired."""
    if now is not None:
        app.store.shift_clock((to_us(now) - app.store.beat()) / 1_000_000)
    page = app.store.due(100, 0.0)
    steps = [firing(due, plan(due, page.now), Place(due.job.queue), page.now) for due in page.jobs]
    return sum(answer is not None for answer in app.store.fire(steps, 15.0))


def in_a_year() -> datetime:
    now: datetime = timezone.now()
    return now.replace(microsecond=0) + timedelta(days=365)


def test_a_row_and_its_job_are_written_and_deleted_together() -> None:
    row = schedule(f"{SHOP}.double", 4, name="four", schedule_type="D", next_run=in_a_year())
    assert from_us(job_of(row).at) == row.next_run
    assert (job_of(row).call.func, job_of(row).call.args) == (f"{SHOP}:double", (4,))
    row.next_run += timedelta(days=1)
    row.args = "5"
    row.save()
    assert from_us(job_of(row).at) == row.next_run
    assert job_of(row).call.args == (5,)
    pk = row.pk
    row.delete()
    assert app.store.lookup_job(job_id_of(pk)) is None


def test_a_transaction_that_fails_leaves_neither_row_nor_job() -> None:
    def make_and_fail() -> None:
        with transaction.atomic():
            schedule(f"{SHOP}.double", 4, name="gone", next_run=in_a_year())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        make_and_fail()
    assert not Schedule.objects.exists()
    assert not app.jobs()


def test_update_and_bulk_create_write_jobs() -> None:
    made = Schedule.objects.bulk_create(
        [Schedule(func=f"{SHOP}.double", args=str(n), schedule_type="H", next_run=in_a_year()) for n in range(3)]
    )
    assert [job_of(row).call.args for row in made] == [(0,), (1,), (2,)]
    later = in_a_year() + timedelta(days=2)
    assert Schedule.objects.filter(args="1").update(next_run=later, cluster="reports") == 1
    assert (from_us(job_of(made[1]).at), job_of(made[1]).queue) == (later, "reports")
    Schedule.objects.filter(args="2").update(next_run=None)
    assert job_of(made[2]) is None
    Schedule.objects.all().delete()
    assert not app.jobs()


def test_a_fire_writes_the_row_in_its_own_step() -> None:
    begin = timezone.now().replace(microsecond=0) - timedelta(seconds=1)
    row = schedule(f"{SHOP}.double", 4, schedule_type="H", repeats=2, next_run=begin)
    assert fire() == 1
    row.refresh_from_db()
    assert (row.next_run, row.repeats) == (begin + timedelta(hours=1), 1)
    assert from_us(job_of(row).at) == row.next_run
    assert run_queue() == 1
    assert Task.objects.get(pk=row.task).result == 8
    assert row.success() is True
    assert fire(row.next_run) == 1
    row.refresh_from_db()
    assert row.repeats == 0
    assert job_of(row) is None


def test_a_schedule_for_once_is_deleted_when_it_has_fired() -> None:
    row = schedule(f"{SHOP}.double", 4, next_run=timezone.now())
    kept = schedule(f"{SHOP}.double", 5, next_run=timezone.now(), repeats=1)
    assert fire() == 2
    assert not Schedule.objects.filter(pk=row.pk).exists()
    kept.refresh_from_db()
    assert kept.repeats == 0
    assert run_queue() == 2


def test_months_keep_their_day_and_days_their_hour() -> None:
    first = datetime(2027, 1, 31, 9, tzinfo=BERLIN)
    monthly = schedule(f"{SHOP}.double", 1, schedule_type="M", next_run=first)
    daily = schedule(f"{SHOP}.double", 2, schedule_type="D", next_run=datetime(2027, 3, 27, 9, tzinfo=BERLIN))
    seen = []
    for _ in range(3):
        monthly.refresh_from_db()
        seen.append(monthly.next_run.astimezone(BERLIN))
        monthly.save()  # which must not make the day of this month that of all others
        fire(monthly.next_run)
    assert [(day.month, day.day, day.hour) for day in seen] == [(1, 31, 9), (2, 28, 9), (3, 31, 9)]
    daily.refresh_from_db()
    assert daily.next_run.astimezone(BERLIN).hour == 9  # behind the change to summer time on 28 March
    assert daily.next_run == datetime(2027, 4, 1, 7, tzinfo=UTC)


def test_rows_that_were_written_past_the_model_are_found() -> None:
    row = schedule(f"{SHOP}.double", 4, schedule_type="D", next_run=in_a_year())
    lost = schedule(f"{SHOP}.double", 5, schedule_type="D", next_run=in_a_year())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mainspring_schedule SET args = '7' WHERE id = %s", [row.pk])
        cursor.execute("DELETE FROM mainspring_schedule WHERE id = %s", [lost.pk])
    assert compare(app, Schedule) == 2
    assert job_of(row).call.args == (7,)
    assert len(app.jobs()) == 1
    assert compare(app, Schedule) == 0


def test_what_people_do_to_the_job_is_in_the_row() -> None:
    row = schedule(f"{SHOP}.double", 4, schedule_type="D", next_run=in_a_year())
    app.skip_next(job_id_of(row.pk))
    skipped, row = row.next_run, Schedule.objects.get(pk=row.pk)
    assert row.next_run == skipped + timedelta(days=1)
    app.pause_job(job_id_of(row.pk))
    row.refresh_from_db()
    assert row.next_run is None
    assert app.reconcile(remove=True).gone == []


def test_a_function_that_only_workers_have_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    row = schedule("only.in.workers", schedule_type="D", next_run=in_a_year())
    assert job_of(row).call.func == "only.in:workers"
    assert "only.in.workers" in caplog.text


def test_mistakes_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValidationError, match="cron"):
        schedule(f"{SHOP}.double", 4, schedule_type="C", cron="61 * * * *")
    with pytest.raises(ValidationError, match="Cron needs"):
        schedule(f"{SHOP}.double", 4, schedule_type="C")
    with pytest.raises(TypeError, match="literals"):
        schedule(f"{SHOP}.double", object())
    schedule(f"{SHOP}.double", 4, name="one", next_run=in_a_year())
    with pytest.raises(IntegrityError, match="one"):
        schedule(f"{SHOP}.double", 4, name="one")
    assert Schedule.objects.count() == 1


def test_a_cron_schedule_begins_at_its_next_time() -> None:
    row = schedule(f"{SHOP}.double", 4, schedule_type="C", cron="30 3 * * *")
    at = row.next_run.astimezone(BERLIN)
    assert (at.hour, at.minute) == (3, 30)
    assert timezone.now() < at <= timezone.now() + timedelta(days=1, hours=1)


def test_arguments_are_literals() -> None:
    assert read_args(None) == read_args(" ") == ()
    assert read_args("1, 'a'") == read_args("(1, 'a')") == (1, "a")
    assert read_args("[1]") == ([1],)
    assert read_kwargs("x=1, y='b'") == read_kwargs("{'x': 1, 'y': 'b'}") == {"x": 1, "y": "b"}
    for read, text in ((read_args, "open('/etc/passwd')"), (read_kwargs, "x=__import__('os')"), (read_kwargs, "5")):
        with pytest.raises(ValueError, match="arguments"):
            read(text)
