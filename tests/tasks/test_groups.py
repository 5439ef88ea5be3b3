"""Groups, chains and iterations."""

from __future__ import annotations

import pytest

from mainspring import Mainspring, tasks
from mainspring.tasks import (
    async_chain,
    async_iter,
    async_task,
    count_group,
    delete_group,
    fetch,
    fetch_group,
    get_broker,
    result,
    result_group,
)
from tests.tasks import functions

SOON = 20_000


def group_of_three(app: Mainspring) -> None:
    """One success, one failure, one that waits, settled by hand."""
    broker = get_broker("hand")
    good, bad, _ = (async_task(functions.nothing, group="g", cluster="hand") for _ in range(3))
    assert {task_id for task_id, _ in broker.dequeue(2)} == {good, bad}
    assert broker.acknowledge(good, "fine")
    assert broker.fail(bad, "no")


def test_a_group_counts_what_has_ended(app: Mainspring) -> None:
    group_of_three(app)
    assert (count_group("g"), count_group("g", failures=True)) == (2, 1)
    assert (tasks.count_group_cached("g"), tasks.count_group_cached("g", failures=True)) == (2, 1)
    assert count_group("other") == 0


def test_the_results_of_a_group_are_those_of_successes(app: Mainspring) -> None:
    group_of_three(app)
    assert result_group("g") == tasks.result_group_cached("g") == ["fine"]
    assert result_group("g", failures=True) == ["fine", "no : "]
    assert result_group("other", wait=-1) == []


def test_fetching_a_group_gives_failures_too_unless_told_otherwise(app: Mainspring) -> None:
    group_of_three(app)
    assert [task.success for task in fetch_group("g")] == [True, False]
    assert [task.success for task in tasks.fetch_group_cached("g")] == [True, False]
    assert [task.success for task in fetch_group("g", failures=False)] == [True]


def test_deleting_a_group_deletes_what_has_ended(app: Mainspring) -> None:
    group_of_three(app)
    assert delete_group("g") == 2
    assert (count_group("g"), app.count(group="g")) == (0, 1)


def test_the_cached_verb_deletes_a_group_as_well(app: Mainspring) -> None:
    group_of_three(app)
    assert tasks.delete_group_cached("g") == 2
    assert fetch_group("g") == []


def test_a_fetched_task_deletes_its_group(app: Mainspring) -> None:
    group_of_three(app)
    assert fetch_group("g")[0].group_delete() == 2


def test_taking_only_the_label_off_a_group_is_refused(app: Mainspring) -> None:
    group_of_three(app)
    with pytest.raises(ValueError, match="tasks=True"):
        delete_group("g", tasks=False)
    assert count_group("g") == 2


def test_waiting_for_a_group_ends_with_its_time(app: Mainspring) -> None:
    group_of_three(app)
    assert result_group("g", wait=1) == ["fine"]
    assert result_group("g", wait=1, count=5) == ["fine"]


def test_waiting_for_a_count_ends_when_so_many_have_ended(app: Mainspring) -> None:
    group_of_three(app)
    assert result_group("g", failures=True, wait=-1, count=2) == ["fine", "no : "]


def test_waiting_for_a_group_is_for_all_of_it(working: Mainspring) -> None:
    for number in range(20):
        async_task(functions.add, number, group="numbers")
    assert sorted(result_group("numbers", wait=-1)) == list(range(20))
    assert len(fetch_group("numbers", wait=SOON, count=20)) == 20


def test_a_group_of_more_than_a_page_is_complete(app: Mainspring) -> None:
    app.enqueue_many([app.task(functions.nothing).options(group="many").call()] * 1500)
    assert get_broker().purge_queue() == 1500
    assert (count_group("many"), len({task.id for task in fetch_group("many")})) == (1500, 1500)
    assert delete_group("many") == 1500


# -- chains --------------------------------------------------------------------------------------------------------


