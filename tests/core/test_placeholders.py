"""Placeholders: found in arguments, merged into predecessors, replaced by values."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from mainspring.core.run import HOLDS, ON, After, Call, Error, Run, Status
from mainspring.core.waiting.placeholders import (
    MOST_LEVELS,
    OUTCOME,
    RUN,
    Placeholder,
    fill,
    merge_after,
    needed_runs,
    placeholders_in,
    put_previous,
    with_inputs,
)
from mainspring.errors import MissingInput, RunCancelled, RunFailed, UnverifiedOutcome

FAILURE = Error("ValueError", "torn", "x" * 5000, 7, 1)


def ended(run_id: str, status: Status = Status.SUCCEEDED, **fields: Any) -> Run:
    return Run(id=run_id, call=Call("f", name="f"), status=status, **fields)


def filled(value: Any, *runs: Run) -> Any:
    call = Call("g", (value,), {"key": value}, "g", inputs=1)
    made = fill(call, {run.id: run for run in runs}, lambda run: f"finished {run.id}")
    assert made.kwargs["key"] == made.args[0]
    assert made.unfilled is call
    return made.args[0]


def test_placeholders_are_found_anywhere_in_lists_tuples_and_dicts() -> None:
    one, two, three = Placeholder("a"), Placeholder("b"), Placeholder("c", OUTCOME)
    assert placeholders_in((1, one, [2, (two,)]), {"key": {"deep": [three]}, "other": "text"}) == [one, two, three]
    assert placeholders_in((1, "a", [2, {"b": None}]), {}) == []


def test_nothing_is_looked_for_deeper_than_the_bound() -> None:
    value: Any = Placeholder("a")
    for _ in range(MOST_LEVELS):
        value = [value]
    assert placeholders_in((value,), {}) == [Placeholder("a")]
    assert placeholders_in(([value],), {}) == []


def test_values_take_the_places_of_their_placeholders() -> None:
    value = {"all": [Placeholder("a"), (Placeholder("b"), 3)], "plain": [1]}
    assert filled(value, ended("a", result="A"), ended("b", result=None)) == {"all": ["A", (None, 3)], "plain": [1]}


def test_a_value_that_looks_like_a_placeholder_is_not_replaced_again() -> None:
    assert filled(Placeholder("a"), ended("a", result=[Placeholder("b")])) == [Placeholder("b")]


def test_an_outcome_is_a_result_or_the_error_with_the_end_of_its_traceback() -> None:
    assert filled(Placeholder("a", OUTCOME), ended("a", result=5)) == 5
    error = fill(
        Call("g", (Placeholder("a", OUTCOME),)), {"a": ended("a", Status.FAILED, errors=(FAILURE,))}, str
    ).args[0]
    assert isinstance(error, RunFailed)
    assert (error.run_id, error.type, error.message, len(error.traceback)) == ("a", "ValueError", "torn", 2000)
    error = fill(Call("g", (Placeholder("a", OUTCOME),)), {"a": ended("a", Status.CANCELLED, reason="no")}, str).args[0]
    assert isinstance(error, RunCancelled)
    assert error.reason == "no"


def test_a_run_can_be_given_itself_however_it_ended() -> None:
    assert filled(Placeholder("a", RUN), ended("a", Status.FAILED)) == "finished a"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "'a', but that run is no longer in the store"),
        (ended("a", Status.PENDING), "'a', but that run is pending"),
        (ended("a", Status.FAILED), "'a', but that run is failed"),
    ],
)
def test_a_missing_result_is_an_error_that_names_the_run(run: Run | None, words: str) -> None:
    with pytest.raises(MissingInput, match=words):
        fill(Call("g", (Placeholder("a"),)), {"a": run}, str)


def test_an_outcome_that_nobody_signed_is_not_passed_on() -> None:
    for kind in ("result", OUTCOME):
        with pytest.raises(UnverifiedOutcome):
            fill(Call("g", (Placeholder("a", kind),)), {"a": ended("a", unverified="no seal")}, str)


def test_a_run_comes_after_those_whose_results_it_takes() -> None:
    run = ended("r", Status.PENDING, after=(After("x", ON["end"]), After("a", ON["end"])))
    run = Run(
        id="r", call=Call("g", (Placeholder("a"), [Placeholder("b", OUTCOME), Placeholder("a")])), after=run.after
    )
    made = with_inputs(run)
    assert made.after == (After("x", ON["end"]), After("a", ON["success"]), After("b", ON["end"]))
    assert (made.status, made.call.inputs) == (Status.BLOCKED, 3)
    assert needed_runs(made) == ["a", "b"]


def test_a_run_without_predecessors_stays_as_it_is() -> None:
    run = Run(id="r", call=Call("g", (1, [2])))
    assert with_inputs(run) is run


def test_mentions_of_a_predecessor_are_merged_and_have_to_agree() -> None:
    end, success, failure = After("a", ON["end"]), After("a"), After("a", ON["failure"])
    assert merge_after([end, success]) == (success,)
    assert merge_after([end, failure, end]) == (failure,)
    assert merge_after([After("a", ON["end"] | HOLDS), success]) == (After("a", ON["success"] | HOLDS),)
    with pytest.raises(ValueError, match="a failure of run 'a' and also after its success"):
        merge_after([success, failure])


def test_previous_is_the_run_before() -> None:
    args, kwargs = put_previous(([Placeholder("")], Placeholder("other")), {"key": Placeholder("")}, "a")
    assert args == ([Placeholder("a")], Placeholder("other"))
    assert kwargs == {"key": Placeholder("a")}
    with pytest.raises(ValueError, match="a later call of a chain"):
        with_inputs(Run(id="r", call=Call("g", (Placeholder(""),))))


def test_a_placeholder_can_be_passed_on_and_nothing_else() -> None:
    value: Any = Placeholder("a")
    for use in (
        lambda: value["x"],
        lambda: value.title,
        lambda: len(value),
        lambda: bool(value),
        lambda: list(value),
        lambda: value + 1,
        lambda: f"{value}",
        lambda: value > 1,
        lambda: value(),
    ):
        with pytest.raises(TypeError, match="result of run a> is not known yet"):
            use()
    assert repr(value) == "<result of run a>"
    assert pickle.loads(pickle.dumps(value)) == value
