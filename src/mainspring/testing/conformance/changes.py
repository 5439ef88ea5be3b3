"""Changes that people make to a run: change a waiting run, drop a refused one, send one back.

A change gives a run another queue, time or priority, unless a node claims the run first.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import After, Condition, Outcome, Run, Status
from mainspring.core.transitions import cancel, change, retry
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    add_after,
    add_run,
    break_,
    claim,
    current,
    drop,
    fail,
    give_back,
    in_one_shard,
    make_job,
    make_run,
    moved,
    new_id,
    new_token,
    send_back,
    settle,
    start,
    stop,
    succeed,
)
from mainspring.triggers.interval import IntervalTrigger


class ChangeConformance:
    """Tests of changes to a waiting run."""

    def test_a_moved_run_is_claimed_from_its_new_queue_only(self, store: JobStore) -> None:
        run = add_run(store, unique="key", group="g")
        assert settle(store, change(run, queue="other"))
        assert claim(store) == []
        [moved] = claim(store, "other")
        assert (moved.id, moved.queue, moved.call.args, moved.group) == (run.id, "other", run.call.args, "g")
        assert store.stats(RunQuery(queue="default")).matching == 0
        assert store.add_runs([make_run(store, unique="key")]) == [run.id]
        assert settle(store, succeed(store, moved, "done"))
        assert (current(store, run).queue, current(store, run).result) == ("other", "done")

    def test_a_moved_run_may_fail_be_sent_back_and_be_moved_again(self, store: JobStore) -> None:
        run = add_run(store)
        assert settle(store, change(run, queue="other"))
        [moved] = claim(store, "other")
        assert settle(store, fail(store, moved))
        assert settle(store, retry(current(store, run), store.beat()))
        assert settle(store, change(current(store, run), queue="default"))
        assert claim(store, "other") == []
        assert [one.id for one in claim(store)] == [run.id]

    def test_a_moved_run_that_is_broken_can_be_sent_back(self, store: JobStore) -> None:
        run = add_run(store)
        settle(store, change(run, queue="other"))
        [moved] = claim(store, "other")
        assert settle(store, break_(store, moved))
        assert settle(store, retry(current(store, run), store.beat()))
        assert [one.call.args for one in claim(store, "other")] == [run.call.args]

    def test_a_postponed_run_waits_until_its_new_time(self, store: JobStore) -> None:
        run = add_run(store, start_by=store.beat() + SECOND)
        assert settle(store, change(run, run_at=store.beat() + 100 * SECOND))
        assert claim(store) == []
        store.shift_clock(101)
        [late] = claim(store)
        assert (late.id, late.start_by) == (run.id, None)

    def test_a_delayed_run_may_be_brought_forward(self, store: JobStore) -> None:
        run = add_run(store, due_in=1000)
        assert settle(store, change(run, run_at=store.beat()))
        assert [one.id for one in claim(store)] == [run.id]

    def test_a_prioritized_run_is_claimed_first(self, store: JobStore) -> None:
        first, second = add_run(store, due_in=-20), add_run(store, due_in=-10)
        assert settle(store, change(second, priority=7))
        claimed = claim(store)
        assert [(one.id, one.priority) for one in claimed] == [(second.id, 7), (first.id, 0)]

    def test_a_run_that_was_claimed_meanwhile_is_not_changed(self, store: JobStore) -> None:
        read = add_run(store)
        [held] = claim(store)
        assert settle(store, change(read, queue="other")) is False
        assert settle(store, give_back(store, held))
        assert settle(store, change(read, queue="other")) is False  # the stored record has changed since
        assert settle(store, change(current(store, read), queue="other"))
        assert [one.id for one in claim(store, "other")] == [read.id]

    def test_a_run_that_has_ended_is_not_changed(self, store: JobStore) -> None:
        run = start(store)
        settle(store, succeed(store, run))
        with pytest.raises(ValueError, match="only a run that waits can be changed"):
            change(current(store, run), queue="other")
        waiting = Outcome(change(make_run(store, run.id), queue="other").run, Condition.WAITING)
        assert settle(store, waiting) is False
        assert current(store, run).status is Status.SUCCEEDED

    def test_what_a_changed_job_was_declared_as_is_kept(self, store: JobStore) -> None:
        job = make_job(store, "declared")
        job.declared = "a digest"
        store.add_job(job)
        read = store.lookup_job("declared")
        assert read is not None
        assert read.overridden == {}
        changed = read.evolve(args=("changed",), queue="other", retries=3, trigger=IntervalTrigger(days=9))
        store.update_job(changed)
        kept = store.lookup_job("declared")
        assert kept is not None
        assert set(kept.overridden) == {"call", "queue", "policy", "trigger"}
        assert (kept.overridden["call"].args, kept.overridden["queue"]) == (job.args, job.queue)
        assert (kept.overridden["policy"], kept.overridden["trigger"]) == (job.policy, job.trigger)

    def test_what_a_run_was_copied_from_is_kept(self, store: JobStore) -> None:
        run = start(store, copied_from="another")
        assert settle(store, succeed(store, run))
        assert current(store, run).copied_from == "another"


@in_one_shard
class SendBackConformance:
    """Tests of people's changes to runs that come after others, and of the effects of a refusal."""

    # -- changed -----------------------------------------------------------------------------------------------

    def test_a_blocked_run_is_changed_and_stays_blocked(self, store: JobStore) -> None:
        first, second = start(store), start(store)
        run = add_after(store, first, second)
        last = add_after(store, run)
        changed = replace(moved(run, "other"), priority=7, waits=0, followed=0)
        assert settle(store, Outcome(changed, Condition.WAITING))
        now = current(store, run)
        assert (now.status, now.waits, now.followed, now.queue) == (Status.BLOCKED, 2, 1, "other")
        assert store.settle([succeed(store, first), succeed(store, second)]) == [True, True]
        assert claim(store, "next") == []
        assert [(one.id, one.priority) for one in claim(store, "other")] == [(run.id, 7)]
        assert current(store, last).status is Status.BLOCKED

    def test_a_run_whose_status_changed_since_it_was_read_is_not_changed(self, store: JobStore) -> None:
        first, second = start(store), start(store)
        released, blocked = add_after(store, first), add_after(store, second)
        settle(store, succeed(store, first))
        stale = [replace(released, priority=7), replace(blocked, status=Status.PENDING, priority=7)]
        assert store.settle([Outcome(run, Condition.WAITING) for run in stale]) == [False, False]
        assert [current(store, run).status for run in (released, blocked)] == [Status.PENDING, Status.BLOCKED]
        assert [current(store, run).priority for run in (released, blocked)] == [0, 0]

    def test_a_run_is_cancelled_though_it_was_released_since_it_was_read(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        settle(store, succeed(store, first))
        assert settle(store, cancel(run, store.beat()))
        assert claim(store, "next") == []

    def test_a_refused_run_that_is_changed_is_still_refused(self, store: JobStore) -> None:
        first, run, _ = _refused_pair(store)
        assert settle(store, Outcome(replace(run, priority=3, refused=None), Condition.WAITING))
        assert [(one.priority, one.refused) for one in claim(store, "next")] == [(3, first.id)]

    # -- dropped -----------------------------------------------------------------------------------------------

    def test_a_refused_run_is_dropped(self, store: JobStore) -> None:
        first, run, last = _refused_pair(store)
        answers = store.settle([drop(store, run)])
        assert (answers, answers.refused) == ([True], (last.id,))
        ended = current(store, run)
        assert (ended.status, ended.refused) == (Status.CANCELLED, first.id)
        assert settle(store, drop(store, run)) is False

    def test_a_whole_chain_is_dropped_by_one_call_each_for_the_one_before(self, store: JobStore) -> None:
        first = start(store)
        chain = [add_after(store, first)]
        for _ in range(20):
            chain.append(add_after(store, chain[-1]))
        causes = [first, *chain]
        drops = [drop(store, run, cause.id) for run, cause in zip(chain, causes, strict=False)]
        answers = store.settle([fail(store, first), *drops])
        assert (answers, answers.refused) == ([True] * 22, ())
        assert [current(store, run).status for run in chain] == [Status.CANCELLED] * 21
        assert [current(store, run).refused for run in chain] == [cause.id for cause in causes[:-1]]
        assert claim(store, "next") == []

    def test_a_chain_is_dropped_only_behind_what_the_same_call_has_ended(self, store: JobStore) -> None:
        first = start(store)
        second = add_after(store, first)
        third = add_after(store, second)
        stale = drop(store, replace(second, token=new_token()), first.id)
        answers = store.settle([stale, drop(store, third, second.id)])
        assert (answers, answers.refused) == ([False, False], ())
        wrong_order = [drop(store, third, second.id), drop(store, second, first.id), fail(store, first)]
        answers = store.settle(wrong_order)
        assert (answers, answers.refused) == ([False, False, True], (second.id,))
        assert [current(store, run).status for run in (second, third)] == [Status.PENDING, Status.BLOCKED]
        assert settle(store, drop(store, third, first.id)) is False

    def test_a_run_that_was_not_refused_is_not_dropped(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        assert settle(store, drop(store, run)) is False
        settle(store, succeed(store, first))
        assert settle(store, drop(store, current(store, run), first.id)) is False
        [claimed] = claim(store, "next")
        assert settle(store, drop(store, claimed, first.id)) is False

    def test_a_drop_of_a_run_that_was_sent_back_meanwhile_is_not_written(self, store: JobStore) -> None:
        first, run, last = _refused_pair(store)
        drops = [drop(store, run), drop(store, last, run.id)]
        assert store.settle([retry(current(store, first), store.beat()), send_back(store, run)]) == [True, True]
        answers = store.settle(drops)
        assert (answers, answers.refused) == ([False, False], ())
        assert [current(store, each).status for each in (run, last)] == [Status.BLOCKED] * 2
        [again] = claim(store)
        assert store.settle([fail(store, again)]).refused == (run.id,)
        assert store.settle(drops) == [True, True]

    # -- sent back ---------------------------------------------------------------------------------------------

    def test_a_refused_run_that_was_not_dropped_yet_is_sent_back_and_judged_anew(self, store: JobStore) -> None:
        first, other = start(store), start(store)
        run = add_after(store, first, other)
        last = add_after(store, run)
        settle(store, fail(store, first))
        run = current(store, run)
        answers = store.settle([send_back(store, run), retry(current(store, first), store.beat())])
        assert (answers, answers.refused) == ([True, True], ())
        back = current(store, run)
        assert (back.status, back.waits, back.refused) == (Status.BLOCKED, 2, None)
        assert [current(store, each).followed for each in (first, other)] == [1, 1]
        [again] = claim(store)
        assert store.settle([succeed(store, again), succeed(store, other)]) == [True, True]
        [claimed] = claim(store, "next")
        assert (claimed.id, claimed.refused, claimed.followed) == (run.id, None, 1)  # it had not ended
        assert settle(store, succeed(store, claimed))
        assert [one.id for one in claim(store, "next")] == [last.id]

    def test_a_pending_run_that_was_not_refused_is_not_sent_back(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        settle(store, succeed(store, first))
        assert settle(store, send_back(store, current(store, run))) is False
        assert current(store, run).status is Status.PENDING

    def test_runs_sent_back_together_are_judged_after_all_are_written(self, store: JobStore) -> None:
        first, second, third = _dropped_chain(store)
        outcomes = [send_back(store, current(store, run)) for run in (third, second, first)]
        answers = store.settle(outcomes)
        assert (answers, answers.refused) == ([True] * 3, ())
        runs = [current(store, run) for run in (first, second, third)]
        assert [(run.status, run.waits, run.followed, run.refused) for run in runs] == [
            (Status.PENDING, 0, 1, None),
            (Status.BLOCKED, 1, 1, None),
            (Status.BLOCKED, 1, 0, None),
        ]
        for queue, run in (("default", first), ("next", second), ("next", third)):
            [claimed] = claim(store, queue)
            assert (claimed.id, claimed.refused) == (run.id, None)
            assert settle(store, succeed(store, claimed))

    def test_a_run_sent_back_is_judged_by_its_predecessors_as_they_are_then(self, store: JobStore) -> None:
        good, bad, gone, running, held = (start(store) for _ in range(5))
        waiting = add_after(store, good, gone, running)
        free = add_after(store, good, gone)
        refused = add_after(store, bad, held)
        assert store.settle([cancel(run, store.beat()) for run in (waiting, free, refused)]) == [True] * 3
        assert store.settle([succeed(store, good), fail(store, bad), succeed(store, gone)]) == [True] * 3
        store.delete_runs([gone.id])
        back = [send_back(store, current(store, run)) for run in (waiting, free, refused)]
        answers = store.settle(back)
        assert (answers, answers.refused) == ([True] * 3, (refused.id,))
        found = [current(store, run) for run in (waiting, free, refused)]
        assert [(run.status, run.waits) for run in found[:2]] == [(Status.BLOCKED, 1), (Status.PENDING, 0)]
        assert (found[2].status, found[2].refused) == (Status.PENDING, bad.id)
        assert {run.id: run.refused for run in claim(store, "next")} == {free.id: None, refused.id: bad.id}
        assert [current(store, run).followed for run in (good, running)] == [2, 1]
        settle(store, succeed(store, running))
        assert [run.id for run in claim(store, "next")] == [waiting.id]

    def test_a_predecessor_that_ends_twice_counts_once(self, store: JobStore) -> None:
        first, other = start(store), start(store)
        run = add_after(store, first, other, on="end")
        for number in range(3):
            assert settle(store, fail(store, first))
            assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 1)
            assert settle(store, retry(current(store, first), store.beat()))
            assert current(store, first).followed == 0
            [first] = claim(store)
            assert first.retried == number + 1
        settle(store, succeed(store, other))
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_an_end_counts_once_for_those_before_a_retry_and_for_those_after_it(self, store: JobStore) -> None:
        first, other = start(store), start(store)
        run = add_after(store, first, other, on="end")
        settle(store, fail(store, first))
        settle(store, retry(current(store, first), store.beat()))
        late = add_after(store, first)
        [first] = claim(store)
        assert settle(store, succeed(store, first))
        assert [one.id for one in claim(store, "next")] == [late.id]
        assert (current(store, run).status, current(store, run).waits) == (Status.BLOCKED, 1)

    def test_what_an_end_had_released_is_not_released_by_the_next(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first, on="end")
        settle(store, fail(store, first))
        [claimed] = claim(store, "next")
        settle(store, succeed(store, claimed))
        settle(store, retry(current(store, first), store.beat()))
        [first] = claim(store)
        answers = store.settle([succeed(store, first)])
        assert (answers, answers.refused) == ([True], ())
        assert current(store, run).status is Status.SUCCEEDED
        assert claim(store, "next") == []

    def test_a_run_sent_back_as_pending_waits_for_nobody(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first)
        last = add_after(store, run, on="end")
        settle(store, cancel(run, store.beat()))
        again = retry(current(store, run), store.beat())
        assert settle(store, replace(again, run=replace(again.run, status=Status.PENDING)))
        back = current(store, run)
        assert (back.status, back.waits, back.followed) == (Status.PENDING, 0, 0)
        assert current(store, first).followed == 0
        assert store.find_runs(RunQuery(after=run.id)) == store.find_runs(RunQuery(after=first.id)) == []
        assert store.settle([fail(store, first)]).refused == ()
        assert {(one.id, one.refused) for one in claim(store, "next")} == {(run.id, None), (last.id, None)}

    def test_a_run_that_was_dropped_by_its_claimer_is_sent_back_with_its_predecessor(self, store: JobStore) -> None:
        first, run, _ = _refused_pair(store)
        [claimed] = claim(store, "next")
        settle(store, stop(store, claimed))
        ended = current(store, run)
        assert store.settle([send_back(store, current(store, first)), send_back(store, ended)]) == [True, True]
        assert (current(store, run).status, current(store, run).refused) == (Status.BLOCKED, None)

    def test_a_run_is_not_sent_back_behind_others_while_another_has_its_key(self, store: JobStore) -> None:
        first = start(store)
        run = add_after(store, first, unique="{flow}key")
        settle(store, cancel(run, store.beat()))
        store.add_runs([make_run(store, unique="{flow}key")])
        assert settle(store, send_back(store, current(store, run))) is False
        assert (current(store, run).status, current(store, first).followed) == (Status.CANCELLED, 1)

    def test_a_run_sent_back_with_nothing_to_wait_for_is_pending(self, store: JobStore) -> None:
        run = start(store)
        settle(store, fail(store, run))
        lone = start(store, queue="other")
        settle(store, fail(store, lone))
        outcome = send_back(store, current(store, lone))
        gone = replace(outcome, run=replace(outcome.run, after=(After(new_id("nobody")),)))
        assert store.settle([send_back(store, current(store, run)), gone]) == [True, True]
        assert [one.id for one in claim(store)] == [run.id]
        assert [one.id for one in claim(store, "other")] == [lone.id]


def _refused_pair(store: JobStore) -> tuple[Run, Run, Run]:
    """Make a run that failed, a run that it refused, and a run behind that one."""
    first = start(store)
    run = add_after(store, first)
    last = add_after(store, run)
    assert store.settle([fail(store, first)]).refused == (run.id,)
    return current(store, first), current(store, run), current(store, last)


def _dropped_chain(store: JobStore) -> tuple[Run, Run, Run]:
    """Make a run that failed, and two dropped runs behind it."""
    first, run, last = _refused_pair(store)
    assert store.settle([drop(store, run), drop(store, last, run.id)]) == [True, True]
    return first, run, last
