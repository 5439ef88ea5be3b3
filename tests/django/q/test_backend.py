"""Django's own tasks, stored and executed by mainspring."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from mainspring.django.app import app
from mainspring.django.backend import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from mainspring.django.tasks import async_task
from mainspring.django.testing import run_queue
from tests.django.project.shop.models import Order
from tests.django.project.shop.receipts import count_attempts, refresh, send, task, urgent, wait_for
from tests.django.project.shop.tasks import double

pytestmark = pytest.mark.usefixtures("project")


def test_a_task_is_executed_and_its_result_found_from_anywhere() -> None:
    order = Order.objects.create(text="tea")
    result = send.enqueue(order.pk)
    assert (result.status, result.args, result.backend) == (TaskResultStatus.READY, [order.pk], "default")
    assert run_queue() == 1
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, "sent tea", 1)
    assert send.get_result(result.id).return_value == "sent tea"
    assert result.enqueued_at <= result.started_at <= result.finished_at


def test_a_transaction_that_fails_takes_its_tasks_along() -> None:
    ids = []

    def enqueue_and_fail() -> None:
        with transaction.atomic():
            ids.append(send.enqueue(1).id)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        enqueue_and_fail()
    with pytest.raises(TaskResultDoesNotExist):
        send.get_result(ids[0])
    assert run_queue() == 0


def test_priority_queue_and_time_are_those_of_the_run() -> None:
    later = timezone.now() + timedelta(hours=1)
    run = app.get(urgent.using(run_after=later).enqueue().id).record
    assert (run.priority, run.queue, run.run_at) == (5, "mail", round(later.timestamp() * 1e6))
    assert app.get(urgent.using(priority=-100).enqueue().id).record.priority == -100
    assert run_queue() == 1


def test_a_coroutine_is_awaited() -> None:
    result = wait_for.enqueue(4)
    assert run_queue() == 1
    assert wait_for.get_result(result.id).return_value == 5
    assert asyncio.run(wait_for(4)) == 5  # outside of a worker it is an ordinary call


def test_async_code_enqueues_in_the_transaction_of_its_request() -> None:
    async def view() -> Any:
        return await send.aenqueue(1)

    found = async_to_sync(view)()
    assert app.get(found.id).status == "pending"


def test_a_failed_attempt_is_tried_again_and_its_error_kept() -> None:
    started: list[Any] = []
    finished: list[Any] = []
    for signal, seen in ((task_started, started), (task_finished, finished)):
        signal.connect(lambda task_result, seen=seen, **_: seen.append(task_result.status), weak=False)
    result = count_attempts.enqueue(2)
    run_queue()
    result.refresh()
    assert (result.return_value, result.attempts) == (2, 2)
    assert result.errors[0].exception_class is ValueError
    assert "attempt 1" in result.errors[0].traceback
    assert (len(started), finished) == (2, [TaskResultStatus.SUCCESSFUL])
    failed = count_attempts.using(retries=0).enqueue(2)
    run_queue()
    failed.refresh()
    assert failed.status == TaskResultStatus.FAILED
    with pytest.raises(ValueError, match="failed"):
        _ = failed.return_value


def test_options_of_ours_are_kept() -> None:
    first = refresh.enqueue()
    assert refresh.enqueue().id == first.id
    assert app.get(first.id).policy.timeout == 30
    with pytest.raises(InvalidTask, match="retries"):
        task(retries=-1)(double.func)


def test_a_call_that_does_not_fit_is_refused_where_it_is_made() -> None:
    seen: list[Any] = []
    task_enqueued.connect(lambda **named: seen.append(named), weak=False)
    with pytest.raises(TypeError, match="order_id"):
        send.enqueue()
    with pytest.raises(TypeError):
        send.enqueue(object())
    assert seen == []
    assert run_queue() == 0


def test_other_runs_are_no_results_of_tasks() -> None:
    with pytest.raises(TaskResultDoesNotExist):
        send.get_result(async_task(double, 1))
    with pytest.raises(TaskResultDoesNotExist):
        send.get_result("unknown")
