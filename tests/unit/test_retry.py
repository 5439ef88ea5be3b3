"""When a failed run is tried again."""

from __future__ import annotations

from mainspring.retry import Backoff, Policy, delay_after


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
