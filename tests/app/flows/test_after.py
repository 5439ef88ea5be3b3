"""Calls that come after other runs, and take their results as arguments."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Mainspring, RunHandle, current_run
from mainspring.codec import EncodeError
from mainspring.core.run import Condition, Outcome, Status
from mainspring.errors import RunCancelled, RunFailed, RunNotFound
from tests.app.kit import EVERYWHERE, KEY, LASTING, LIMIT, LOCAL, Gate, MakeApp


def add(one: Any, *others: Any, **named: Any) -> Any:
    for other in (*others, *named.values()):
        one = one + other
    return one


def same(value: Any) -> Any:
    return value


def isolated(value: Any) -> Any:
    return [value, threading.current_thread().name]


async def waiting(value: Any) -> Any:
    return value


def fail(text: str = "torn") -> None:
    raise ValueError(text)


@dataclass
class Page:
    body: Any


# -- results as arguments ----------------------------------------------------------------------------------------


@EVERYWHERE
def test_the_output_of_a_run_is_an_argument_of_another(app: Mainspring) -> None:
    task = app.task(add)
    one = task.enqueue(1, 2)
    two = task.enqueue(one.output, one.output, extra=10)
    three = app.task(same).enqueue({"all": [one.output, (two.output, None)], "plain": 1})
    assert [handle.status() for handle in (one, two, three)] == ["pending", "blocked", "blocked"]
    app.start(work=True)
    assert three.result(timeout=LIMIT) == {"all": [3, (16, None)], "plain": 1}


@LOCAL
def test_a_result_reaches_coroutines_and_child_processes(app: Mainspring) -> None:
    value = app.task(same).enqueue({"a": [1]})
    async_handle = app.task(waiting).enqueue(value.output)
    process_handle = app.task(isolation="process")(isolated).enqueue(value.output)
    app.start(work=True)
    assert async_handle.result(timeout=LIMIT) == {"a": [1]}
    assert process_handle.result(timeout=LIMIT)[0] == {"a": [1]}


@LASTING
def test_runs_do_not_share_a_result_that_each_may_change(app: Mainspring) -> None:
    @app.task
    def change(items: list[int]) -> list[int]:
        items.append(len(items))
        return items

    first = app.task(same).enqueue([0])
    handles = [change.enqueue(first.output) for _ in range(5)]
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in handles] == [[0, 1]] * 5


@LOCAL
def test_a_run_that_is_sent_back_takes_the_result_as_it_is_then(app: Mainspring) -> None:
    values = ["old"]
    first = app.task(name="value")(lambda: values[0]).enqueue()

    @app.task
    def refuse(value: str) -> str:
        if value == "old":
            raise ValueError(value)
        return value

    second = refuse.enqueue(first.output)
    app.start(work=True)
    with pytest.raises(RunFailed, match="old"):
        second.result(timeout=LIMIT)
    assert repr(second.fetch().args[0]) == f"<result of run {first.id}>"
    values[0] = "new"
    record = first.fetch().record
    app.store.settle([Outcome(replace(record, status=Status.PENDING, finished_at=None), Condition.FINISHED)])
    app.wait([first], LIMIT)
    second.retry()
    assert second.result(timeout=LIMIT) == "new"


@LOCAL
def test_a_result_that_is_gone_fails_the_run_with_a_sentence(app: Mainspring) -> None:
    task = app.task(same)
    first = task.enqueue(1)
    second = task.options(queue="slow").enqueue(first.output)
    app.start(work=True, queues=["default"])
    first.result(timeout=LIMIT)
    app.stop()
    app.delete(first)
    app.start(work=True, queues=["slow"])
    with pytest.raises(RunFailed, match=f"is the result of run '{first.id}', but that run is no longer in the store"):
        second.result(timeout=LIMIT)


def test_a_placeholder_in_a_place_where_nobody_would_look_for_it_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    task = app.task(same)
    with pytest.raises(EncodeError, match="stands for the result of a run"):
        task.enqueue(Page(task.enqueue(1).output))
    with pytest.raises(EncodeError, match="stands for the result of a run"):
        app.add_job(task, "date", args=[task.enqueue(1).output])


@LASTING
def test_a_task_that_returns_a_placeholder_fails(app: Mainspring) -> None:
    first = app.task(name="first")(lambda: 1).enqueue()
    second = app.task(name="second")(lambda: first.output).enqueue()
    app.start(work=True)
    with pytest.raises(RunFailed, match="stands for the result of a run"):
        second.result(timeout=LIMIT)


# -- after= ------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_call_starts_when_all_that_it_comes_after_have_succeeded(app: Mainspring) -> None:
    done: list[str] = []
    task = app.task(name="note")(done.append)
    runs = [task.enqueue(name) for name in "abc"]
    last = task.options(after=runs).enqueue("last")
    assert last.status() is Status.BLOCKED
    app.start(work=True)
    last.result(timeout=LIMIT)
    assert (sorted(done[:3]), done[3:]) == (["a", "b", "c"], ["last"])


@EVERYWHERE
@pytest.mark.parametrize(("on", "good", "bad"), [("success", 1, 0), ("end", 1, 1), ("failure", 0, 1)])
def test_on_says_which_ends_count(app: Mainspring, on: str, good: int, bad: int) -> None:
    task = app.task(same)
    after_good = task.options(after=task.enqueue(1), on=on).enqueue("x")
    after_bad = task.options(after=app.task(fail).enqueue(), on=on).enqueue("x")
    app.start(work=True)
    ends = [view.status for view in app.wait([after_good, after_bad], LIMIT)]
    assert ends == [Status.SUCCEEDED if good else Status.CANCELLED, Status.SUCCEEDED if bad else Status.CANCELLED]


@LOCAL
def test_a_call_after_runs_that_have_ended_starts_or_is_cancelled_at_once(app: Mainspring) -> None:
    task = app.task(same)
    good, bad = task.enqueue(1), app.task(fail).enqueue()
    app.start(work=True)
    app.wait([good, bad], LIMIT)
    app.stop()
    assert task.options(after=good).enqueue(2).status() is Status.PENDING
    refused = task.options(after=bad).enqueue(2)
    assert refused.status() is Status.CANCELLED
    with pytest.raises(RunFailed, match="torn") as caught:
        refused.result(timeout=0)
    assert caught.value.run_id == bad.id


@LOCAL
def test_predecessors_can_be_handles_ids_and_lists_and_are_counted_once(app: Mainspring) -> None:
    task = app.task(same)
    one, two, three = (task.enqueue(number) for number in range(3))
    call = task.call(one.output).after(one, [two.id, (three,)], two, on="end")
    handle = app.enqueue_call(call.after(three))
    record = handle.fetch().record
    assert {edge.id: edge.on for edge in record.after} == {one.id: 1, two.id: 31, three.id: 1}
    assert record.waits == 3
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 0


@LOCAL
def test_an_unknown_predecessor_is_not_found_and_nothing_is_stored(app: Mainspring) -> None:
    task = app.task(same)
    with pytest.raises(RunNotFound, match="'nobody' in the store: 'same' cannot come after it"):
        task.options(after="nobody").enqueue(1)
    with pytest.raises(RunNotFound, match="'nobody'") as caught:
        app.enqueue_many([task.call(1), task.call(2).after("nobody")])
    assert caught.value.__notes__ == ["1 of these 2 calls are stored"]
    assert app.count() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after": 17}, "after= takes runs, as handles or ids"),
        ({"after": "a", "on": "succes"}, "on= is one of 'success', 'failure', 'end', not 'succes'"),
        ({"on": "end"}, "give after=, too"),
        ({"queue": "!flow"}, "cannot name a queue"),
    ],
)
def test_wrong_options_say_what_is_wrong(make_app: MakeApp, options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make_app().task(same).options(**options)


def test_what_excludes_itself_is_refused(make_app: MakeApp) -> None:
    task = make_app().task(same)
    first = task.enqueue(1)
    with pytest.raises(ValueError, match="after a failure of run"):
        task.options(after=first, on="failure").enqueue(first.output)


@LOCAL
def test_a_delay_counts_from_the_end_of_the_last_predecessor(app: Mainspring) -> None:
    task, gate = app.task(same), Gate()
    first = app.task(name="held")(gate.wait).enqueue()
    second = task.options(after=first, delay=50).enqueue(1)
    app.start(work=True)
    gate.reached()
    app.store.shift_clock(100)
    gate.open()
    first.result(timeout=LIMIT)
    view = second.fetch()
    assert view.status is Status.PENDING
    assert 150 <= (view.run_at - view.created_at).total_seconds() < 150 + LIMIT
    app.store.shift_clock(60)
    assert second.result(timeout=LIMIT) == 1


@LOCAL
def test_a_cancelled_predecessor_takes_those_behind_it_along(app: Mainspring) -> None:
    task = app.task(same)
    first = task.enqueue(1)
    second = task.enqueue(first.output)
    third = task.options(after=second).enqueue(3)
    tidy = task.options(after=third, on="end").enqueue("tidy")
    first.cancel()
    assert [handle.status() for handle in (second, third)] == [Status.CANCELLED] * 2
    with pytest.raises(RunCancelled):
        third.result(timeout=0)
    app.start(work=True)
    assert tidy.result(timeout=LIMIT) == "tidy"


@LOCAL
def test_a_task_can_enqueue_calls_that_come_after_itself(app: Mainspring) -> None:
    behind: list[RunHandle[str]] = []

    @app.task
    def later(value: str) -> str:
        return value

    @app.task
    def outer() -> str:
        behind.append(later.options(after=current_run().id).enqueue("behind"))
        assert behind[0].status() is Status.BLOCKED
        return "outer"

    app.start(work=True)
    assert outer.enqueue().result(timeout=LIMIT) == "outer"
    assert behind[0].result(timeout=LIMIT) == "behind"
