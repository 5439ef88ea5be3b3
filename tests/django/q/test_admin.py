"""The admin's pages by Django's test client: what they show, what their actions do, and who may use them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import display_for_value
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from mainspring.django.app import app
from mainspring.django.models import Failure, OrmQ, Schedule, Success
from mainspring.django.tasks import async_task, schedule
from mainspring.django.testing import run_queue
from tests.django.project.shop.tasks import double, fail

SHOP = "tests.django.project.shop.tasks"
PAGES = ("schedule", "ormq", "success", "failure")

pytestmark = pytest.mark.usefixtures("project")


def page_of(name: str, *args: Any) -> str:
    return str(reverse(f"admin:mainspring_{name}_{'change' if args else 'changelist'}", args=args))


def act(client: Client, page: str, action: str, *pks: Any) -> Any:
    data = {"action": action, "_selected_action": [str(pk) for pk in pks]}
    return client.post(page_of(page), data, follow=True)


@pytest.fixture
def boss(project: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def history(project: None) -> None:
    """Thirty successes, a failure, a waiting run and two schedules, one of which has run."""
    for number in range(30):
        async_task(double, number, group=f"g{number % 3}", task_name=f"double {number}")
    async_task(fail, task_name="closed")
    schedule(f"{SHOP}.double", 1, name="hourly", schedule_type="H", next_run=timezone.now() + timedelta(hours=1))
    row = schedule(f"{SHOP}.double", 2, name="daily", schedule_type="D", next_run=timezone.now() + timedelta(days=1))
    app.run_now(f"schedule:{row.pk}")
    assert run_queue() == 32
    async_task(double, 99, task_name="waiting")


@pytest.mark.usefixtures("history")
def test_a_schedule_links_to_its_last_run() -> None:
    row = Schedule.objects.get(name="daily")
    assert page_of("success", row.task) in str(row.last_run())
    assert Schedule.objects.get(name="hourly").last_run() is None


@pytest.mark.usefixtures("history")
def test_each_page_asks_few_questions(boss: Client) -> None:
    for name in PAGES:
        with CaptureQueriesContext(connection) as asked:
            answer = boss.get(page_of(name))
        assert answer.status_code == 200
        assert len(asked) <= 12, [query["sql"][:150] for query in asked]


@pytest.mark.usefixtures("history")
def test_runs_are_found_by_name_function_and_group(boss: Client) -> None:
    for query, number in (
        ("q=double+29", 1),
        ("q=g1", 10),
        ("q=shop.tasks", 31),
        ("cluster=default", 31),
        ("o=-5", 31),
    ):
        answer = boss.get(f"{page_of('success')}?{query}")
        assert answer.context["cl"].result_count == number, query


@pytest.mark.usefixtures("history")
def test_a_run_is_shown_with_its_arguments_result_and_errors(boss: Client) -> None:
    success = boss.get(page_of("success", Success.objects.get(name="double 7").pk)).content.decode()
    assert "shop.tasks:double" in success
    assert "14" in success
    failure = boss.get(page_of("failure", Failure.objects.get().pk)).content.decode()
    assert "ValueError: the shop is closed" in failure
    assert failure.count("Traceback") == 1  # in the errors, not in the result, too
    started = display_for_value(Failure.objects.get().started, "-")
    assert f'<div class="readonly">{started}</div>' in failure
    assert '<div class="readonly">None</div>' not in failure


@pytest.mark.usefixtures("history")
def test_a_failure_is_resubmitted_as_the_same_run(boss: Client) -> None:
    run = Failure.objects.get()
    assert "1 sent back" in act(boss, "failure", "resubmit_task", run.pk).content.decode()
    assert OrmQ.objects.filter(pk=run.pk).exists()
    assert not Failure.objects.exists()


@pytest.mark.usefixtures("history")
def test_a_success_is_resubmitted_as_a_new_run_and_deleted(boss: Client) -> None:
    run = Success.objects.get(name="double 7")
    act(boss, "success", "resubmit_task", run.pk)
    assert OrmQ.objects.filter(name="double 7").exists()
    boss.post(page_of("success"), {"action": "delete_selected", "_selected_action": [run.pk], "post": "yes"})
    assert not Success.objects.filter(pk=run.pk).exists()


@pytest.mark.usefixtures("history")
def test_a_waiting_run_is_moved_to_the_front_and_cancelled(boss: Client) -> None:
    run = OrmQ.objects.get(name="waiting")
    act(boss, "ormq", "move_to_front", run.pk)
    assert OrmQ.objects.get(pk=run.pk).priority == 100
    act(boss, "ormq", "cancel", run.pk)
    assert Failure.objects.get(pk=run.pk).status == "cancelled"
    assert [entry.by for entry in app.audit(kind="run", target=run.pk)] == ["boss", "boss"]


@pytest.mark.usefixtures("history")
def test_schedules_run_now_pause_resume_and_skip(boss: Client) -> None:
    row = Schedule.objects.get(name="hourly")
    first = row.next_run
    act(boss, "schedule", "skip_next", row.pk)
    assert Schedule.objects.get(pk=row.pk).next_run == first + timedelta(hours=1)
    act(boss, "schedule", "pause", row.pk)
    assert Schedule.objects.get(pk=row.pk).next_run is None
    act(boss, "schedule", "resume", row.pk)
    assert Schedule.objects.get(pk=row.pk).next_run is not None
    assert "1 started" in act(boss, "schedule", "run_now", row.pk).content.decode()
    row.refresh_from_db()
    assert OrmQ.objects.filter(pk=row.task).exists()


def test_the_form_of_a_schedule_checks_what_is_written(boss: Client) -> None:
    data = {"func": f"{SHOP}.double", "args": "4", "schedule_type": "C", "cron": "61 * * * *", "repeats": "-1"}
    data |= {"next_run_0": "2027-01-01", "next_run_1": "09:00:00"}
    wrong = boss.post(reverse("admin:mainspring_schedule_add"), data)
    assert "cron" in wrong.context["adminform"].form.errors
    assert not Schedule.objects.exists()
    done = boss.post(reverse("admin:mainspring_schedule_add"), {**data, "cron": "0 3 * * *"})
    assert done.status_code == 302
    assert app.store.lookup_job(f"schedule:{Schedule.objects.get().pk}") is not None


@pytest.mark.usefixtures("history")
def test_who_may_only_look_finds_no_actions() -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    rights = Permission.objects.filter(content_type__app_label="mainspring", codename__startswith="view_")
    looker.user_permissions.add(*rights)
    client = Client()
    client.force_login(looker)
    for name in PAGES:
        answer = client.get(page_of(name))
        assert answer.status_code == 200
        assert b'name="action"' not in answer.content
    act(client, "failure", "resubmit_task", Failure.objects.get().pk)
    assert Failure.objects.count() == 1


def test_a_run_that_was_tampered_with_is_set_aside_and_never_executed(boss: Client) -> None:
    good, bad = async_task(double, 1), async_task(double, 2, task_name="altered")
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM mainspring_runs WHERE id = %s", [good])
        cursor.execute("UPDATE mainspring_runs SET payload = %s WHERE id = %s", [*cursor.fetchone(), bad])
    assert run_queue() == 1
    assert [row.pk for row in Success.objects.all()] == [good]
    row = Failure.objects.get()
    assert (row.pk, row.status) == (bad, "broken")
    shown = boss.get(page_of("failure", bad)).content.decode()
    assert "signature" in shown
    act(boss, "failure", "restore", bad)
    assert OrmQ.objects.get().pk == bad
    assert run_queue() == 0
    assert Failure.objects.get().status == "broken"
