"""Rates of gates, limits of queues, and unique keys that a run releases at its claim."""

from __future__ import annotations

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.run import Run, Status
from mainspring.core.transitions import cancel
from mainspring.core.waiting.gates import QUEUE_GATE, Limit
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_run,
    claim,
    current,
    in_one_shard,
    make_run,
    new_id,
    new_token,
    settle,
    succeed,
)

MAIL = f"{QUEUE_GATE}mail"


class QueueLimitConformance:
    """Tests of a queue's limit; its runs may be in any shard."""

    def test_a_queue_at_its_limit_gives_nothing_until_one_of_its_runs_stops(self, store: JobStore) -> None:
        store.set_gate(MAIL, 12)
        runs = [make_run(store, queue="mail") for _ in range(200)]
        store.add_runs(runs)
        page = store.claim([(["mail"], 1000)], node="n", token=new_token(), lease=LEASE)
        assert len(page.runs) == 12
        assert claim(store, "mail") == []
        idle = store.claim([(["mail"], 9)], node="n", token=new_token(), lease=LEASE)
        assert idle.next_at is None or idle.next_at > idle.now
        [queue] = store.stats().queues
        assert (queue.limit, queue.paused, queue.running, queue.waiting, queue.blocked) == (12, False, 12, 188, 0)
        cursor = store.wait(0, 0)
        assert store.settle([succeed(store, run) for run in page.runs]) == [True] * 12
        assert store.wait(cursor, 30) != cursor
        assert len(claim(store, "mail")) == 12

    def test_a_queue_at_its_limit_hides_no_other_queue(self, store: JobStore) -> None:
        store.set_gate(MAIL, 12)
        store.add_runs([make_run(store, queue="mail", priority=9) for _ in range(200)])
        others = [add_run(store) for _ in range(5)]
        claimed = claim(store, "mail", "default")
        assert len(claimed) == 17
        assert {run.id for run in claimed if run.queue == "default"} == {run.id for run in others}

    def test_runs_that_are_parked_make_no_room_above_the_limit_of_a_queue(self, store: JobStore) -> None:
        store.set_gate(MAIL, 12)
        spec = Limit(0).to_text()
        store.add_runs([make_run(store, queue="mail", due_in=-60) for _ in range(100)])
        store.add_runs([make_run(store, gate=new_id("gate"), gate_spec=spec, due_in=-30) for _ in range(200)])
        claimed = claim(store, "mail", "default", limit=60)
        assert len(claimed) == 12
        assert claim(store, "mail", "default", limit=60) == []

    def test_the_limit_of_a_queue_is_raised_lowered_and_lifted(self, store: JobStore) -> None:
        # Enough runs for each shard to get its part, however the ids spread.
        store.add_runs([make_run(store, queue="mail") for _ in range(200)])
        first = claim(store, "mail")
        store.add_runs([make_run(store, queue="mail") for _ in range(300)])
        store.set_gate(MAIL, 12)  # set while more runs than that are running
        assert claim(store, "mail") == []
        assert store.settle([succeed(store, run) for run in first]) == [True] * 200
        assert len(claim(store, "mail")) == 12
        cursor = store.wait(0, 0)
        store.set_gate(MAIL, 24)
        assert store.wait(cursor, 30) != cursor
        assert len(claim(store, "mail")) == 12
        store.set_gate(MAIL, None)
        assert len(claim(store, "mail")) == 300 - 24
        assert [queue.limit for queue in store.stats().queues] == [None]

    @pytest.mark.parametrize("number", [0, -12])
    def test_a_queue_whose_limit_is_not_above_zero_is_paused(self, store: JobStore, number: int) -> None:
        add_run(store, queue="mail")
        store.set_gate(MAIL, number)
        assert claim(store, "mail") == []
        [queue] = store.stats().queues
        assert (queue.limit, queue.paused) == (number, True)
        store.set_gate(MAIL, 12)
        assert len(claim(store, "mail")) == 1

    def test_an_idle_queue_with_a_limit_is_listed(self, store: JobStore) -> None:
        store.set_gate(MAIL, 12)
        store.prune()
        assert [(queue.name, queue.limit) for queue in store.stats().queues] == [("mail", 12)]
        store.set_gate(MAIL, None)
        assert store.stats().queues == []


