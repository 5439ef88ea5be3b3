"""When a failed run is tried again."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from typing import Any

import pytest

from mainspring.core.policy import Backoff, Policy, delay_after
from mainspring.core.quantities import LONGEST_DELAY_SECONDS
from mainspring.errors import Retry


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1, factor=2, longest=10, jitter=0)
    assert [backoff.delay(n, 0.9) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_chance_only_shortens_a_delay_and_by_no_more_than_the_jitter() -> None:
    assert Backoff(first=8, jitter=0.5).delay(1, 0.0) == 8
    assert 4 < Backoff(first=8, jitter=0.5).delay(1, 0.999) < 4.1


def test_a_thousand_failures_do_not_overflow() -> None:
    assert Backoff().delay(100_000, 0.0) == 3600


def test_the_last_delay_of_a_list_repeats() -> None:
    assert [delay_after((1.0, 5.0), n, 0.5) for n in (1, 2, 3, 9)] == [1.0, 5.0, 5.0, 5.0]


def test_an_empty_list_means_at_once() -> None:
    assert delay_after((), 3, 0.5) == 0.0


def test_a_callable_is_asked_and_never_sends_a_run_into_the_past() -> None:
    assert delay_after(lambda failures: failures * 10.0, 3, 0.5) == 30.0
    assert delay_after(lambda failures: -1.0, 3, 0.5) == 0.0


def test_five_retries_mean_up_to_six_starts() -> None:
    policy = Policy(retries=5)
    assert [policy.wants_retry(failures, ValueError()) for failures in range(1, 8)] == [True] * 5 + [False] * 2


def test_only_the_named_exceptions_are_retried() -> None:
    policy = Policy(retries=9, retry_on=(OSError,), give_up_on=(FileNotFoundError,))
    assert policy.wants_retry(1, OSError())
    assert not policy.wants_retry(1, FileNotFoundError())
    assert not policy.wants_retry(1, ValueError())


@pytest.mark.parametrize(
    "backoff", [(1e14,), lambda failures: math.inf, lambda failures: 10**30, Backoff(1e14, longest=1e15, jitter=0)]
)
def test_no_delay_is_longer_than_every_store_can_say(backoff: Any) -> None:
    assert delay_after(backoff, 1, 0.5) == LONGEST_DELAY_SECONDS


def test_delays_that_grow_beyond_all_numbers_are_the_longest() -> None:
    assert Backoff(factor=1e10, jitter=0).delay(60, 0.5) == 3600


def test_a_function_may_return_a_timedelta() -> None:
    assert delay_after(lambda failures: timedelta(minutes=failures), 3, 0.5) == 180


def test_a_retry_takes_seconds_or_a_timedelta() -> None:
    assert [Retry(delay).delay for delay in (None, 5, 1.5, timedelta(minutes=1))] == [None, 5, 1.5, 60]
    assert pickle.loads(pickle.dumps(Retry(timedelta(minutes=1)))).delay == 60


@pytest.mark.parametrize("delay", ["5", True, [5], math.nan])
def test_a_retry_with_anything_else_is_refused_where_it_is_made(delay: Any) -> None:
    with pytest.raises(TypeError, match="Retry takes a delay as a number of seconds or a timedelta, not"):
        Retry(delay)
