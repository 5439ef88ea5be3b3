"""The life of edges: a store counts, finds and forgets them, and does not prune their runs; fires in a chain."""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import HOLDS, ON, Condition, Outcome, Status
from mainspring.core.transitions import cancel
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_after,
    add_job,
    add_run,
    chained_fires,
    claim,
    current,
    due_one,
    fail,
    in_one_shard,
    keep,
    new_id,
    new_token,
    settle,
    start,
    step,
    stored,
    succeed,
    unfinished,
)

HOUR = 3600


@in_one_shard
class EdgeUpkeepConformance:
    """Tests that a store counts, finds and forgets edges, keeps their runs, and chains overdue fires."""

    # -- counted, found, forgotten -----------------------------------------------------------------------------

    def test_the_number_of_successors_is_told_by_the_claim(self, store: JobStore) -> None:
        first = add_run(store)
        for number in range(3):
            add_after(store, first)
            assert current(store, first).followed == number + 1
        token = new_token()
        for _ in range(2):  # a repeated claim returns the same
            assert [run.followed for run in claim(store, token=token)] == [3]

    def test_successors_are_found_by_their_predecessor(self, store: JobStore) -> None:
        first, other = start(store), add_run(store)
        both, mine, theirs = add_after(store, first, other), add_after(store, first, on="end"), add_after(store, other)
        expected = {
            first.id: {both.id, mine.id},
            other.id: {both.id, theirs.id},
            both.id: set(),
            new_id("nobody"): set(),
        }
        for _ in range(2):
            for run_id, ids in expected.items():
                assert {run.id for run in store.find_runs(RunQuery(after=run_id))} == ids
                assert store.stats(RunQuery(after=run_id)).matching == len(ids)
            settle(store, fail(store, first))  # an edge stays after its predecessor has ended
        blocked = RunQuery(after=first.id, status=(Status.BLOCKED,))
        assert [run.id for run in store.find_runs(blocked)] == []
        page = store.find_runs(RunQuery(after=first.id), limit=1)
        page += store.find_runs(RunQuery(after=first.id), after=page[-1], limit=1)
        assert {run.id for run in page} == expected[first.id]
        assert store.find_runs(RunQuery(after=first.id), after=page[-1]) == []

    def test_deleting_a_run_forgets_its_edges(self, store: JobStore) -> None:
        first, second, third = start(store), start(store), start(store)
        run, last = add_after(store, first, second), add_after(store, second)
        settle(store, succeed(store, first))
        settle(store, cancel(last, store.beat()))
        assert store.delete_runs([first.id, last.id]) == 2
        assert store.find_runs(RunQuery(after=first.id)) == []
        assert [one.id for one in store.find_runs(RunQuery(after=second.id))] == [run.id]
        assert current(store, run).status is Status.BLOCKED
        answers = store.settle([succeed(store, second), fail(store, third)])
        assert (answers, answers.refused) == ([True, True], ())
        assert [one.id for one in claim(store, "next")] == [run.id]

    def test_a_run_is_not_pruned_by_age_while_one_after_it_is_unfinished(self, store: JobStore) -> None:
        first, other = start(store, policy=Policy(retention=10.0)), start(store)
        add_after(store, first, other)
        settle(store, succeed(store, first))
        for seconds in (20, HOUR, 10 * HOUR):
            store.shift_clock(seconds)
            assert store.prune() == 0
        assert current(store, first).status is Status.SUCCEEDED
        assert settle(store, succeed(store, other))
        [run] = claim(store, "next")
        assert settle(store, succeed(store, run))
        store.shift_clock(HOUR + 60)
        assert store.prune() == 1
        assert store.get_runs([first.id]) == [None]

    def test_a_run_is_not_pruned_by_count_while_one_after_it_is_unfinished(self, store: JobStore) -> None:
        keep(store, 2)
        first, second = start(store), start(store)
        add_after(store, first, second)
        settle(store, succeed(store, first))
        others = [start(store) for _ in range(4)]
        for other in others:
            settle(store, succeed(store, other))
        store.prune()
        assert store.get_runs([first.id])[0] is not None
        assert store.get_runs([others[0].id]) == [None]
        settle(store, succeed(store, second))
        [run] = claim(store, "next")
        settle(store, succeed(store, run))
        store.shift_clock(HOUR + 60)
        store.prune()
        assert store.get_runs([first.id]) == [None]

    def test_an_edge_that_holds_keeps_its_predecessor_as_long_as_the_successor(self, store: JobStore) -> None:
        first = start(store, policy=Policy(retention=10.0))
        add_after(store, first, on=ON["success"] | HOLDS, policy=Policy(retention=3 * float(HOUR)))
        settle(store, succeed(store, first))
        [run] = claim(store, "next")
        settle(store, succeed(store, run))
        store.shift_clock(HOUR + 60)
        assert store.prune() == 0
        store.shift_clock(2 * HOUR)
        assert store.prune() >= 1
        store.shift_clock(HOUR + 60)
        store.prune()
        assert store.get_runs([first.id, run.id]) == [None, None]

    # -- chained fires -----------------------------------------------------------------------------------------

    def test_a_chain_of_overdue_fires_counts_once_until_the_last_has_ended(self, store: JobStore) -> None:
        job = add_job(store)
        runs = chained_fires(store, job, 3)
        assert store.fire([step(store, job, runs=runs)], LEASE) == [tuple(run.id for run in runs)]
        assert [current(store, run).status for run in runs] == [Status.PENDING, Status.BLOCKED, Status.BLOCKED]
        for run in runs:
            assert _count(store) == unfinished(store, job) == 1
            [claimed] = claim(store)
            assert claimed.id == run.id
            assert settle(store, fail(store, claimed))
        assert _count(store) == unfinished(store, job) == 0

    def test_the_first_of_a_chain_of_fires_may_come_claimed(self, store: JobStore) -> None:
        job = add_job(store)
        first, *rest = (replace(run, queue=".default") for run in chained_fires(store, job, 3))
        token = new_token()
        claimed = replace(first, status=Status.RUNNING, node=NODE, token=token, attempt=1, started_at=store.beat())
        assert store.fire([step(store, job, runs=(claimed, *rest))], LEASE) == [tuple(r.id for r in (first, *rest))]
        held = current(store, first)
        assert (held.status, held.token, held.followed, held.lease_until is None) == (Status.RUNNING, token, 1, False)
        assert [current(store, run).status for run in rest] == [Status.BLOCKED] * 2
        assert _count(store) == 1
        assert settle(store, succeed(store, held))
        assert [run.id for run in claim(store, ".default")] == [rest[0].id]

    def test_a_pending_run_may_be_written_as_running_but_not_a_blocked_one(self, store: JobStore) -> None:
        free = add_run(store)
        blocked = add_after(store, free)
        claims = {"node": NODE, "token": None, "attempt": 1, "lease_until": store.beat() + 60 * SECOND}
        running = [replace(run, status=Status.RUNNING, **claims) for run in (free, blocked)]
        assert store.settle([Outcome(run, Condition.WAITING) for run in running]) == [True, False]
        assert (current(store, free).status, current(store, free).followed) == (Status.RUNNING, 1)


def _count(store: JobStore) -> int:
    """Return the number of unfinished runs that a scheduler receives with the job."""
    job = stored(store)
    job.at = store.beat() - SECOND
    store.update_job(job)
    return due_one(store).unfinished
