"""How flows are arranged to be stored: joins in wide fans, a marker in front."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mainspring.core.run import HOLDS, ON, After, Call, Run, Status
from mainspring.core.waiting.flows import (
    JOIN_TASK,
    MARKER_QUEUE,
    WIDEST_FAN,
    flow_of,
    guarded,
    is_helper,
    marker_id,
    part_id,
    with_joins,
)

END = ON["end"]


def run(number: int | str, *after: int | str | After, queue: str = "default") -> Run:
    edges = tuple(each if isinstance(each, After) else After(part_id("f", each)) for each in after)
    status = Status.BLOCKED if edges else Status.PENDING
    return Run(id=part_id("f", number), call=Call("t", name="t"), queue=queue, after=edges, status=status)


def check(runs: list[Run]) -> dict[str, set[tuple[str, int]]]:
    """Check order and bounds; return by run the original runs that it comes after, seen through the joins."""
    known: dict[str, Run] = {}
    real: dict[str, set[tuple[str, int]]] = {}
    for each in runs:
        assert each.id not in known
        assert len(each.after) <= WIDEST_FAN
        assert len({edge.id for edge in each.after}) == len(each.after)
        assert each.status is (Status.BLOCKED if each.after else Status.PENDING)
        real[each.id] = set()
        for edge in each.after:
            before = known[edge.id]
            if before.call.func == JOIN_TASK:
                assert edge.on & ~HOLDS == ON["success"]
                real[each.id] |= real[edge.id]
            else:
                real[each.id].add((edge.id, edge.on & ~HOLDS))
            if each.call.func == JOIN_TASK:
                assert edge.on & HOLDS
        known[each.id] = each
    assert max(Counter(edge.id for each in runs for edge in each.after).values(), default=0) <= WIDEST_FAN
    return {run_id: before for run_id, before in real.items() if known[run_id].call.func != JOIN_TASK}


def asked(runs: list[Run]) -> dict[str, set[tuple[str, int]]]:
    return {each.id: {(edge.id, edge.on) for edge in each.after} for each in runs}


def test_a_small_flow_stays_as_it_is() -> None:
    runs = [run(1), run(2, 1), run(3, 1, After("f~2", END))]
    assert with_joins("f", runs) == runs


@pytest.mark.parametrize("width", [WIDEST_FAN, WIDEST_FAN + 1, 10_000])
def test_a_wide_fan_in_gets_joins(width: int) -> None:
    runs = [*(run(n) for n in range(width)), run("last", *range(width))]
    made = with_joins("f", runs)
    assert check(made) == asked(runs)
    assert len(made) - len(runs) == (0 if width == WIDEST_FAN else -(-width // WIDEST_FAN))


@pytest.mark.parametrize("width", [WIDEST_FAN, WIDEST_FAN + 1, 10_000])
def test_a_wide_fan_out_gets_joins(width: int) -> None:
    runs = [run("first"), *(run(n, "first", queue="mail") for n in range(width))]
    made = with_joins("f", runs)
    assert check(made) == asked(runs)
    assert len(made) - len(runs) == (0 if width == WIDEST_FAN else -(-width // WIDEST_FAN))
    assert {each.queue for each in made if is_helper(each)} <= {"mail"}


def test_all_after_all_costs_one_join_instead_of_a_product_of_edges() -> None:
    runs = [*(run(n) for n in range(100)), *(run(f"b{n}", *range(100)) for n in range(100))]
    made = with_joins("f", runs)
    assert check(made) == asked(runs)
    assert (len(made), sum(len(each.after) for each in made)) == (201, 200)


def test_each_queue_has_joins_of_its_own() -> None:
    runs = [*(run(n) for n in range(1000)), run("a", *range(1000), queue="a"), run("b", *range(1000), queue="b")]
    made = with_joins("f", runs)
    assert check(made) == asked(runs)
    assert Counter(each.queue for each in made if is_helper(each)) == {"a": 2, "b": 2}


def test_joins_keep_the_masks() -> None:
    runs = [*(run(n) for n in range(1500)), run("x", *(After(f"f~{n}", END if n % 2 else 1) for n in range(1500)))]
    assert check(with_joins("f", runs)) == asked(runs)


def test_more_joins_than_a_run_can_have_edges_are_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.core.waiting.flows.WIDEST_FAN", 3)
    monkeypatch.setattr("tests.core.test_flows.WIDEST_FAN", 3)
    random.seed(7)
    runs = [run("first"), *(run(n, "first") for n in range(40)), run("last", *range(40))]
    assert check(with_joins("f", runs)) == asked(runs)
    for _ in range(50):
        runs = []
        for number in range(random.randrange(1, 60)):
            before = random.sample(range(number), random.randrange(min(number, 12) + 1))
            masks = [After(f"f~{n}", random.choice([1, END, ON["failure"]])) for n in before]
            runs.append(run(number, *masks, queue=random.choice("ab")))
        assert check(with_joins("f", runs)) == asked(runs)


def test_a_marker_comes_before_all_that_would_start_first() -> None:
    made = guarded("f", [run(1), run(2, 1), run(3, After("elsewhere"))], 7)
    marker = marker_id("f")
    assert [each.id for each in made] == [marker, "f~1", "f~2", "f~3"]
    assert (made[0].queue, made[0].status) == (MARKER_QUEUE, Status.PENDING)
    assert made[1].after == (After(marker),)
    assert made[2].after == (After("f~1"),)
    assert made[3].after == (After("elsewhere"), After(marker))


def test_a_marker_of_many_starts_gets_joins() -> None:
    runs = [run(number) for number in range(10_000)]
    made = with_joins("f", guarded("f", runs, 7))
    real = check(made)
    assert all(real[each.id] == {(marker_id("f"), 1)} for each in runs)


def test_the_flow_of_a_run_is_read_from_its_id() -> None:
    assert (flow_of("import 7~approved"), flow_of("a~b~12"), flow_of("alone")) == ("import 7", "a~b", "alone")
