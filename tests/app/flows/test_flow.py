"""Flows: stored together or not at all, of any size, and acted on as a whole."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, RunHandle, current_run
from mainspring.core.run import Status
from mainspring.core.waiting.flows import marker_id
from mainspring.errors import OutcomeUnknown, RunCancelled, RunFailed, RunNotFound, StoreUnavailable
from tests.app.kit import EVERYWHERE, KEY, LIMIT, LOCAL, MakeApp


def same(value: Any) -> Any:
    return value


def fail(text: str = "torn") -> None:
    raise ValueError(text)


def big_flow(app: Mainspring, name: str) -> None:
    """Store a flow that needs two writes."""
    task = app.task(same)
    with app.flow(name) as flow:
        for number in range(1500):
            flow.add(task.call(number))


# -- storing -----------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_flow_is_stored_when_its_block_ends_and_runs_in_its_order(app: Mainspring) -> None:
    task = app.task(same)
    with app.flow() as flow:
        pages = [flow.add(task.call(number)) for number in range(5)]
        whole = flow.add(task.call([page.output for page in pages]))
        flow.add(task.call("also"), after=whole)
        assert app.count() == 0
    assert flow.status() is Status.PENDING
    assert Counter(view.status for view in flow.runs) == {Status.PENDING: 5, Status.BLOCKED: 2}
    app.start(work=True)
    views = flow.wait(timeout=LIMIT)
    assert [view.result for view in views] == [0, 1, 2, 3, 4, [0, 1, 2, 3, 4], "also"]
    assert {view.group for view in views} == {flow.id}
    assert flow.status() is Status.SUCCEEDED


@LOCAL
def test_a_block_that_raises_stores_nothing(app: Mainspring) -> None:
    task, flow = app.task(same), app.flow()

    def build() -> None:
        with flow:
            flow.add(task.call(1))
            raise KeyError

    with pytest.raises(KeyError):
        build()
    assert app.count() == 0
    with pytest.raises(RuntimeError, match="not open"):
        flow.add(task.call(2))


@LOCAL
def test_an_empty_flow_stores_nothing(app: Mainspring) -> None:
    with app.flow() as flow:
        pass
    assert app.count() == 0
    with pytest.raises(RunNotFound):
        flow.wait()


@LOCAL
def test_a_missing_predecessor_stores_nothing_that_could_start(app: Mainspring) -> None:
    task, flow = app.task(same), app.flow().__enter__()
    flow.add(task.call(1))
    flow.add(task.call(2), after="nobody")
    with pytest.raises(RunNotFound, match="'nobody'"):
        flow.__exit__(None, None, None)
    app.start(work=True)
    app.stop()
    assert {view.status for view in app.find(group=flow.id)} == {Status.CANCELLED}


@LOCAL
def test_a_flow_may_come_after_runs_that_are_there(app: Mainspring) -> None:
    task = app.task(same)
    first = task.enqueue("first")
    with app.flow() as flow:
        second = flow.add(task.call(first.output))
        flow.add(task.call("alone"))
    app.start(work=True)
    flow.wait(timeout=LIMIT)
    assert second.result(timeout=0) == "first"


@pytest.mark.parametrize("option", [{"id": "x"}, {"group": "x"}, {"shard": "x"}])
def test_what_a_flow_sets_itself_cannot_be_given(make_app: MakeApp, option: dict[str, Any]) -> None:
    app = make_app()
    with app.flow() as flow, pytest.raises(ValueError, match="cannot be given to a call of a flow"):
        flow.add(app.task(same).options(**option).call(1))


# -- names and keys ----------------------------------------------------------------------------------------------


@LOCAL
def test_a_flow_with_a_known_name_is_not_stored_again(app: Mainspring) -> None:
    task = app.task(same)

    def store(value: int) -> tuple[bool, RunHandle[Any]]:
        with app.flow("import 7") as flow:
            flow.add(task.call(value))
            last = flow.add(task.call(value + 1))
        return flow.known, last

    known, last = store(1)
    assert (known, last.id) == (False, "import 7~2")
    known, again = store(10)
    assert (known, again) == (True, last)
    app.start(work=True)
    assert again.result(timeout=LIMIT) == 2
    assert app.count() == 2


@EVERYWHERE
@pytest.mark.parametrize("starts", [1, 2])
def test_a_flow_whose_key_is_taken_is_not_stored_and_its_handles_are_those_of_the_known_one(
    app: Mainspring, starts: int
) -> None:
    task = app.task(same)

    def store(value: int) -> tuple[str, list[RunHandle[Any]]]:
        with app.flow() as flow:
            first = flow.add(task.options(unique="k").call(value))
            second = flow.add(task.call(first.output), after=first)
            others = [flow.add(task.call(value))] if starts > 1 else []
        return flow.id, [first, second, *others]

    flow_id, handles = store(1)
    known_id, known = store(2)
    assert (known_id, known) == (flow_id, handles)
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in known] == [1] * len(known)
    assert app.count(status="succeeded", group=flow_id) in (len(handles), len(handles) + 1)  # the marker, if it is kept
    assert app.count(group=flow_id, status=("pending", "blocked")) == 0


def test_only_the_first_call_may_have_a_key(make_app: MakeApp) -> None:
    app = make_app()
    task = app.task(same)
    with app.flow() as flow:
        flow.add(task.call(1))
        with pytest.raises(ValueError, match="only the first call of a flow can have unique="):
            flow.add(task.options(unique="k").call(2))


# -- size --------------------------------------------------------------------------------------------------------


@LOCAL
def test_a_big_flow_is_joined_and_starts_when_all_of_it_is_stored(app: Mainspring) -> None:
    task = app.task(same)
    with app.flow() as flow:
        parts = [flow.add(task.call(number)) for number in range(2500)]
        whole = flow.add(task.call([part.output for part in parts]))
        ends = [flow.add(task.call(number), after=whole) for number in range(1200)]
    assert whole.status() is Status.BLOCKED
    app.start(work=True)
    assert whole.result(timeout=LIMIT * 3) == list(range(2500))
    app.wait(ends, timeout=LIMIT * 3)
    assert flow.status() is Status.SUCCEEDED
    assert len(flow.runs) == 3701


@LOCAL
@pytest.mark.parametrize("by", ["a person", "the janitor"])
def test_an_abandoned_flow_never_starts_and_is_cancelled_as_a_whole(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    task = app.task(same)
    add_runs, calls = app.store.add_runs, []

    def dying(runs: Sequence[Any]) -> Any:
        calls.append(len(runs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return add_runs(runs)

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "add_runs", dying)
        patch.setattr(type(app.flows.writer), "_give_up", lambda self, marker: None)
        with pytest.raises(KeyboardInterrupt):
            big_flow(app, "big")
    app.start(work=True)
    task.enqueue("other").result(timeout=LIMIT)
    assert app.count(group="big", status=("succeeded", "running")) == 0
    assert app.get(marker_id("big")).status is Status.PENDING
    with pytest.raises(ValueError, match="not all of the flow"):
        app.get_flow("big").retry()
    if by == "a person":
        app.get_flow("big").cancel()
    else:
        assert app.node is not None
        janitor = app.node.links["default"].janitor
        janitor._cancel_abandoned()
        assert app.get(marker_id("big")).status is Status.PENDING  # somebody may still be storing it
        app.store.shift_clock(601)
        app.node.links["default"].observe(app.store.beat(), app.node.clock.monotonic())
        janitor._cancel_abandoned()
        assert app.get(marker_id("big")).reason == "the process that stored the flow is gone"
    app.get_flow("big").wait(timeout=LIMIT)  # some may have been claimed, to be cancelled
    assert app.count(group="big", status=("pending", "blocked", "running")) == 0


@LOCAL
def test_a_flow_that_fails_while_it_is_stored_is_cancelled(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    add_runs, calls = app.store.add_runs, []

    def broken(runs: Sequence[Any]) -> Any:
        calls.append(len(runs))
        if len(calls) == 2:
            raise StoreUnavailable("gone")
        return add_runs(runs)

    monkeypatch.setattr(app.store, "add_runs", broken)
    with pytest.raises(StoreUnavailable):
        big_flow(app, "big")
    assert app.count(group="big", status=("pending", "blocked", "running")) == 0
    app.start(work=True)
    app.stop()
    assert app.count(group="big", status="succeeded") == 0


def test_a_lost_reply_is_asked_for_again(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    task = app.task(same)
    lost = {"add_runs": 0, "settle": 0}

    def losing(name: str) -> Any:
        verb = getattr(app.store, name)

        def call(items: Sequence[Any]) -> Any:
            lost[name] += 1
            answer = verb(items)
            if lost[name] == 1:
                raise OutcomeUnknown("the reply was lost")
            return answer

        return call

    for name in lost:
        monkeypatch.setattr(app.store, name, losing(name))
    with app.flow() as flow:
        handles = [flow.add(task.call(number)) for number in range(1100)]
    app.start(work=True)
    assert [view.result for view in app.wait(handles, LIMIT)] == list(range(1100))
    assert flow.status() is Status.SUCCEEDED


# -- failing, cancelling, retrying -------------------------------------------------------------------------------


@EVERYWHERE
def test_a_failed_step_takes_those_behind_it_along_and_retry_lets_the_rest_run(app: Mainspring) -> None:
    broken = [True]

    @app.task
    def mend(value: int) -> int:
        if broken:
            raise ValueError("torn")
        return value

    task = app.task(same)
    with app.flow() as flow:
        one = flow.add(task.call(1))
        two = flow.add(mend.call(one.output))
        three = flow.add(task.call(two.output))
        four = flow.add(task.call(three.output))
        sorry = flow.add(task.call("sorry"), after=two, on="failure")
        tidy = flow.add(task.call("tidy"), after=four, on="end")
    app.start(work=True)
    flow.wait(timeout=LIMIT)
    with pytest.raises(RunFailed, match="torn") as caught:
        four.result(timeout=0)
    assert caught.value.run_id == two.id
    assert (sorry.result(timeout=0), tidy.result(timeout=0)) == ("sorry", "tidy")
    assert flow.status() is Status.FAILED
    broken.clear()
    assert flow.retry() == 3
    assert four.result(timeout=LIMIT) == 1
    flow.wait(timeout=LIMIT)
    assert flow.retry() == 0  # as good as once
    assert flow.status() is Status.SUCCEEDED


@LOCAL
def test_a_step_for_a_failure_that_did_not_happen_is_no_failure_of_the_flow(app: Mainspring) -> None:
    task = app.task(same)
    with app.flow() as flow:
        one = flow.add(task.call(1))
        sorry = flow.add(task.call("sorry"), after=one, on="failure")
    app.start(work=True)
    flow.wait(timeout=LIMIT)
    assert sorry.status() is Status.CANCELLED
    assert flow.status() is Status.SUCCEEDED
    assert flow.retry() == 0


@LOCAL
@pytest.mark.parametrize("size", [3, 1200])
def test_a_cancelled_flow_can_be_sent_back(app: Mainspring, size: int) -> None:
    task = app.task(same)
    with app.flow() as flow:
        handle = flow.add(task.call(0))
        for _ in range(size - 1):
            handle = flow.add(task.call(handle.output))
    flow.cancel()
    assert {view.status for view in flow.runs} == {Status.CANCELLED}
    assert flow.status() is Status.CANCELLED
    with pytest.raises(RunCancelled):
        handle.result(timeout=LIMIT)
    assert flow.cancel() == 0
    assert flow.retry() == size
    app.start(work=True)
    assert handle.result(timeout=LIMIT * 2) == 0


@LOCAL
def test_running_steps_of_a_cancelled_flow_are_stopped(app: Mainspring) -> None:
    started = threading.Event()

    @app.task
    async def hang() -> None:
        started.set()
        await asyncio.sleep(LIMIT)

    with app.flow() as flow:
        first = flow.add(hang.call())
        flow.add(app.task(same).call(1), after=first)
    app.start(work=True)
    assert started.wait(LIMIT)
    assert flow.status() is Status.RUNNING
    assert flow.cancel() == 2
    assert {view.status for view in flow.wait(timeout=LIMIT)} == {Status.CANCELLED}


@LOCAL
def test_a_flow_is_found_by_its_id(app: Mainspring) -> None:
    task = app.task(same)
    with app.flow("import 7") as flow:
        one = flow.add(task.call(1))
        flow.add(task.call(one.output), after=flow.signal("approved"))
    found = app.get_flow("import 7")
    assert [view.id for view in found.runs] == ["import 7~1", "import 7~2", "import 7~approved"]
    assert repr(found) == "<Flow import 7>"
    with pytest.raises(RunNotFound):
        app.get_flow("nothing")


# -- signals -----------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_signal_lets_go_on_what_comes_after_it_and_gives_its_value(app: Mainspring) -> None:
    task = app.task(same)
    with app.flow("import 7") as flow:
        table = flow.add(task.call("table"))
        approved = flow.signal("approved")
        assert flow.signal("approved") == approved
        last = flow.add(task.call([table.output, approved.output]))
    app.start(work=True)
    table.result(timeout=LIMIT)
    with pytest.raises(TimeoutError, match="import 7~approved"):
        last.result(timeout=0)
    assert app.signal("import 7~approved", {"by": "ann"}) is True
    assert last.result(timeout=LIMIT) == ["table", {"by": "ann"}]
    assert app.signal(approved, "twice") is False
    assert approved.result(timeout=0) == {"by": "ann"}


@LOCAL
def test_only_a_signal_can_be_given(app: Mainspring) -> None:
    handle = app.task(same).enqueue(1)
    with pytest.raises(ValueError, match="is not a signal"):
        app.signal(handle)
    with pytest.raises(RunNotFound):
        app.signal("import 7~approved")


@pytest.mark.parametrize("name", ["", "7", "hook", "!x", "a~b"])
def test_a_signal_has_a_name_that_no_step_has(make_app: MakeApp, name: str) -> None:
    with make_app().flow() as flow, pytest.raises(ValueError, match="cannot name a signal"):
        flow.signal(name)


@LOCAL
def test_a_cancelled_signal_cancels_what_comes_after_it(app: Mainspring) -> None:
    with app.flow() as flow:
        approved = flow.signal("approved")
        last = flow.add(app.task(same).call(1), after=approved)
    approved.cancel()
    assert last.status() is Status.CANCELLED
    assert app.signal(approved) is False


# -- inline ------------------------------------------------------------------------------------------------------


def test_inline_mode_runs_whole_flows(make_app: MakeApp) -> None:
    app = make_app(inline=True)
    task, bad = app.task(same), app.task(fail)
    with app.flow("f") as flow:
        one = flow.add(task.call(1))
        two = flow.add(task.call([one.output]))
        torn = flow.add(bad.call(), after=two)
        never = flow.add(task.call(3), after=torn)
        sorry = flow.add(task.call("sorry"), after=torn, on="failure")
        late = flow.add(task.options(delay=3600).call(two.output), after=flow.signal("go"))
    assert two.result() == [1]
    assert sorry.result() == "sorry"
    with pytest.raises(RunFailed, match="torn"):
        never.result()
    assert late.status() is Status.BLOCKED
    assert app.signal("f~go")
    assert late.result() == [1]
    assert flow.status() is Status.FAILED
    wide = app.gather(task.call(number) for number in range(1500))
    assert wide.result() == list(range(1500))
    handle = task.enqueue(1)
    assert task.enqueue(handle.output).result() == 1


# -- async code, and what a task sees ----------------------------------------------------------------------------


@LOCAL
def test_async_code_has_the_same_verbs(app: Mainspring) -> None:
    asyncio.run(use_flows(app))


async def use_flows(app: Mainspring) -> None:
    task = app.task(same)
    async with app.aio.flow("f") as flow:
        one = flow.add(task.call(1))
        two = flow.add(task.call(one.output), after=flow.signal("go"))
    app.start(work=True)
    assert await one == 1
    assert await flow.status() is Status.RUNNING
    assert await app.aio.signal("f~go")
    assert await two == 1
    assert [view.id for view in await flow.wait(LIMIT)] == ["f~1", "f~go", "f~2"]
    again = await app.aio.get_flow("f")
    assert (again.id, again.known, len(await again.runs())) == ("f", False, 3)
    assert (await again.counts(), await again.cancel(), await again.retry()) == ({Status.SUCCEEDED: 3}, 0, 0)
    assert await (await app.aio.gather([task.call(1), task.call(2)])) == [1, 2]


@LOCAL
def test_a_task_reads_the_results_of_the_runs_before_it(app: Mainspring) -> None:
    task, bad = app.task(same), app.task(fail)

    @app.task
    def report() -> list[Any]:
        return [str(item) if isinstance(item, Exception) else item for item in current_run().inputs]

    with app.flow() as flow:
        parts = [flow.add(task.call(number)) for number in range(1000)]  # through joins
        torn = flow.add(bad.call())
        last = flow.add(report.call(), after=[*parts, torn], on="end")
        alone = flow.add(report.call())
    app.start(work=True)
    found = last.result(timeout=LIMIT)
    assert found[:-1] == list(range(1000))
    assert "ValueError: torn" in found[-1]
    assert alone.result(timeout=LIMIT) == []
