"""Flows as graphs: chains, gathered groups and hooks."""

from __future__ import annotations

import pytest

from mainspring import Mainspring
from mainspring.errors import RunNotFound
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL


@EVERYWHERE
def test_a_chain_shows_its_steps_in_order(app: Mainspring) -> None:
    @app.task
    def step(name: str) -> str:
        return name

    first, second, third = app.chain([step.call("one"), step.call("two"), step.call("three")])
    flow = app.flow_graph(first)
    assert [each.id for each in flow.steps] == [first.id, second.id, third.id]
    assert [each.after for each in flow.steps] == [(), (first.id,), (second.id,)]
    assert [each.call.args for each in flow.steps] == [("one",), ("two",), ("three",)]
    assert flow.goes_on
    app.start(work=True)
    app.wait([first, second, third], LIMIT)
    for any_of_them in (first, second, third):
        flow = app.flow_graph(any_of_them)
        assert [each.id for each in flow.steps] == [first.id, second.id, third.id]
        assert (flow.done, flow.goes_on, flow.failed) == (3, False, [])


@EVERYWHERE
def test_a_gathered_group_ends_in_the_run_that_collects_it(app: Mainspring) -> None:
    @app.task
    def count(number: int) -> int:
        return number

    handle = app.gather([count.call(number) for number in range(3)])
    items = tuple(f"{handle.id}~{number}" for number in range(1, 4))
    for wanted in (handle.id, items[1]):
        flow = app.flow_graph(wanted)
        assert {each.id for each in flow.steps} == {handle.id, *items}
        assert set(next(each for each in flow.steps if each.id == handle.id).after) == {*items}
        assert flow.steps[-1].id == handle.id
    (brief,), complete = app.flow_graphs()
    assert (brief.key, brief.number, brief.goes_on, complete) == (handle.id, 4, True, True)


@LOCAL
def test_a_failed_step_keeps_its_followers_from_running_and_its_hook_is_shown(app: Mainspring) -> None:
    told: list[str] = []

    @app.task
    def tell(run: object) -> None:
        told.append("told")

    @app.task(hook=tell)
    def fail() -> None:
        raise ValueError("no")

    @app.task
    def never() -> None: ...

    first, second = app.chain([fail.call(), never.call()])
    assert sorted(each.hook for each in app.flow_graph(first).steps) == [False, False, True]
    app.start(work=True)
    app.wait([first], LIMIT)
    app.wait([f"{first.id}~hook"], LIMIT)
    flow = app.flow_graph(first)
    assert [run.id for run in flow.failed] == [first.id]
    assert {each.id for each in flow.steps} == {first.id, second.id, f"{first.id}~hook"}
    assert not flow.goes_on


@LOCAL
def test_runs_without_followers_are_no_flows(app: Mainspring) -> None:
    @app.task
    def alone() -> None: ...

    alone.enqueue()
    assert app.flow_graphs() == ([], True)
    with pytest.raises(RunNotFound):
        app.flow_graph("nobody")
