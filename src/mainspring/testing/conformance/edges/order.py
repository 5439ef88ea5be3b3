"""Edges between runs: a run that comes after others is blocked until they have ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import HOLDS, ON, UNFINISHED, After, Condition, Outcome, Run, Status, bit_of
from mainspring.core.transitions import cancel, drop
from mainspring.jobstores.base import JobStore, QueueInfo, RunQuery, RunStanding
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_after,
    add_run,
    behind,
    break_,
    claim,
    current,
    fail,
    give_back,
    in_one_shard,
    make_run,
    miss,
    new_id,
    new_token,
    settle,
    start,
    stop,
    succeed,
)

ENDS = {
    Status.SUCCEEDED: succeed,
    Status.FAILED: fail,
    Status.CANCELLED: stop,
    Status.MISSED: miss,
    Status.BROKEN: break_,
}


@in_one_shard
class EdgeConformance:
    """Tests that add, release and refuse runs that come after others."""

    # -- blocked -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("given", [Status.PENDING, Status.BLOCKED])
    def test_a_run_after_another_is_blocked_not_claimed_and_found_as_blocked(
        self, store: JobStore, given: Status
    ) -> None:
        first = add_run(store)
        second = add_after(store, first, status=given)
        assert (second.status, second.waits, second.refused) == (Status.BLOCKED, 1, None)
        assert claim(store, "next") == []
        assert [run.id for run in store.find_runs(RunQuery(status=(Status.BLOCKED,)))] == [second.id]
        assert store.stats(RunQuery(status=(Status.BLOCKED,))).matching == 1

    def test_runs_that_wait_behind_one_another_are_all_found(self, store: JobStore) -> None:
        first = add_run(store)
        second = add_after(store, first)
        third = add_after(store, second, queue="later")  # it waits behind a run that waits itself
        assert {run.id for run in store.find_runs(RunQuery(status=(Status.BLOCKED,)))} == {second.id, third.id}
        assert [run.id for run in store.find_runs(RunQuery(status=UNFINISHED, queue="later"))] == [third.id]
        assert {run.id for run in store.find_runs(RunQuery(status=UNFINISHED))} == {first.id, second.id, third.id}

    def test_what_a_run_comes_after_is_kept_as_it_was_given(self, store: JobStore) -> None:
        first, second = add_run(store), add_run(store)
        after = (After(first.id, ON["end"]), After(second.id, ON["failure"] | HOLDS))
        assert add_after(store, after=after).after == after

    def test_runs_of_one_call_come_after_one_another(self, store: JobStore) -> None:
        first = make_run(store)
        second = make_run(store, after=behind(first))
        third = make_run(store, after=behind(first, second))
        assert store.add_runs([first, second, third]) == [first.id, second.id, third.id]
        assert [(current(store, run).waits, current(store, run).followed) for run in (first, second, third)] == [
            (0, 2),
            (1, 1),
            (2, 0),
        ]
        for run in (first, second, third):
            [claimed] = claim(store)
            assert claimed.id == run.id
            assert settle(store, succeed(store, claimed))

    def test_a_claim_of_blocked_runs_only_names_no_time(self, store: JobStore) -> None:
        add_after(store, start(store))
        assert store.claim([(["next"], 9)], node=NODE, token=new_token(), lease=LEASE).next_at is None

    def test_a_blocked_run_is_not_marked_to_be_stopped(self, store: JobStore) -> None:
        run = add_after(store, add_run(store))
        assert store.cancel([run.id]) == [False]

    def test_blocked_runs_are_counted_in_their_queue(self, store: JobStore) -> None:
        first = start(store)
        add_after(store, first)
        add_after(store, first, due_in=50)
        assert [queue for queue in store.stats().queues if queue.name == "next"] == [QueueInfo(name="next", blocked=2)]
        settle(store, succeed(store, first))
        [queue] = store.stats().queues
        assert (queue.name, queue.blocked, queue.waiting, queue.delayed) == ("next", 0, 1, 1)

    def test_standings_tell_the_status_and_who_refused(self, store: JobStore) -> None:
        first = start(store)
        second, third = add_after(store, first), add_after(store, first, on="end")
        ids = [third.id, new_id("nobody"), first.id, second.id, first.id]
        running, blocked = RunStanding(Status.RUNNING), RunStanding(Status.BLOCKED)
        assert store.standings(ids) == [blocked, None, running, blocked, running]
        settle(store, fail(store, first))
        failed = RunStanding(Status.FAILED)
        assert store.standings(ids) == [
            RunStanding(Status.PENDING),
            None,
            failed,
            RunStanding(Status.PENDING, first.id),
            failed,
        ]
        assert store.standings([]) == []

    # -- released ----------------------------------------------------------------------------------------------

    def test_a_run_is_released_when_the_last_of_its_predecessors_has_ended(self, store: JobStore) -> None:
        first, second, third = start(store), start(store), start(store)
        run = add_after(store, first, second, third)
        for number, each in enumerate((second, first)):
            assert settle(store, succeed(store, each))
            assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 2 - number)
            assert claim(store, "next") == []
        before = store.beat()
        assert settle(store, succeed(store, third))
        released = current(store, run)
        assert (released.status, released.waits, released.refused) == (Status.PENDING, 0, None)
        assert before <= released.run_at <= store.beat()
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_predecessors_that_end_in_one_call_release_it_once(self, store: JobStore) -> None:
        firsts = [start(store) for _ in range(3)]
        run = add_after(store, *firsts)
        assert store.settle([succeed(store, first) for first in firsts]) == [True] * 3
        assert [(one.id, one.attempt) for one in claim(store, "next")] == [(run.id, 1)]
        assert claim(store, "next") == []

    def test_one_end_releases_all_that_come_after(self, store: JobStore) -> None:
        first = start(store)
        runs = [make_run(store, queue="next", after=behind(first)) for _ in range(200)]
        assert store.add_runs(runs) == [run.id for run in runs]
        answers = store.settle([succeed(store, first)])
        assert (answers, answers.refused) == ([True], ())
        assert {run.id for run in claim(store, "next")} == {run.id for run in runs}

    def test_an_end_without_a_start_releases_too(self, store: JobStore) -> None:
        signal = add_run(store, queue="!signal")
        run = add_after(store, signal)
        given = replace(signal, status=Status.SUCCEEDED, result="yes", finished_at=store.beat())
        assert store.settle([Outcome(given, Condition.WAITING), Outcome(given, Condition.WAITING)]) == [True, False]
        assert [one.id for one in claim(store, "next")] == [run.id]

    @pytest.mark.parametrize("end", [succeed, fail])
    def test_an_outcome_that_is_not_written_releases_and_refuses_nobody(
        self, store: JobStore, end: Callable[[JobStore, Run], Outcome]
    ) -> None:
        first = start(store)
        run = add_after(store, first)
        answers = store.settle([end(store, replace(first, token=new_token()))])
        assert (answers, answers.refused) == ([False], ())
        assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 1)

    def test_a_run_that_waits_again_releases_nobody(self, store: JobStore) -> None:
        first, second = start(store, policy=Policy(retries=1)), start(store)
        runs = [add_after(store, first, on="end"), add_after(store, second)]
        assert store.settle([fail(store, first), give_back(store, second)]) == [True, True]
        assert [current(store, run).status for run in runs] == [Status.BLOCKED] * 2
        assert [current(store, run).followed for run in (first, second)] == [1, 1]

    def test_a_successor_added_after_the_claim_is_released(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        assert first.followed == 0
        assert settle(store, succeed(store, first))
        assert current(store, run).status is Status.PENDING
        assert current(store, first).followed == 1

    def test_what_follows_a_settle_may_come_after_it(self, store: JobStore) -> None:
        first = start(store)
        good = make_run(store, queue="next", after=behind(first))
        last = make_run(store, queue="next", after=behind(good))
        bad = make_run(store, queue="next", after=behind(first, on="failure"))
        lost = make_run(store, queue="next", after=(After(new_id("nobody")),))
        answers = store.settle([replace(succeed(store, first), then=(good, last, bad, lost))])
        assert (answers, answers.refused) == ([True], (bad.id,))
        assert [each and each.status for each in store.standings([good.id, last.id, bad.id, lost.id])] == [
            Status.PENDING,
            Status.BLOCKED,
            Status.PENDING,
            None,
        ]
        assert {run.id: run.refused for run in claim(store, "next")} == {good.id: None, bad.id: first.id}

    def test_what_follows_a_run_that_waits_again_may_wait_for_its_end(self, store: JobStore) -> None:
        first = start(store)
        run = make_run(store, queue="next", after=behind(first))
        assert settle(store, replace(give_back(store, first), then=(run,)))
        assert current(store, run).status is Status.BLOCKED
        [again] = claim(store)
        assert again.followed == 1
        assert settle(store, succeed(store, again))
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_a_release_wakes_a_sleeper(self, store: JobStore) -> None:
        first = start(store)
        add_after(store, first)
        cursor = store.wait(0, 0)
        settle(store, succeed(store, first))
        assert store.wait(cursor, 30) != cursor

    def test_a_released_run_starts_after_its_delay_counted_from_its_release(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first, run_at=-60 * SECOND)
        store.shift_clock(30)
        assert settle(store, succeed(store, first))
        assert 0 <= store.beat() + 60 * SECOND - current(store, run).run_at < 30 * SECOND
        store.shift_clock(29)
        assert claim(store, "next") == []
        store.shift_clock(32)
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_a_delay_counts_at_once_if_nothing_is_left_to_wait_for(self, store: JobStore) -> None:
        first = start(store)
        settle(store, succeed(store, first))
        run = add_after(store, first, run_at=-60 * SECOND)
        assert run.status is Status.PENDING
        assert claim(store, "next") == []
        store.shift_clock(61)
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_a_released_run_waits_for_a_time_that_lies_ahead(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first, due_in=100)
        settle(store, succeed(store, first))
        assert (current(store, run).status, current(store, run).run_at) == (Status.PENDING, run.run_at)
        assert claim(store, "next") == []
        store.shift_clock(101)
        assert [one.id for one in claim(store, "next")] == [run.id]

    # -- refused -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("status", list(ENDS))
    def test_a_mask_lets_the_ends_pass_that_it_names_and_no_others(self, store: JobStore, status: Status) -> None:
        first = start(store)
        masks = [*range(32), ON["end"] | HOLDS, HOLDS]
        runs = [make_run(store, queue="next", after=behind(first, on=mask)) for mask in masks]
        store.add_runs(runs)
        answers = store.settle([ENDS[status](store, first)])
        late = [make_run(store, queue="next", after=behind(first, on=mask)) for mask in masks]
        added = store.add_runs(late)
        for which, said in ((runs, answers.refused), (late, added.refused)):
            expected = {run.id for run, mask in zip(which, masks, strict=True) if not mask & bit_of(status)}
            assert set(said) == expected
            assert len(said) == len(expected)
        claimed = {run.id: run.refused for run in claim(store, "next")}
        assert claimed == {
            run.id: None if mask & bit_of(status) else first.id
            for which in (runs, late)
            for run, mask in zip(which, masks, strict=True)
        }

    def test_a_refused_run_is_claimable_at_once_in_its_queue_and_says_by_whom(self, store: JobStore) -> None:
        first, other = start(store), start(store)
        delayed = add_after(store, first, run_at=-60 * SECOND)
        put_off = add_after(store, first, other, due_in=500)
        answers = store.settle([fail(store, first)])
        assert set(answers.refused) == {delayed.id, put_off.id}
        assert current(store, put_off).status is Status.PENDING
        assert {run.id: run.refused for run in claim(store, "next")} == {delayed.id: first.id, put_off.id: first.id}

    def test_a_refused_run_that_was_claimed_is_cancelled_and_not_charged_a_start(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        store.settle([fail(store, first)])
        (claimed,) = claim(store, "next")
        assert (claimed.id, claimed.attempt) == (run.id, 1)
        assert store.settle([drop(claimed, "it cannot run", store.beat())]) == [True]
        ended = current(store, run)
        assert (ended.status, ended.attempt, ended.node, ended.reason) == (Status.CANCELLED, 0, None, "it cannot run")

    def test_refused_beats_satisfied_in_the_same_call(self, store: JobStore) -> None:
        firsts = [start(store) for _ in range(3)]
        run = add_after(store, *firsts)
        answers = store.settle([succeed(store, firsts[0]), fail(store, firsts[1]), succeed(store, firsts[2])])
        assert answers.refused == (run.id,)
        assert current(store, run).refused == firsts[1].id

    def test_a_run_that_was_refused_is_not_refused_or_released_again(self, store: JobStore) -> None:
        first, second, third = start(store), start(store), start(store)
        run = add_after(store, first, second, third)
        assert store.settle([fail(store, first)]).refused == (run.id,)
        assert store.settle([fail(store, second)]).refused == ()
        assert store.settle([succeed(store, third)]).refused == ()
        assert [(one.id, one.refused) for one in claim(store, "next")] == [(run.id, first.id)]
        assert claim(store, "next") == []

    def test_a_refused_run_that_is_given_back_is_still_refused(self, store: JobStore) -> None:
        first = start(store)
        add_after(store, first)
        settle(store, fail(store, first))
        [run] = claim(store, "next")
        assert settle(store, give_back(store, replace(run, refused=None)))
        [again] = claim(store, "next")
        assert again.refused == first.id
        assert settle(store, stop(store, again))
        assert current(store, run).refused == first.id

    def test_a_run_cancelled_while_blocked_is_not_released_later(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        last = add_after(store, run)
        answers = store.settle([cancel(run, store.beat())])
        assert (answers, answers.refused) == ([True], (last.id,))
        assert store.settle([succeed(store, first)]).refused == ()
        assert current(store, run).status is Status.CANCELLED
        assert [(one.id, one.refused) for one in claim(store, "next")] == [(last.id, run.id)]

    # -- added late --------------------------------------------------------------------------------------------

    def test_a_successor_of_one_that_ended_well_is_pending_at_once(self, store: JobStore) -> None:
        first = start(store)
        settle(store, succeed(store, first))
        run = make_run(store, queue="next", after=behind(first), status=Status.BLOCKED)
        answers = store.add_runs([run])
        assert (answers, answers.refused) == ([run.id], ())
        assert [(one.id, one.refused) for one in claim(store, "next")] == [(run.id, None)]
        assert current(store, first).followed == 1

    def test_a_successor_of_one_that_ended_badly_is_refused_at_once(self, store: JobStore) -> None:
        first, other = start(store), start(store)
        settle(store, fail(store, first))
        run = make_run(store, queue="next", due_in=500, after=behind(other, first))
        last = make_run(store, queue="next", after=behind(run))
        answers = store.add_runs([run, last])
        assert (answers, answers.refused) == ([run.id, last.id], (run.id,))
        assert current(store, last).status is Status.BLOCKED
        assert [(one.id, one.refused) for one in claim(store, "next")] == [(run.id, first.id)]

    def test_a_run_after_one_that_is_not_there_is_not_stored_nor_those_after_it(self, store: JobStore) -> None:
        there, gone = start(store), start(store)
        settle(store, succeed(store, gone))
        store.delete_runs([gone.id])
        lost = make_run(store, after=behind(there, gone))
        beyond = make_run(store, after=behind(lost))
        own_id, later_id = new_id("own"), new_id("later")
        own = make_run(store, own_id, after=(After(own_id),))
        good = make_run(store, after=behind(there))
        early = make_run(store, after=(After(later_id),))
        later = make_run(store, later_id)
        answers = store.add_runs([lost, beyond, own, good, early, later])
        assert (answers, answers.refused) == ([None, None, None, good.id, None, later_id], ())
        assert store.standings([lost.id, beyond.id, own_id, early.id]) == [None] * 4
        assert current(store, there).followed == 1

    def test_a_known_id_is_answered_before_its_predecessors_are_looked_at(self, store: JobStore) -> None:
        first = start(store)
        run, last = (make_run(store, queue="next", after=behind(first)) for _ in range(2))
        store.add_runs([run])
        settle(store, fail(store, first))
        store.delete_runs([first.id])
        again = replace(run, after=(After(new_id("nobody")),))
        answers = store.add_runs([run, again, replace(last, after=behind(run))])
        assert (answers, answers.refused) == ([run.id, run.id, last.id], ())
        assert (current(store, run).followed, current(store, last).status) == (1, Status.BLOCKED)

    def test_a_blocked_run_holds_its_key(self, store: JobStore) -> None:
        run = add_after(store, add_run(store), unique="{flow}key")
        assert store.add_runs([make_run(store, unique="{flow}key")]) == [run.id]
        assert settle(store, cancel(run, store.beat()))
        add_run(store, unique="{flow}key")

    def test_if_its_key_is_taken_nothing_of_a_flow_is_stored(self, store: JobStore) -> None:
        holder = add_run(store, unique="{flow}key")
        first = make_run(store, unique="{flow}key")
        second = make_run(store, after=behind(first))
        third = make_run(store, after=behind(second, holder))
        assert store.add_runs([first, second, third]) == [holder.id, None, None]
        assert store.standings([first.id, second.id, third.id]) == [None] * 3
        assert current(store, holder).followed == 0

    def test_a_run_has_at_most_a_thousand_successors_and_predecessors(self, store: JobStore) -> None:
        first = start(store)
        runs = [make_run(store, queue="next", after=behind(first)) for _ in range(1000)]
        assert store.add_runs(runs) == [run.id for run in runs]
        extra = make_run(store, queue="next", after=behind(first))
        with pytest.raises(ValueError, match=r"1,?000"):
            store.add_runs([extra])
        join = make_run(store, queue="next", after=behind(*runs))
        wide = make_run(store, queue="next", after=behind(first, *runs))
        with pytest.raises(ValueError, match=r"1,?000"):
            store.add_runs([wide])
        assert store.add_runs([join]) == [join.id]
        assert store.standings([extra.id, wide.id]) == [None, None]
        assert (current(store, first).followed, current(store, join).waits) == (1000, 1000)
