"""django-q's signals, verbs and defaults in a project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from mainspring.django import signals
from mainspring.django.app import app
from mainspring.django.models import Success, Task
from mainspring.django.tasks import AsyncTask, async_task, fetch, fetch_group, queue_size, result, result_group
from mainspring.django.testing import run_queue
from tests.django.project.shop.tasks import double, fail

SHOP = "tests.django.project.shop.tasks"

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def seen() -> Iterator[list[tuple[str, Any]]]:
    found: list[tuple[str, Any]] = []
    receivers = []
    for name in signals.__all__:

        def receive(sender: Any, signal: Any, name: str = name, **named: Any) -> None:
            assert sender == "django_q"
            found.append((name, named))

        getattr(signals, name).connect(receive)
        receivers.append((getattr(signals, name), receive))
    yield found
    for signal, receive in receivers:
        signal.disconnect(receive)


def test_each_signal_is_sent_with_what_django_q_gives(seen: list[tuple[str, Any]]) -> None:
    task_id = async_task(double, 4, task_name="four", group="g")
    run_queue()
    assert [name for name, _ in seen] == ["pre_enqueue", "pre_execute", "post_execute_in_worker", "post_execute"]
    for _, named in seen:
        task = named["task"]
        assert (task["id"], task["name"], task["args"], task["group"]) == (task_id, "four", (4,), "g")
    assert [named["task"]["result"] for _, named in seen] == [None, None, 8, 8]
    assert seen[1][1]["func"](5) == 10


def test_a_failure_is_told_as_text(seen: list[tuple[str, Any]]) -> None:
    async_task(fail)
    run_queue()
    task = seen[-1][1]["task"]
    assert task["success"] is False
    assert "the shop is closed" in task["result"]


def test_results_are_found_by_id_name_and_group() -> None:
    ids = [async_task(double, number, task_name=f"n{number}", group="g") for number in range(3)]
    assert (queue_size(), fetch(ids[0]), result(ids[0])) == (3, None, None)
    run_queue()
    found = fetch(ids[1])
    assert isinstance(found, Task)
    assert (found.result, found.success, found.func, found.name) == (2, True, f"{SHOP}:double", "n1")
    assert fetch("n2").pk == ids[2]
    assert sorted(result_group("g")) == [0, 2, 4]
    assert {type(task) for task in fetch_group("g")} == {Task}
    made = AsyncTask(double, 5)
    made.run()
    run_queue()
    assert made.result() == 10


def test_the_settings_are_the_defaults_of_calls() -> None:
    with override_settings(Q_CLUSTER={"name": "x", "timeout": 7, "max_attempts": 3, "retry": 5, "orm": "default"}):
        run = app.get(async_task("math.sqrt", 4)).record
        assert (run.policy.timeout, run.policy.retries, run.policy.backoff) == (7, 2, (5,))
        assert app.get(async_task("math.sqrt", 4, timeout=9)).record.policy.timeout == 9
    assert app.get(async_task("math.sqrt", 4)).record.policy.timeout is None


def test_successes_are_not_kept_if_the_settings_say_so() -> None:
    with override_settings(Q_CLUSTER={"name": "x", "save_limit": -1, "orm": "default"}):
        async_task("math.sqrt", 4)
        async_task("math.sqrt", -1)
        run_queue()
        app.store.shift_clock(10)
        app.store.prune()
        assert not Success.objects.exists()
        assert Task.objects.count() == 1


def test_a_limit_keeps_the_newest_successes() -> None:
    with override_settings(Q_CLUSTER={"name": "x", "save_limit": 2, "orm": "default"}):
        ids = [async_task(double, number) for number in range(5)]
        run_queue()
        assert Success.objects.count() == 5
        app.store.prune()  # as the janitor of each worker does
        assert [fetch(run_id) is not None for run_id in ids] == [False, False, False, True, True]


def test_a_call_that_is_executed_at_once_raises_what_its_function_raises() -> None:
    with pytest.raises(ValueError, match="the shop is closed"):
        async_task(f"{SHOP}.fail", sync=True)
    with pytest.raises(ValueError, match="the shop is closed"):
        async_task(fail, q_options={"sync": True})
    assert result(async_task(double, 4, sync=True)) == 8
