"""Leases: the holder renews them, the janitor takes expired ones, and people mark runs to stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Beat, Outcome, Report, Result, Run, Status
from mainspring.core.transitions import conclude, recover, retry
from mainspring.core.transitions import stop as stop_instead
from mainspring.jobstores.base import Hold, JobStore, RunQuery
from mainspring.jobstores.finding import count_unfinished
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    add_run,
    beat,
    claim,
    current,
    due_one,
    fail,
    fire,
    give_back,
    lapsed,
    make_run,
    new_token,
    plain,
    settle,
    start,
    stop,
    succeed,
)


class LeaseConformance:
    """Tests of how long a claim holds, and what its holder can report."""

    # -- since when it runs ------------------------------------------------------------------------------------

    def test_a_running_run_says_when_it_was_claimed_by_the_clock_of_the_store(self, store: JobStore) -> None:
        run = add_run(store)
        assert current(store, run).started_at is None
        before = store.beat()
        [claimed] = claim(store)
        started = current(store, run).started_at
        assert started == claimed.started_at
        assert started is not None
        assert before <= started <= store.beat()
        assert [one.started_at for one in store.find_runs(RunQuery(status=(Status.RUNNING,)))] == [started]

    def test_beats_and_a_repeated_claim_leave_the_time_of_the_first(self, store: JobStore) -> None:
        add_run(store)
        token = new_token()
        [run] = claim(store, token=token)
        assert run.started_at is not None
        store.shift_clock(1)
        store.extend([beat(run, progress=1)], LEASE)
        [again] = claim(store, token=token)
        assert again.started_at == current(store, run).started_at == run.started_at

    def test_a_run_that_waits_again_has_not_started_and_starts_anew(self, store: JobStore) -> None:
        run = start(store)
        assert run.started_at is not None
        assert settle(store, give_back(store, run))
        assert current(store, run).started_at is None
        store.shift_clock(1)
        [again] = claim(store)
        assert again.started_at is not None
        assert again.started_at >= run.started_at + SECOND

    def test_a_run_whose_node_is_gone_ends_with_the_time_of_its_claim(self, store: JobStore) -> None:
        run = start(store, policy=Policy(delivery="at_most_once"))
        store.shift_clock(LEASE + 1)
        [lost] = lapsed(store)
        assert lost.started_at == run.started_at
        assert settle(store, recover(lost, store.beat()))
        ended = current(store, run)
        assert (ended.status, ended.started_at) == (Status.FAILED, run.started_at)
        assert ended.finished_at is not None
        assert run.started_at is not None
        assert ended.finished_at - run.started_at >= LEASE * SECOND

    def test_a_run_that_was_not_started_in_time_ends_without_a_start(self, store: JobStore) -> None:
        run = start(store)
        assert settle(store, conclude(Report(run, Result.LATE), store.beat(), 0.5))
        assert current(store, run).started_at is None

    # -- extend ------------------------------------------------------------------------------------------------

    def test_a_holder_renews_its_lease(self, store: JobStore) -> None:
        run = start(store)
        store.shift_clock(LEASE - 10)
        assert store.extend([beat(run)], LEASE) == [Hold.HELD]
        until = current(store, run).lease_until
        assert until is not None
        assert store.beat() < until <= store.beat() + int(LEASE * SECOND)
        store.shift_clock(LEASE - 10)
        assert lapsed(store) == []
        store.shift_clock(20)
        assert [late.id for late in lapsed(store)] == [run.id]

    def test_a_renewal_changes_nothing_else(self, store: JobStore) -> None:
        run = start(store, priority=3, group="g")
        store.extend([beat(run)], 2 * LEASE)
        after = plain(current(store, run))
        assert {**after, "lease_until": None} == {**plain(run), "lease_until": None}

    def test_each_claim_is_answered_for_in_order(self, store: JobStore) -> None:
        waiting = add_run(store, queue="other")
        held, done, back, wanted = (start(store) for _ in range(4))
        store.settle([succeed(store, done)])
        store.cancel([wanted.id])
        settle(store, give_back(store, back))
        unknown, foreign = Beat("nobody", new_token()), Beat(held.id, new_token())
        beats = [beat(wanted), Beat(waiting.id, new_token()), beat(held), beat(done), beat(back), unknown, foreign]
        lost = Hold.LOST
        assert store.extend(beats, LEASE) == [Hold.CANCEL, lost, Hold.HELD, lost, lost, lost, lost]
        assert store.extend([], LEASE) == []

    def test_a_stale_token_renews_and_reports_nothing(self, store: JobStore) -> None:
        run = start(store)
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(run, store.beat()))
        assert store.extend([beat(run, progress=1)], LEASE) == [Hold.LOST]
        [theirs] = claim(store)
        assert store.extend([beat(run, progress=1, data={"a": 1}, log=("late",))], 10 * LEASE) == [Hold.LOST]
        assert plain(current(store, run)) == plain(theirs)

    def test_what_a_beat_reports_is_kept(self, store: JobStore) -> None:
        run = start(store)
        store.extend([beat(run, progress=0.5, data={"page": [1, 2]}, log=("one", "two"))], LEASE)
        now = current(store, run)
        assert (now.progress, now.data, now.log) == (0.5, {"page": [1, 2]}, ("one", "two"))

    def test_a_beat_that_reports_nothing_leaves_what_is_there(self, store: JobStore) -> None:
        run = start(store)
        store.extend([beat(run, progress=0.5, data={"page": 1}, log=("one",))], LEASE)
        store.extend([beat(run)], LEASE)
        store.extend([beat(run, progress=0.75)], LEASE)
        now = current(store, run)
        assert (now.progress, now.data, now.log) == (0.75, {"page": 1}, ("one",))

    def test_log_lines_are_appended_and_the_last_thousand_are_kept(self, store: JobStore) -> None:
        run = start(store)
        for first in (0, 600):
            store.extend([beat(run, log=tuple(f"line {n}" for n in range(first, first + 600)))], LEASE)
        assert current(store, run).log == tuple(f"line {n}" for n in range(200, 1200))

    def test_what_was_reported_outlives_the_end_of_the_run(self, store: JobStore) -> None:
        run = start(store)
        store.extend([beat(run, progress=0.5, data={"page": 1}, log=("one",))], LEASE)
        assert settle(store, succeed(store, run))
        kept = current(store, run)
        assert (kept.progress, kept.data, kept.log) == (0.5, {"page": 1}, ("one",))

    def test_what_the_last_word_says_replaces_what_was_reported(self, store: JobStore) -> None:
        run = start(store)
        store.extend([beat(run, progress=0.5, data={"page": 1}, log=("one",))], LEASE)
        done = succeed(store, replace(run, progress=1.0, data={"page": 2}, log=("one", "two")))
        assert settle(store, done)
        now = current(store, run)
        assert (now.progress, now.data, now.log) == (1.0, {"page": 2}, ("one", "two"))

    def test_what_was_reported_outlives_a_retry(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retries=1, backoff=(1.0,)))
        store.extend([beat(run, data={"page": 1}, log=("one",))], LEASE)
        assert settle(store, fail(store, run))
        store.shift_clock(10)
        [again] = claim(store)
        assert (again.data, again.log) == ({"page": 1}, ("one",))

    # -- expired -----------------------------------------------------------------------------------------------

    def test_only_running_runs_whose_lease_is_over_have_expired(self, store: JobStore) -> None:
        add_run(store, queue="other")
        done, dead, alive = (start(store) for _ in range(3))
        settle(store, succeed(store, done))
        assert lapsed(store) == []
        store.shift_clock(LEASE + 1)
        assert store.extend([beat(alive)], LEASE) == [Hold.HELD]
        [late] = lapsed(store)
        assert plain(late) == plain(dead)

    def test_expired_runs_come_in_pages(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(5)])
        claim(store)
        store.shift_clock(LEASE + 1)
        seen: set[str] = set()
        for expected in (2, 2, 1, 0):
            page = lapsed(store, 2)
            assert len(page) == expected
            assert all(store.settle([recover(run, store.beat()) for run in page]))
            seen.update(run.id for run in page)
        assert len(seen) == 5

    def test_a_lease_renewed_before_the_janitor_acts_is_not_taken(self, store: JobStore) -> None:
        run = start(store)
        store.shift_clock(LEASE + 1)
        [late] = lapsed(store)
        assert store.extend([beat(run)], LEASE) == [Hold.HELD]
        assert settle(store, recover(late, store.beat())) is False
        assert current(store, run).status is Status.RUNNING
        assert settle(store, succeed(store, run))

    def test_a_late_word_after_the_janitor_acted_changes_nothing(self, store: JobStore) -> None:
        run = start(store)
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(lapsed(store)[0], store.beat()))
        waiting = current(store, run)
        assert (waiting.status, waiting.interruptions, waiting.failures) == (Status.PENDING, 1, 0)
        late = [succeed(store, run), fail(store, run), give_back(store, run), stop(store, run)]
        assert store.settle(late) == [False] * 4
        assert store.extend([beat(run)], LEASE) == [Hold.LOST]
        assert plain(current(store, run)) == plain(waiting)

    def test_a_run_is_recovered_once(self, store: JobStore) -> None:
        start(store)
        store.shift_clock(LEASE + 1)
        [mine], [theirs] = lapsed(store), lapsed(store)
        outcomes = [recover(mine, store.beat()), recover(theirs, store.beat())]
        assert store.settle(outcomes) == [True, False]
        assert lapsed(store) == []
        [again] = claim(store)
        assert (again.attempt, again.interruptions) == (2, 1)

    def test_a_run_that_may_start_only_once_fails_with_its_node(self, store: JobStore) -> None:
        run = start(store, policy=Policy(delivery="at_most_once"))
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(lapsed(store)[0], store.beat()))
        lost = current(store, run)
        assert (lost.status, lost.reason, len(lost.errors)) == (Status.FAILED, "lost", 1)
        assert claim(store) == []

    # -- cancel marks ------------------------------------------------------------------------------------------

    def test_only_running_runs_are_marked_to_be_stopped(self, store: JobStore) -> None:
        waiting = add_run(store, queue="other")
        done, running = start(store), start(store)
        settle(store, succeed(store, done))
        answers = store.cancel([waiting.id, running.id, "nobody", done.id, running.id])
        assert answers == [False, True, False, False, True]
        assert [current(store, run).cancelling for run in (waiting, running, done)] == [False, True, False]
        assert current(store, running).status is Status.RUNNING

    def test_the_holder_learns_of_the_mark_and_keeps_the_lease(self, store: JobStore) -> None:
        run = start(store)
        store.cancel([run.id])
        store.shift_clock(LEASE - 10)
        assert store.extend([beat(run), beat(run)], LEASE) == [Hold.CANCEL, Hold.CANCEL]
        store.shift_clock(20)
        assert lapsed(store) == []
        assert settle(store, stop(store, run))
        assert current(store, run).status is Status.CANCELLED

    def test_a_holder_that_was_done_already_wins_over_the_mark(self, store: JobStore) -> None:
        run = start(store)
        store.cancel([run.id])
        assert settle(store, succeed(store, run, "done"))
        assert (current(store, run).status, current(store, run).result) == (Status.SUCCEEDED, "done")

    @pytest.mark.parametrize("back", [fail, give_back])
    def test_a_run_that_is_to_be_stopped_does_not_wait_again(
        self, store: JobStore, back: Callable[[JobStore, Run], Outcome]
    ) -> None:
        run = start(store, "job@1@10", job_id="job", unique="key", policy=Policy(retries=5))
        store.extend([beat(run, progress=0.5)], LEASE)
        assert store.cancel([run.id]) == [True]
        refused = back(store, run)
        assert refused.run.status is Status.PENDING
        assert settle(store, refused) is False
        assert (current(store, run).status, current(store, run).token) == (Status.RUNNING, run.token)
        instead = stop_instead(refused, store.beat())
        assert settle(store, instead)
        ended = current(store, run)
        assert (ended.status, ended.failures, ended.progress) == (Status.CANCELLED, refused.run.failures, 0.5)
        assert claim(store) == []
        assert store.stats().totals["cancelled"] == 1
        assert add_run(store, unique="key").id != run.id  # the key is free

    def test_only_who_holds_the_run_can_end_it_instead(self, store: JobStore) -> None:
        run = start(store)
        back = give_back(store, run)
        assert store.settle([back, back, stop_instead(back, store.beat())]) == [True, False, False]
        [again] = claim(store)
        assert settle(store, stop_instead(back, store.beat())) is False
        assert current(store, again).status is Status.RUNNING

    def test_of_several_given_back_at_once_only_those_marked_are_kept(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(4)])
        runs = claim(store)
        store.cancel([runs[1].id, runs[3].id])
        outcomes = [give_back(store, run) for run in runs[:3]] + [succeed(store, runs[3])]
        assert store.settle(outcomes) == [True, False, True, True]
        assert {run.id for run in claim(store)} == {runs[0].id, runs[2].id}

    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    def test_a_run_to_be_stopped_ends_as_cancelled_when_its_node_is_gone(self, store: JobStore, delivery: str) -> None:
        job = add_job(store, due_in=-10, every=60)
        assert fire(store, due_one(store)) is not None
        [fired] = claim(store)
        run = start(store, policy=Policy(delivery=delivery))
        store.shift_clock(LEASE + 1)
        read = next(late for late in lapsed(store) if late.id == fired.id)
        assert store.cancel([run.id, fired.id]) == [True, True]
        assert settle(store, recover(read, store.beat())) is False  # the record was read before it was marked
        outcomes = [recover(late, store.beat()) for late in lapsed(store)]
        assert store.settle(outcomes) == [True, True]
        assert [current(store, each).status for each in (run, fired)] == [Status.CANCELLED, Status.CANCELLED]
        assert count_unfinished(store, [(job.id, job.incarnation)]) == [0]
        assert store.stats(RunQuery(status=(Status.CANCELLED,))).matching == store.stats().totals["cancelled"] == 2

    def test_a_run_that_was_stopped_and_sent_back_is_no_longer_marked(self, store: JobStore) -> None:
        run = start(store)
        store.cancel([run.id])
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(lapsed(store)[0], store.beat()))
        assert settle(store, retry(current(store, run), store.beat()))
        [again] = claim(store)
        assert store.extend([beat(again)], LEASE) == [Hold.HELD]
        assert settle(store, give_back(store, again))
