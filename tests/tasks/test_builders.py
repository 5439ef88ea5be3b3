"""AsyncTask, Chain, Iter."""

from __future__ import annotations

from mainspring import Mainspring, tasks
from mainspring.tasks import AsyncTask, Chain, Iter
from tests.tasks import functions

SOON = 20_000


def test_an_async_task_is_run_with_the_options_it_has_then(working: Mainspring) -> None:
    call = AsyncTask(functions.add, 1, b=2, group="a")
    assert (call.result(), call.fetch(), call.result_group(), call.fetch_group()) == (None, None, [], [])
    call.group, call.hook, call.save, call.cached = "b", functions.report, True, 50
    assert (call.group, call.save, call.sync, call.broker) == ("b", True, None, None)
    assert call.run() == call.id
    assert call.result(wait=SOON) == 3
    task = call.fetch()
    assert task is not None
    assert (task.group, task.hook) == ("b", "tests.tasks.functions:report")
    assert task.run.record.policy.retention == 50
    assert call.result_group(wait=SOON) == [3]
    assert [each.id for each in call.fetch_group()] == [call.id]


def test_an_async_task_can_be_run_again(app: Mainspring) -> None:
    call = AsyncTask(functions.note, 1)
    call.sync = True
    assert call.run() != call.run()
    assert functions.events == [1, 1]


def test_an_async_task_goes_to_its_broker(app: Mainspring) -> None:
    call = AsyncTask(functions.note, 1)
    call.broker = tasks.get_broker("mail")
    assert app.get(call.run()).record.queue == "mail"


def test_an_async_task_sets_what_q_options_hold(app: Mainspring) -> None:
    given = {"group": "a"}
    call = AsyncTask(functions.options, group="own", q_options=given)
    call.group = "b"
    record = app.get(call.run()).record
    assert (record.group, record.kwargs, given) == ("b", {"group": "own"}, {"group": "a"})


def test_a_chain_is_put_together_and_run(working: Mainspring) -> None:
    chain = Chain()
    assert (chain.append(functions.note, 1), chain.append("tests.tasks.functions.note", value=2)) == (1, 2)
    assert (chain.length(), chain.current(), chain.result(), chain.fetch()) == (2, 0, [], [])
    group = chain.run()
    assert chain.result(wait=-1) == [1, 2]
    assert chain.current() == 2
    assert [task.group for task in chain.fetch()] == [group, group]


def test_a_chain_that_failed_is_not_waited_for(working: Mainspring) -> None:
    chain = Chain([functions.fail, functions.nothing], group="c")
    chain.run()
    assert chain.result(wait=-1) == []
    assert [task.success for task in chain.fetch()] == [False]


def test_a_chain_that_is_run_again_has_results_of_its_own(app: Mainspring) -> None:
    chain = Chain([(functions.note, (1,))], sync=True)
    first = chain.run()
    chain.append(functions.note, 2)
    assert (chain.result(), chain.current()) == ([], 0)
    assert chain.run() != first
    assert chain.result() == [1, 2]


def test_a_chain_that_is_given_is_not_changed(app: Mainspring) -> None:
    given: list[object] = [functions.nothing]
    Chain(given).append(functions.add, 1)
    assert given == [functions.nothing]


def test_an_iteration_is_put_together_and_run(working: Mainspring) -> None:
    each = Iter(functions.add, kwargs={"timeout": 60})
    assert (each.append(1, 2), each.append(3), each.length()) == (1, 2, 2)
    assert (each.result(), each.fetch()) == (None, None)
    assert each.run() == each.id
    assert each.result(wait=SOON) == [3, 3]
    task = each.fetch()
    assert task is not None
    assert task.success


def test_an_iteration_may_be_executed_at_once_or_go_to_a_broker(app: Mainspring) -> None:
    each = Iter(functions.add, [1, 2], sync=True)
    each.run()
    assert each.result() == [1, 2]
    Iter(functions.add, [1, 2], broker=tasks.get_broker("mail")).run()
    assert app.count(queue="mail") == 3
