"""Settling: a store writes a run's next record, with all that follows from it, if its condition holds, else nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import FINAL, Condition, Outcome, Run, Status
from mainspring.core.transitions import cancel, retry
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_after,
    add_run,
    break_,
    cancel_all,
    claim,
    current,
    fail,
    give_back,
    make_run,
    new_id,
    new_token,
    plain,
    settle,
    start,
    stop,
    succeed,
    together,
)

ALL = RunQuery()
HOLDS = {
    Condition.HELD: {"running", "expired"},
    Condition.EXPIRED: {"expired"},
    Condition.WAITING: {"pending", "given back", "blocked", "refused"},
    Condition.REFUSED: {"refused"},
    Condition.FINISHED: {"succeeded", "failed", "cancelled", "broken"},
}
STATES = (
    "pending",
    "given back",
    "blocked",
    "refused",
    "running",
    "expired",
    "succeeded",
    "failed",
    "cancelled",
    "broken",
)


class SettleConformance:
    """Tests of how a run changes."""

    # -- conditions --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.parametrize("condition", list(Condition))
    def test_a_condition_holds_in_its_states_only(self, store: JobStore, state: str, condition: Condition) -> None:
        run = _run_that_is(store, state)
        status = Status.PENDING if condition is Condition.FINISHED else Status.CANCELLED
        written = replace(run, status=status, reason="settled")
        assert settle(store, Outcome(written, condition)) is (state in HOLDS[condition])
        assert current(store, run).reason == ("settled" if state in HOLDS[condition] else run.reason)

    @pytest.mark.parametrize("state", STATES)
    def test_another_token_is_refused_under_every_condition(self, store: JobStore, state: str) -> None:
        run = _run_that_is(store, state)
        stale = replace(run, token=new_token(), status=Status.CANCELLED, reason="settled")
        followers = [make_run(store) for _ in Condition]
        outcomes = [
            Outcome(stale, condition, (follower,)) for condition, follower in zip(Condition, followers, strict=True)
        ]
        assert store.settle(outcomes) == [False] * len(Condition)
        assert plain(current(store, run)) == plain(run)
        assert store.get_runs([follower.id for follower in followers]) == [None] * len(Condition)

    def test_a_run_that_is_not_there_is_refused(self, store: JobStore) -> None:
        run = make_run(store)
        assert store.settle([Outcome(run, condition) for condition in Condition]) == [False] * len(Condition)
        assert store.stats(ALL).matching == 0

    def test_each_outcome_of_a_batch_stands_alone_and_is_answered_in_order(self, store: JobStore) -> None:
        store.add_runs([make_run(store, due_in=-n) for n in range(3)])
        first, second, third = claim(store)
        assert settle(store, give_back(store, second))
        answers = store.settle([succeed(store, first, 1), succeed(store, second, 2), succeed(store, third, 3)])
        assert answers == [True, False, True]
        assert [current(store, run).result for run in (first, second, third)] == [1, None, 3]
        assert store.settle([]) == []

    def test_of_two_words_about_a_run_the_first_counts(self, store: JobStore) -> None:
        run = start(store)
        assert store.settle([fail(store, run), succeed(store, run)]) == [True, False]
        assert settle(store, succeed(store, run)) is False
        assert current(store, run).status is Status.FAILED

    def test_an_outcome_is_packed_by_one_thread_and_written_by_another_once(self, store: JobStore) -> None:
        run = start(store)
        follower = make_run(store)
        packed = store.pack_outcome(replace(succeed(store, run, [1, "two"]), then=(follower,)))
        assert current(store, run).status is Status.RUNNING
        assert sorted(together(2, lambda _: store.settle([packed]))) == [[False], [True]]
        assert current(store, run).result == [1, "two"]
        assert current(store, follower).status is Status.PENDING

    def test_hundreds_of_runs_are_settled_at_once(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(300)])
        assert store.settle([succeed(store, run) for run in claim(store)]) == [True] * 300
        assert store.stats(RunQuery(status=(Status.SUCCEEDED,))).matching == 300

    # -- what is written ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", [succeed, fail, stop, break_])
    def test_the_end_of_a_run_is_written_as_it_is(
        self, store: JobStore, end: Callable[[JobStore, Run], Outcome]
    ) -> None:
        run = start(store, group="g", priority=4, fire_time=1_763_000_000_123_457)
        outcome = end(store, run)
        assert settle(store, outcome)
        assert plain(current(store, run)) == plain(outcome.run)
        assert current(store, run).status in FINAL
        assert claim(store) == []

    def test_a_result_is_kept(self, store: JobStore) -> None:
        run = start(store)
        value = {"total": 3, "ratio": 0.5, "rows": [["a", None], ["b", True]], "text": "ünïcödé"}
        settle(store, succeed(store, run, value))
        assert current(store, run).result == value

    def test_errors_are_kept_from_attempt_to_attempt(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retries=1, backoff=(1.0,)))
        settle(store, fail(store, run, "first"))
        store.shift_clock(10)
        [run] = claim(store)
        settle(store, fail(store, run, "second"))
        ended = current(store, run)
        assert [(error.type, error.message, error.attempt) for error in ended.errors] == [
            ("ValueError", "first", 1),
            ("ValueError", "second", 2),
        ]
        assert (ended.status, ended.failures) == (Status.FAILED, 2)

    def test_a_run_to_be_retried_waits_for_its_time(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retries=1, backoff=(30.0,)))
        outcome = fail(store, run)
        assert settle(store, outcome)
        assert plain(current(store, run)) == plain(outcome.run)
        assert claim(store) == []
        store.shift_clock(31)
        [again] = claim(store)
        assert (again.id, again.attempt, again.failures) == (run.id, 2, 1)

    def test_a_run_given_back_is_claimable_at_once_and_uncharged(self, store: JobStore) -> None:
        run = start(store)
        assert settle(store, give_back(store, run))
        [again] = claim(store)
        assert (again.id, again.attempt, again.failures) == (run.id, 1, 0)
        assert again.token != run.token

    def test_a_run_may_go_back_to_another_queue(self, store: JobStore) -> None:
        run = start(store)
        back = give_back(store, run)
        assert settle(store, replace(back, run=replace(back.run, queue="other", priority=9)))
        assert claim(store) == []
        assert [(one.id, one.priority) for one in claim(store, "other")] == [(run.id, 9)]

    # -- by a person -------------------------------------------------------------------------------------------

    def test_a_waiting_run_is_cancelled(self, store: JobStore) -> None:
        run = add_run(store)
        assert settle(store, cancel(run, store.beat()))
        assert current(store, run).status is Status.CANCELLED
        assert claim(store) == []

    def test_a_delayed_run_is_cancelled(self, store: JobStore) -> None:
        run = add_run(store, due_in=100)
        assert settle(store, cancel(run, store.beat()))
        store.shift_clock(200)
        assert claim(store) == []

    def test_a_run_claimed_meanwhile_is_not_cancelled_as_waiting(self, store: JobStore) -> None:
        read = add_run(store)
        [run] = claim(store)
        assert settle(store, cancel(read, store.beat())) is False
        assert settle(store, give_back(store, run))
        assert settle(store, cancel(read, store.beat())) is False
        assert current(store, run).status is Status.PENDING
        assert settle(store, cancel(current(store, run), store.beat()))

    def test_a_finished_run_is_not_cancelled(self, store: JobStore) -> None:
        run = start(store)
        settle(store, succeed(store, run))
        assert settle(store, cancel(current(store, run), store.beat())) is False
        assert current(store, run).status is Status.SUCCEEDED

    @pytest.mark.parametrize("state", ["failed", "cancelled", "broken"])
    def test_a_person_sends_a_finished_run_back(self, store: JobStore, state: str) -> None:
        run = _run_that_is(store, state)
        assert settle(store, retry(run, store.beat()))
        waiting = current(store, run)
        assert (waiting.status, waiting.finished_at, waiting.reason) == (Status.PENDING, None, None)
        [again] = claim(store)
        assert again.id == run.id
        assert settle(store, succeed(store, again))

    def test_a_run_is_sent_back_once(self, store: JobStore) -> None:
        read = _run_that_is(store, "failed")
        again = retry(read, store.beat())
        assert store.settle([again, again]) == [True, False]
        [run] = claim(store)
        settle(store, fail(store, run))
        assert settle(store, again) is False
        assert current(store, run).status is Status.FAILED
        assert claim(store) == []

    def test_a_deleted_run_is_not_sent_back(self, store: JobStore) -> None:
        run = _run_that_is(store, "failed")
        store.delete_runs([run.id])
        assert settle(store, retry(run, store.beat())) is False
        assert store.get_runs([run.id]) == [None]

    # -- then --------------------------------------------------------------------------------------------------

    def test_what_follows_is_added_with_the_settle(self, store: JobStore) -> None:
        run = start(store)
        now, later = make_run(store, queue="other", due_in=-20), make_run(store, queue="other", due_in=100)
        assert settle(store, replace(succeed(store, run), then=(now, later)))
        assert plain(current(store, now)) == plain(now)
        assert [one.id for one in claim(store, "other")] == [now.id]
        store.shift_clock(101)
        assert [one.id for one in claim(store, "other")] == [later.id]

    def test_nothing_follows_from_a_settle_that_is_refused(self, store: JobStore) -> None:
        run = start(store)
        done = succeed(store, run)
        settle(store, done)
        follower = make_run(store)
        assert settle(store, replace(done, then=(follower,))) is False
        assert store.get_runs([follower.id]) == [None]

    def test_what_follows_is_added_once(self, store: JobStore) -> None:
        first, second = start(store), start(store)
        follower = make_run(store, queue="other")
        assert store.settle(
            [
                replace(succeed(store, first), then=(follower,)),
                replace(succeed(store, second), then=(follower, replace(follower, priority=5))),
            ]
        ) == [True, True]
        assert [(one.id, one.priority) for one in claim(store, "other")] == [(follower.id, 0)]

    def test_what_follows_respects_a_unique_key(self, store: JobStore) -> None:
        holder = add_run(store, queue="other", unique="key")
        run = start(store)
        assert settle(store, replace(succeed(store, run), then=(make_run(store, queue="other", unique="key"),)))
        assert [one.id for one in claim(store, "other")] == [holder.id]

    def test_a_key_freed_by_a_settle_can_be_taken_by_what_follows(self, store: JobStore) -> None:
        run = start(store, unique="key")
        follower = make_run(store, unique="key")
        assert settle(store, replace(succeed(store, run), then=(follower,)))
        assert [one.id for one in claim(store)] == [follower.id]

    # -- counters ----------------------------------------------------------------------------------------------

    def test_the_counters_are_zero_at_first(self, store: JobStore) -> None:
        counters = store.stats().totals
        assert {str(status): counters[status] for status in FINAL} == {str(status): 0 for status in FINAL}

    def test_the_counters_agree_with_a_recount(self, store: JobStore) -> None:
        ends = [succeed] * 3 + [fail] * 2 + [stop, break_]
        store.add_runs([make_run(store) for _ in ends])
        assert all(store.settle([end(store, run) for end, run in zip(ends, claim(store), strict=True)]))
        store.add_runs([make_run(store), make_run(store)])
        settle(store, cancel(store.find_runs(RunQuery(status=(Status.PENDING,)))[0], store.beat()))
        cancel_all(store)
        counters = store.stats().totals
        recount = {str(status): store.stats(RunQuery(status=(status,))).matching for status in FINAL}
        assert {name: counters[name] for name in recount} == recount
        assert recount == {"succeeded": 3, "failed": 2, "cancelled": 3, "broken": 1, "missed": 0}

    def test_the_counters_never_go_back(self, store: JobStore) -> None:
        run = _run_that_is(store, "failed")
        settle(store, retry(run, store.beat()))
        assert store.stats().totals["failed"] == 1
        [again] = claim(store)
        settle(store, succeed(store, again))
        store.delete_runs([run.id])
        assert (store.stats().totals["failed"], store.stats().totals["succeeded"]) == (1, 1)

    def test_a_refused_settle_is_not_in_the_counters(self, store: JobStore) -> None:
        run = start(store)
        store.settle([succeed(store, run), succeed(store, run), fail(store, run)])
        assert (store.stats().totals["succeeded"], store.stats().totals["failed"]) == (1, 0)

    # -- time --------------------------------------------------------------------------------------------------

    def test_the_times_of_a_run_are_kept_to_the_microsecond(self, store: JobStore) -> None:
        run = start(store)
        done = succeed(store, run)
        odd = replace(done.run, started_at=1_763_000_000_123_457, finished_at=1_763_000_001_000_001)
        settle(store, replace(done, run=odd))
        kept = current(store, run)
        assert (kept.started_at, kept.finished_at) == (odd.started_at, odd.finished_at)
        assert kept.created_at == run.created_at
        assert store.beat() - run.created_at < 3600 * SECOND


def _run_that_is(store: JobStore, state: str) -> Run:
    """Bring a run into a state, and return it as stored."""
    if state == "pending":
        return add_run(store)
    if state in ("blocked", "refused"):
        first = start(store, new_id("{flow}run"))
        waiting = add_after(store, first, id=new_id("{flow}run"))
        if state == "refused":
            assert settle(store, fail(store, first))
        return current(store, waiting)
    run = start(store)
    if state == "expired":
        store.shift_clock(LEASE + 1)
    ends = {"succeeded": succeed, "failed": fail, "cancelled": stop, "broken": break_, "given back": give_back}
    if state in ends:
        assert settle(store, ends[state](store, run))
    return current(store, run)