def test_a_chain_runs_its_calls_one_after_another(working: Mainspring) -> None:
    group = async_chain(
        [
            (functions.note, (1,)),
            ("tests.tasks.functions.note", 2),
            functions.nothing,
            (functions.options, (), {"own": 3, "task_name": "last", "timeout": 50}),
        ]
    )
    assert result_group(group, wait=SOON) == [1, 2, None, {"own": 3}]
    assert functions.events == [1, 2]
    last = fetch_group(group)[-1]
    assert (last.name, last.run.record.policy.timeout) == ("last", 50)


def test_a_chain_ends_with_its_first_failure(working: Mainspring) -> None:
    group = async_chain([(functions.note, (1,)), functions.fail, (functions.note, (3,))], group="chained")
    assert group == "chained"
    assert [task.success for task in fetch_group(group, wait=-1)] == [True, False]
    assert (count_group(group), count_group(group, failures=True)) == (2, 1)
    assert functions.events == [1]


def test_a_chain_is_enqueued_on_its_broker(working: Mainspring) -> None:
    async_chain([functions.nothing, functions.nothing], group="c", cached=70, broker=get_broker("byhand"))
    broker = get_broker("byhand")
    for _ in range(2):
        [(task_id, run)] = broker.dequeue()
        assert run.record.policy.retention == 70
        assert broker.acknowledge(task_id)
    assert count_group("c") == 2


def test_a_chain_can_be_executed_at_once(app: Mainspring) -> None:
    group = async_chain([(functions.note, (1,)), (functions.note, (2,))], sync=True)
    assert result_group(group) == [1, 2] == functions.events


def test_a_call_can_bring_the_chain_that_follows_it(working: Mainspring) -> None:
    async_task(functions.note, 1, chain=[(functions.note, (2,)), (functions.note, (3,))], group="led")
    assert result_group("led", wait=SOON) == [1, 2, 3] == functions.events


@pytest.mark.parametrize("chain", [[], [()], [(functions.add, (), {}, "more")]])
def test_a_chain_of_the_wrong_shape_is_an_error(app: Mainspring, chain: list[object]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"\(func, args, kwargs\)"):
        async_chain(chain)
    assert app.count() == 0


# -- iterations ----------------------------------------------------------------------------------------------------


def test_an_iteration_collects_one_result_in_the_order_of_the_items(working: Mainspring) -> None:
    task_id = async_iter(functions.add, [(1, 2), (3, 4), 5])
    assert result(task_id, SOON) == [3, 7, 5]


def test_an_iteration_may_be_a_generator_and_takes_keyword_arguments(working: Mainspring) -> None:
    task_id = async_iter(functions.add, (n for n in range(3)), b=10, timeout=60, save=False, hook=functions.report)
    assert result(task_id, SOON) == [10, 11, 12]


def test_the_items_of_an_iteration_are_kept_until_they_are_collected(app: Mainspring) -> None:
    async_iter(functions.add, [1, 2], save=False, cached=5, hook=functions.report, group="g", timeout=60)
    items = [run.record for run in app.find() if run.func == "tests.tasks.functions:add"]
    assert [(run.policy.retention, run.policy.hook, run.policy.timeout) for run in items] == [(0.0, None, 60)] * 2
    assert app.count(group="g") == 0


def test_an_iteration_over_nothing_ends_with_an_empty_list(working: Mainspring) -> None:
    assert result(async_iter(functions.add, []), SOON) == []


def test_an_iteration_with_a_failure_fails_and_says_which(working: Mainspring) -> None:
    task = fetch(async_iter(functions.fail, ["a"]), SOON)
    assert task is not None
    assert not task.success
    assert "ValueError: a" in task.result


def test_an_iteration_can_be_executed_at_once(app: Mainspring) -> None:
    assert result(async_iter(functions.add, [1, 2], sync=True)) == [1, 2]
    assert app.count() == 0
