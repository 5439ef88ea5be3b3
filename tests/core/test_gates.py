"""Gates, judged without a store."""

from __future__ import annotations

import heapq
import random

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.waiting.gates import PARKED, STARTS, GateState, Limit, judge, key_of, make_limit


def test_a_limit_survives_being_text() -> None:
    for limit in (Limit(2), Limit(None, 600_000, 10), Limit(1, SECOND), Limit(0)):
        assert Limit.from_text(limit.to_text()) == limit


def test_a_gate_lets_in_as_many_as_its_limit_says() -> None:
    assert [judge(Limit(2), GateState(), running, 0) for running in range(4)] == [STARTS, STARTS, PARKED, PARKED]


def test_the_number_that_somebody_has_set_wins() -> None:
    assert judge(Limit(2), GateState(allowed=3), 2, 0) == STARTS
    assert judge(Limit(2), GateState(allowed=0), 0, 0) == PARKED
    assert judge(Limit(None), GateState(allowed=1), 1, 0) == PARKED


def test_a_run_that_is_parked_takes_no_start_from_the_rate() -> None:
    state = GateState()
    judge(Limit(1, SECOND), state, 1, 10 * SECOND)
    assert state.tat == 0


def test_a_run_that_comes_too_early_gets_the_next_place_in_the_line() -> None:
    state, limit, now = GateState(), Limit(None, SECOND), 100 * SECOND
    assert judge(limit, state, 0, now) == STARTS
    places = [judge(limit, state, 0, now) for _ in range(3)]
    assert [round((place - now) / SECOND, 1) for place in places] == [0.9, 1.9, 2.9]


@pytest.mark.parametrize("outage", [None, (5 * SECOND, 45 * SECOND)])
@pytest.mark.parametrize(("per_second", "burst"), [(10, 1), (50, 1), (50, 20)])
def test_in_no_second_more_start_than_the_rate_a_tenth_and_the_burst(
    per_second: int, burst: int, outage: tuple[int, int] | None
) -> None:
    chance, state = random.Random(1), GateState()
    limit = Limit(None, SECOND // per_second, burst)
    waiting = [(at, number) for number, at in enumerate(sorted(chance.randrange(60 * SECOND) for _ in range(1000)))]
    looks, now, starts = 0, 0, []
    while waiting:
        now += chance.randrange(1, 30_000)  # a claim comes along
        if outage is not None and outage[0] <= now < outage[1]:
            continue
        for _ in range(50):
            if not waiting or waiting[0][0] > now:
                break
            looks += 1
            verdict = judge(limit, state, 0, now)
            _, number = heapq.heappop(waiting)
            if verdict == STARTS:
                starts.append(now)
            else:
                heapq.heappush(waiting, (verdict, number))
    most = max(sum(start <= other < start + SECOND for other in starts) for start in starts[::7])
    assert most <= per_second * 1.1 + burst + 1
    assert looks <= 3 * len(starts)


@pytest.mark.parametrize(
    ("rate", "every"),
    [("10/s", 100_000), ("100/m", 600_000), ("5000/h", 720_000), ("3/10s", 3_333_333), ("1/day", 86400 * SECOND)],
)
def test_a_rate_is_a_number_of_starts_in_a_period(rate: str, every: int) -> None:
    assert make_limit(None, rate) == Limit(None, every, 1)
    assert make_limit(2, rate, 5) == Limit(2, every, 5)


@pytest.mark.parametrize("rate", ["", "10", "10/", "0/s", "fast", "10/w", "-1/s", 7])
def test_another_rate_is_refused_with_an_example(rate: object) -> None:
    with pytest.raises(ValueError, match="'100/m'"):
        make_limit(None, rate)  # type: ignore[arg-type]


def test_a_task_without_limit_and_rate_has_no_gate() -> None:
    assert make_limit(None, None) is None
    with pytest.raises(ValueError, match="give a rate"):
        make_limit(2, None, burst=3)


def test_a_key_is_filled_in_with_the_arguments() -> None:
    assert key_of("tenant-{tenant}", {"tenant": 7, "n": 1}) == "tenant-7"
    assert key_of("{address[city]}", {"address": {"city": "Bonn"}}) == "Bonn"
    with pytest.raises(ValueError, match=r"cannot be filled in with the arguments n: 'tenant'"):
        key_of("tenant-{tenant}", {"n": 1})
    with pytest.raises(ValueError, match="at most 200"):
        key_of("{n}", {"n": "x" * 201})
