"""Which runs can no longer run, and why."""

from __future__ import annotations

import random
from typing import Any

from mainspring.core.run import ON, After, Call, Error, Run, Status
from mainspring.core.waiting.refusals import doomed, reason_after

ERROR = Error("ValueError", "torn", "Traceback ...", 1, 1)


def run(run_id: str, **fields: Any) -> Run:
    return Run(id=run_id, call=Call("shop:work", name=f"step {run_id}"), **fields)


def step(run_id: str, *after: str, on: str = "success") -> tuple[str, tuple[After, ...]]:
    return run_id, tuple(After(each, ON[on]) for each in after)


def test_the_rest_of_a_chain_is_doomed_in_its_order() -> None:
    steps = [step(str(number), str(number - 1)) for number in range(1, 2001)]
    random.Random(7).shuffle(steps)
    assert [*doomed(["0"], steps)] == [(str(number), str(number - 1)) for number in range(1, 2001)]


def test_a_run_with_several_doomed_predecessors_is_doomed_once_and_after_the_one_that_is_named() -> None:
    found = [*doomed(["a"], [step("d", "b", "c"), step("c", "a"), step("b", "a"), step("e", "d")])]
    assert sorted(name for name, _ in found) == ["b", "c", "d", "e"]
    place = {name: number for number, (name, _) in enumerate(found)}
    assert all(before == "a" or place[before] < place[name] for name, before in found)


def test_what_comes_after_any_end_is_not_doomed_nor_what_comes_after_that() -> None:
    steps = [step("tidy", "a", on="end"), step("report", "tidy"), step("next", "a")]
    assert [*doomed(["a"], steps)] == [("next", "a")]


def test_what_comes_after_a_failure_is_doomed_by_a_cancellation() -> None:
    assert [*doomed(["a"], [step("repair", "a", on="failure")])] == [("repair", "a")]


def test_runs_that_come_after_others_are_left_alone() -> None:
    assert [*doomed(["a"], [step("y", "x"), step("z", "y")])] == []


def test_the_reason_names_the_run_and_its_error() -> None:
    assert reason_after(run("a", status=Status.FAILED, errors=(ERROR,)), "a") == (
        "came after step a, which failed: ValueError: torn"
    )
    cancelled = run("a", status=Status.CANCELLED, reason="enough")
    assert reason_after(cancelled, "a") == "came after step a, which was cancelled: enough"
    assert reason_after(run("a", status=Status.MISSED, reason="late"), "a") == (
        "came after step a, which was missed: late"
    )
    assert reason_after(run("a", status=Status.SUCCEEDED, errors=(ERROR,)), "a") == (
        "came after step a, which succeeded"
    )
    assert reason_after(None, "a") == "came after a, which has not ended as it should"


def test_the_reason_of_a_later_run_names_the_run_that_really_failed() -> None:
    first = run("a", status=Status.FAILED, errors=(ERROR,))
    second = run("b", status=Status.CANCELLED, refused="a", reason=reason_after(first, "a"))
    assert reason_after(second, "b") == "came after step a, which failed: ValueError: torn"
