"""async_task, result and fetch."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring, events, tasks
from mainspring.errors import TaskNotFound
from mainspring.tasks import async_task, fetch, result
from tests.tasks import functions

SOON = 20_000
"""Milliseconds to wait for what comes at once."""


def taken(app: Mainspring, task_id: str) -> Any:
    """Return the record of a run that waits."""
    return app.get(task_id).record


@pytest.mark.parametrize("func", ["math.copysign", "math:copysign"])
def test_a_function_is_named_by_its_path(working: Mainspring, func: str) -> None:
    task_id = async_task(func, 2, -2)
    assert result(task_id, SOON) == -2.0


@pytest.mark.parametrize(
    "func", ["tests.tasks.functions.Shop.price", "tests.tasks.functions:Shop.price", functions.Shop.price]
)
def test_a_function_of_a_class_is_named_by_its_path(working: Mainspring, func: Any) -> None:
    assert result(async_task(func, "apple"), SOON) == 5


def test_a_task_is_called_by_its_own_name(working: Mainspring) -> None:
    working.task(name="shop.add")(functions.add)
    assert result(async_task("shop.add", 1, b=2), SOON) == 3


def test_a_name_that_leads_nowhere_is_an_error_where_it_is_written(app: Mainspring) -> None:
    with pytest.raises(TaskNotFound, match="did you mean 'copysign'"):
        async_task("math.copysig", 1, 2)
    with pytest.raises(TaskNotFound, match="nonsense"):
        async_task("nonsense.at.all")


def test_arguments_that_do_not_fit_are_an_error_where_they_are_written(app: Mainspring) -> None:
    with pytest.raises(TypeError, match="takes no argument 'c'"):
        async_task(functions.add, 1, c=2)


def test_waiting_for_a_result_of_none_ends(working: Mainspring) -> None:
    task_id = async_task(functions.nothing)
    assert result(task_id, wait=-1) is None
    task = fetch(task_id)
    assert task is not None
    assert task.success


def test_what_has_not_ended_has_no_result(app: Mainspring) -> None:
    task_id = async_task(functions.add, 1)
    assert (result(task_id), fetch(task_id), result(task_id, wait=1)) == (None, None, None)


@pytest.mark.parametrize(("wait", "seconds"), [(0, 0), (1500, 1.5), (-1, None)])
def test_a_wait_is_in_milliseconds(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch, wait: int, seconds: float | None
) -> None:
    asked: list[float | None] = []

    def refuse(run_ids: Any, timeout: float | None = None) -> Any:
        asked.append(timeout)
        raise TimeoutError

    task_id = async_task(functions.nothing, group="g")
    monkeypatch.setattr(app, "wait", refuse)
    monkeypatch.setattr(app.runs, "wait_until", refuse)
    assert (result(task_id, wait), fetch(task_id, wait)) == (None, None)
    assert tasks.result_group("g", wait=wait) == []
    assert asked == [seconds] * (3 if wait else 2)  # a group that is not waited for is only looked at


def test_waiting_for_an_unknown_id_ends_at_once(app: Mainspring) -> None:
    assert result("unknown", wait=-1) is None
    assert fetch("unknown", wait=-1) is None


def test_a_fetched_task_has_the_names_of_django_q(working: Mainspring) -> None:
    task_id = async_task(
        functions.add, 1, b=2, task_name="sum", group="one sum", hook="tests.tasks.functions.report", timeout=60
    )
    task = fetch(task_id, SOON)
    assert task is not None
    assert (task.id, task.name, task.func) == (task_id, "sum", "tests.tasks.functions:add")
    assert (task.args, task.kwargs, task.result, task.success) == ((1,), {"b": 2}, 3, True)
    assert (task.group, task.cluster, task.hook) == ("one sum", "default", "tests.tasks.functions:report")
    assert task.attempt_count == 1
    assert task.started is not None
    assert task.stopped is not None
    assert task.started.utcoffset() == task.stopped.utcoffset() is not None
    assert task.time_taken() == (task.stopped - task.started).total_seconds()
    assert task.run.record.policy.timeout == 60
    assert (task.group_result(), task.group_count(), task.group_count(failures=True)) == ([3], 1, 0)


def test_the_result_of_a_failure_is_its_text(working: Mainspring) -> None:
    task_id = async_task(functions.fail, "out of paper")
    task = fetch(task_id, SOON)
    assert task is not None
    assert not task.success
    assert task.result.startswith("out of paper : Traceback")
    assert result(task_id) == task.result


def test_the_result_of_what_was_cancelled_says_so(app: Mainspring) -> None:
    task_id = async_task(functions.add, 1)
    app.cancel(task_id)
    assert result(task_id) == "cancelled"


@pytest.mark.parametrize("hook", [functions.report, "tests.tasks.functions.report", "tests.tasks.functions:report"])
def test_a_hook_is_given_the_task(working: Mainspring, hook: Any) -> None:
    task_id = async_task(functions.add, 1, hook=hook, task_name="sum")
    assert result(task_id, SOON) == 1
    assert result(f"{task_id}~hook", SOON) == "sum True 1"


def test_a_hook_is_given_a_failure(working: Mainspring) -> None:
    task_id = async_task(functions.fail, hook=functions.report, task_name="bad")
    assert result(task_id, SOON)
    assert result(f"{task_id}~hook", SOON) == "bad False None"


def test_a_hook_that_leads_nowhere_is_an_error_where_it_is_written(app: Mainspring) -> None:
    with pytest.raises(TaskNotFound, match="did you mean 'report'"):
        async_task(functions.add, 1, hook="tests.tasks.functions.reprot")


def test_options_are_not_passed_to_the_function(working: Mainspring) -> None:
    task_id = async_task(
        functions.options,
        own=1, task_name="n", group="g", cached=True, ack_failure=True, iter_count=3, iter_cached=True, save=True,
    )  # fmt: skip
    assert result(task_id, SOON) == {"own": 1}


def test_q_options_leave_keywords_of_the_same_name_to_the_function(working: Mainspring) -> None:
    task_id = async_task(functions.options, group="fruit", timeout=5, q_options={"group": "g", "timeout": 60})
    task = fetch(task_id, SOON)
    assert task is not None
    assert task.result == {"group": "fruit", "timeout": 5}
    assert (task.group, task.run.record.policy.timeout) == ("g", 60)


def test_a_keyword_that_q_options_do_not_name_is_an_option(app: Mainspring) -> None:
    task_id = async_task(functions.options, group="g", own=1, q_options={"task_name": "n"})
    assert (taken(app, task_id).group, taken(app, task_id).kwargs) == ("g", {"own": 1})


def test_q_options_take_our_own_options(app: Mainspring) -> None:
    task_id = async_task(functions.add, 1, q_options={"retries": 3, "priority": 7, "unique": "one"})
    record = taken(app, task_id)
    assert (record.policy.retries, record.priority) == (3, 7)
    assert async_task(functions.add, 1, q_options={"unique": "one"}) == task_id


def test_a_misspelt_option_is_an_error(app: Mainspring) -> None:
    with pytest.raises(TypeError, match="did you mean 'timeout'"):
        async_task(functions.options, q_options={"timeuot": 3})
    with pytest.raises(TypeError, match="mapping"):
        async_task(functions.options, q_options=["timeout"])


def test_q_options_are_not_changed(app: Mainspring) -> None:
    given = {"task_name": "n", "cluster": "mail", "broker": tasks.get_broker(), "save": False}
    before = dict(given)
    async_task(functions.nothing, q_options=given)
    assert given == before


def test_a_cluster_is_a_queue(app: Mainspring) -> None:
    assert taken(app, async_task(functions.nothing, cluster="mail")).queue == "mail"


def test_a_broker_is_a_queue_of_its_app(app: Mainspring) -> None:
    other = Mainspring("memory://")
    task_id = async_task(functions.nothing, broker=tasks.Broker("mail", app=other))
    assert taken(other, task_id).queue == "mail"
    assert app.count() == 0


def test_cached_is_for_how_long_a_result_is_kept(app: Mainspring) -> None:
    assert taken(app, async_task(functions.nothing, cached=90)).policy.retention == 90
    assert taken(app, async_task(functions.nothing, cached=True)).policy.retention is None


def test_ack_failure_makes_a_failure_final(app: Mainspring) -> None:
    stubborn = app.task(retries=5)(functions.fail)
    assert taken(app, async_task(stubborn, ack_failure=True)).policy.retries == 0


def test_a_failure_that_is_not_acknowledged_is_tried_again_every_minute(app: Mainspring) -> None:
    policy = taken(app, async_task(functions.fail, ack_failure=False)).policy
    assert (policy.retries, policy.backoff) == (1000, (60.0,))


def test_a_failure_that_is_not_acknowledged_keeps_to_the_retries_of_its_task(app: Mainspring) -> None:
    stubborn = app.task(retries=5)(functions.fail)
    assert taken(app, async_task(stubborn, ack_failure=False)).policy.retries == 5


def test_a_success_that_is_not_saved_is_gone_when_the_store_is_cleaned(app: Mainspring) -> None:
    task_id = async_task(functions.nothing, save=False)
    broker = tasks.get_broker()
    broker.dequeue()
    assert broker.acknowledge(task_id)
    app.store.prune()
    assert fetch(task_id) is None


def test_a_failure_is_kept_even_if_a_success_would_not_be_saved(app: Mainspring) -> None:
    task_id = async_task(functions.nothing, save=False)
    broker = tasks.get_broker()
    broker.dequeue()
    assert broker.fail(task_id)
    app.store.prune()
    assert fetch(task_id) is not None


def test_sync_executes_the_call_at_once_in_this_thread(app: Mainspring) -> None:
    task_id = async_task(functions.note, [1, "a"], sync=True, group="here", hook=functions.report)
    assert functions.events == [[1, "a"]]
    assert result(task_id) == [1, "a"]
    assert str(result(f"{task_id}~hook")).startswith("note True")
    assert tasks.result_group("here") == [[1, "a"]]
    assert app.count() == 0


def test_sync_executes_lambdas_and_tasks(app: Mainspring) -> None:
    app.task(name="sum")(functions.add)
    assert result(async_task(lambda: 5, sync=True)) == 5
    assert result(async_task("sum", 1, 2, sync=True)) == 3


def test_a_task_registered_later_can_be_executed_by_sync(app: Mainspring) -> None:
    async_task(functions.nothing, sync=True)
    app.task(name="sum")(functions.add)
    assert result(async_task("sum", 1, 2, sync=True)) == 3


def test_sync_records_a_failure(app: Mainspring) -> None:
    task = fetch(async_task(functions.fail, "no", sync=True))
    assert task is not None
    assert (task.success, task.result.partition(" : ")[0]) == (False, "no")


def test_sync_is_inside_the_middleware_of_the_app(app: Mainspring) -> None:
    app.middleware(lambda run, call_next: [call_next()])
    assert result(async_task(functions.add, 1, sync=True)) == [1]


def test_in_an_inline_app_everything_is_sync() -> None:
    app = Mainspring("memory://", inline=True)
    tasks.set_app(app)
    assert result(async_task(functions.add, 1, 2)) == 3
    assert result(tasks.async_iter(functions.add, [1, 2])) == [1, 2]
    assert tasks.result_group(tasks.async_chain([(functions.add, (1,)), (functions.add, (2,))])) == [1, 2]


def test_the_cached_verbs_read_the_store(working: Mainspring) -> None:
    task_id = async_task(functions.add, 1, 2, cached=True)
    assert tasks.result_cached(task_id, SOON) == 3
    task = tasks.fetch_cached(task_id, broker=tasks.get_broker())
    assert task is not None
    assert task.result == 3
    assert (tasks.delete_cached(task_id), tasks.delete_cached(task_id)) == (True, False)
    assert fetch(task_id) is None


def test_listeners_of_the_app_hear_of_what_sync_executes(app: Mainspring) -> None:
    heard: list[Any] = []
    app.on(events.EVENT_JOB_EXECUTED, heard.append)
    task_id = async_task("math.copysign", 2, -2, sync=True)
    assert [(event.run_id, event.retval) for event in heard] == [(task_id, -2.0)]