@in_one_shard
class RateConformance:
    """Tests of the time between starts at a gate, by the store's clock."""

    def test_runs_that_come_too_early_get_places_in_a_line_and_start_there(self, store: JobStore) -> None:
        runs = _rated(store, 4, Limit(None, 100 * SECOND))
        [first] = claim(store)
        left = [current(store, run) for run in runs if run.id != first.id]
        now = store.beat()
        assert {run.status for run in left} == {Status.PENDING}
        assert [round((at - now) / SECOND, -1) for at in sorted(run.run_at for run in left)] == [100, 200, 300]
        page = store.claim([(["default"], 9)], node="n", token=new_token(), lease=LEASE)
        assert (page.runs, page.next_at) == ([], min(run.run_at for run in left))
        for _ in range(3):
            assert claim(store) == []
            store.shift_clock(101)
            assert len(claim(store)) == 1

    def test_a_rate_is_kept_after_nobody_claimed_for_an_hour(self, store: JobStore) -> None:
        _rated(store, 6, Limit(None, 100 * SECOND, 2))
        assert len(claim(store)) == 2
        store.shift_clock(3600)
        assert len(claim(store)) == 2
        assert claim(store) == []
        store.prune()
        assert claim(store) == []
        store.shift_clock(101)
        assert len(claim(store)) == 1

    def test_a_rate_is_not_forgotten_when_its_runs_have_ended(self, store: JobStore) -> None:
        limit, gate = Limit(None, 100 * SECOND), new_id("gate")
        _rated(store, 1, limit, gate)
        settle(store, succeed(store, claim(store)[0]))
        store.prune()
        _rated(store, 1, limit, gate)
        assert claim(store) == []
        store.shift_clock(101)
        assert len(claim(store)) == 1

    def test_a_run_that_ends_gives_no_start_back(self, store: JobStore) -> None:
        runs = _rated(store, 3, Limit(None, 100 * SECOND))
        [first] = claim(store)
        settle(store, succeed(store, first))
        assert claim(store) == []
        waiting = next(run for run in runs if run.id != first.id)
        assert settle(store, cancel(current(store, waiting), store.beat()))
        assert claim(store) == []
        store.shift_clock(201)
        assert len(claim(store)) == 1

    def test_a_gate_with_a_number_and_a_rate_keeps_both(self, store: JobStore) -> None:
        _rated(store, 4, Limit(1, 100 * SECOND))
        [first] = claim(store)
        store.shift_clock(101)
        assert claim(store, lease=LEASE) == []  # the rate alone would allow it
        settle(store, succeed(store, first))
        [second] = claim(store)
        settle(store, succeed(store, second))
        assert claim(store) == []  # the number alone would allow it
        store.shift_clock(101)
        assert len(claim(store)) == 1

    # -- keys that are given up at the claim ---------------------------------------------------------------------

    def test_a_key_that_begins_with_an_arrow_is_free_when_its_run_has_started(self, store: JobStore) -> None:
        key = ">{flow}key"
        run = add_run(store, unique=key)
        assert store.add_runs([make_run(store, unique=key)]) == [run.id]
        token = new_token()
        for _ in range(2):
            assert [(one.id, one.unique) for one in claim(store, token=token)] == [(run.id, None)]
        assert current(store, run).unique is None
        after = add_run(store, unique=key)
        assert settle(store, succeed(store, current(store, run)))
        assert store.add_runs([make_run(store, unique=key)]) == [after.id]


def _rated(store: JobStore, number: int, limit: Limit, gate: str | None = None) -> list[Run]:
    """Store runs of one gate with a rate."""
    gate = gate or new_id("gate")
    return [add_run(store, gate=gate, gate_spec=limit.to_text()) for _ in range(number)]
