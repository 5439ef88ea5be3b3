"""Waiting runs: a store adds them, finds them by unique key, and lets nodes claim them in order, under a token."""

from __future__ import annotations

import pytest

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Error, Status
from mainspring.core.transitions import cancel, recover, retry, unkeyed
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    add_run,
    break_,
    claim,
    current,
    fail,
    give_back,
    lapsed,
    make_run,
    new_token,
    pause,
    plain,
    resume,
    settle,
    start,
    stop,
    succeed,
    together,
    work,
)

ALL = RunQuery()


class ClaimConformance:
    """Tests of waiting runs and of the nodes that claim them."""

    # -- add ---------------------------------------------------------------------------------------------------

    def test_a_run_is_read_as_it_was_added(self, store: JobStore) -> None:
        run = make_run(
            store,
            call=Call(work, ("text", 1, 2.5, True, None), {"nested": {"list": [1, "two"]}}, "the name"),
            queue="mail",
            executor="pool",
            job_id="some job",
            group="some group",
            unique="work:7",
            policy=Policy(retries=3, backoff=(1.0, 5.5), timeout=30.0, retention=60.0, delivery="at_most_once"),
            priority=-7,
            fire_time=1_763_000_000_123_457,
            start_by=1_763_000_900_123_457,
            errors=(Error("ValueError", "no", "Traceback ...", 1_763_000_000_123_456, 1),),
            count=3,
            last=1_763_000_000_123_459,
            counted=False,
            key="work:6",
            retried=2,
        )
        assert store.add_runs([run]) == [run.id]
        assert plain(current(store, run)) == plain(run)

    def test_runs_are_got_in_the_order_asked_for(self, store: JobStore) -> None:
        first, second = add_run(store), add_run(store)
        found = store.get_runs([second.id, "nobody", first.id, second.id])
        assert [run and run.id for run in found] == [second.id, None, first.id, second.id]
        assert store.get_runs([]) == []

    def test_adding_no_runs_is_allowed(self, store: JobStore) -> None:
        assert store.add_runs([]) == []

    def test_hundreds_of_runs_are_added_at_once(self, store: JobStore) -> None:
        runs = [make_run(store) for _ in range(300)]
        assert store.add_runs(runs) == [run.id for run in runs]
        assert store.stats(ALL).matching == 300

    def test_runs_are_packed_by_one_thread_and_added_by_another_once(self, store: JobStore) -> None:
        runs = [make_run(store), make_run(store)]
        packed = [store.pack_run(run) for run in runs]
        assert store.stats(ALL).matching == 0
        assert together(2, lambda _: store.add_runs(packed)) == [[run.id for run in runs]] * 2
        assert store.stats(ALL).matching == 2

    def test_a_run_like_another_has_its_own_id_arguments_and_time(self, store: JobStore) -> None:
        run = make_run(store, priority=7, group="many", policy=Policy(retention=60.0))
        pack = store.pack_like(run)
        now = run.created_at - SECOND
        assert store.add_runs([pack("a", (1, 2), {"more": 3}, now), pack("b", (), {}, now + 1)]) == ["a", "b"]
        first, second = store.get_runs(["a", "b"])
        assert first is not None
        assert second is not None
        assert (first.args, first.kwargs, first.created_at, first.run_at) == ((1, 2), {"more": 3}, now, now)
        assert (second.args, second.kwargs, second.created_at, second.run_at) == ((), {}, now + 1, now + 1)
        for each in (first, second):
            assert (each.priority, each.group, each.policy, each.name) == (7, "many", run.policy, run.name)
        assert [each.id for each in claim(store)] == ["a", "b"]
        assert store.get_runs([run.id]) == [None]

    @pytest.mark.parametrize("state", ["pending", "running", "finished", "deleted"])
    def test_adding_a_known_id_changes_nothing(self, store: JobStore, state: str) -> None:
        run = add_run(store)
        if state != "pending":
            [run] = claim(store)
        if state in ("finished", "deleted"):
            assert settle(store, succeed(store, run, "kept"))
        if state == "deleted":
            assert store.delete_runs([run.id]) == 1
        before = store.get_runs([run.id])
        assert store.add_runs([make_run(store, run.id, priority=50)]) == [run.id]
        assert store.get_runs([run.id]) == before
        assert len(claim(store)) == (1 if state == "pending" else 0)

    def test_the_same_id_twice_in_a_batch_is_one_run(self, store: JobStore) -> None:
        assert store.add_runs([make_run(store, "twin", group="a"), make_run(store, "twin", group="b")]) == ["twin"] * 2
        assert [run.group for run in claim(store)] == ["a"]

    # -- unique keys -------------------------------------------------------------------------------------------

    def test_a_second_run_of_a_key_is_answered_with_the_first(self, store: JobStore) -> None:
        first = add_run(store, unique="key")
        second = make_run(store, unique="key")
        assert store.add_runs([second]) == [first.id]
        assert store.get_runs([second.id]) == [None]
        assert len(claim(store)) == 1

    def test_a_key_holds_within_a_batch(self, store: JobStore) -> None:
        first, second, other = (make_run(store, unique=key) for key in ("key", "key", "other key"))
        assert store.add_runs([first, second, other]) == [first.id, first.id, other.id]
        assert store.stats(ALL).matching == 2

    def test_runs_without_a_key_are_never_alike(self, store: JobStore) -> None:
        runs = [make_run(store) for _ in range(3)]
        assert store.add_runs(runs) == [run.id for run in runs]

    def test_keys_that_look_alike_are_kept_apart(self, store: JobStore) -> None:
        for key in ("a", "A", "a ", "ä", "a:b", ""):
            add_run(store, unique=key)
        assert store.stats(ALL).matching == 6

    def test_a_key_is_held_through_all_of_an_unfinished_life(self, store: JobStore) -> None:
        run = start(store, unique="key", policy=Policy(retries=1))
        assert _taken(store, "key") == run.id
        assert settle(store, give_back(store, run))
        assert _taken(store, "key") == run.id
        [run] = claim(store)
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(lapsed(store)[0], store.beat()))
        assert _taken(store, "key") == run.id
        [run] = claim(store)
        assert settle(store, fail(store, run))
        assert current(store, run).status is Status.PENDING
        assert _taken(store, "key") == run.id

    @pytest.mark.parametrize("how", ["succeed", "fail", "stop", "break", "cancel", "lose"])
    def test_a_key_is_free_when_its_run_has_ended(self, store: JobStore, how: str) -> None:
        if how == "cancel":
            run = add_run(store, unique="key")
            assert settle(store, cancel(run, store.beat()))
        else:
            policy = Policy(delivery="at_most_once")
            run = start(store, unique="key", policy=policy)
            ends = {"succeed": succeed, "fail": fail, "stop": stop, "break": break_}
            if how == "lose":
                store.shift_clock(LEASE + 1)
                assert settle(store, recover(run, store.beat()))
            else:
                assert settle(store, ends[how](store, run))
        assert current(store, run).status not in (Status.PENDING, Status.RUNNING)
        assert current(store, run).unique is None
        second = add_run(store, unique="key")
        assert _taken(store, "key") == second.id

    @pytest.mark.parametrize("how", ["fail", "stop", "cancel", "lose"])
    def test_a_run_sent_back_has_its_key_again(self, store: JobStore, how: str) -> None:
        if how == "cancel":
            run = add_run(store, unique="key")
            settle(store, cancel(run, store.beat()))
        else:
            run = start(store, unique="key", policy=Policy(delivery="at_most_once"))
            if how == "lose":
                store.shift_clock(LEASE + 1)
                settle(store, recover(run, store.beat()))
            else:
                settle(store, {"fail": fail, "stop": stop}[how](store, run))
        assert settle(store, retry(current(store, run), store.beat()))
        assert _taken(store, "key") == run.id
        [again] = claim(store)
        assert (again.id, again.unique, again.retried) == (run.id, "key", 1)
        assert settle(store, succeed(store, again))
        assert _taken(store, "key") != run.id

    def test_a_run_sent_back_leaves_the_key_to_its_new_holder(self, store: JobStore) -> None:
        first = start(store, unique="key")
        settle(store, fail(store, first))
        second = add_run(store, unique="key")
        again = retry(current(store, first), store.beat())
        assert not settle(store, again)
        assert current(store, first).status is Status.FAILED
        assert settle(store, unkeyed(again))
        assert sorted(run.id for run in claim(store)) == sorted([first.id, second.id])
        assert _taken(store, "key") == second.id

    def test_the_key_of_a_deleted_run_is_free(self, store: JobStore) -> None:
        run = start(store, unique="key")
        settle(store, succeed(store, run))
        store.delete_runs([run.id])
        add_run(store, unique="key")

    # -- claim -------------------------------------------------------------------------------------------------

    def test_a_claimed_run_is_running_under_its_token_and_lease(self, store: JobStore) -> None:
        added = add_run(store)
        claimed = store.claim([(["default"], 1)], node="n7", token="t7", lease=30)
        [run] = claimed.runs
        assert (run.id, run.status, run.node, run.token, run.attempt) == (added.id, Status.RUNNING, "n7", "t7", 1)
        assert run.lease_until is not None
        assert claimed.now <= run.lease_until <= claimed.now + 30 * SECOND
        assert plain(current(store, run)) == plain(run)

    def test_a_claim_tells_the_time_of_the_store(self, store: JobStore) -> None:
        before = store.beat()
        store.shift_clock(1000)
        now = store.claim([(["default"], 1)], node=NODE, token=new_token(), lease=LEASE).now
        assert before + 1000 * SECOND <= now <= store.beat()

    def test_a_claimed_run_is_not_claimed_again(self, store: JobStore) -> None:
        start(store)
        assert claim(store) == []

    def test_a_claim_takes_no_more_than_its_limit(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(5)])
        assert [len(claim(store, limit=2)) for _ in range(4)] == [2, 2, 1, 0]

    @pytest.mark.parametrize("limit", [None, 0, 9])
    def test_a_claim_of_no_runs_returns_only_those_held_under_its_token(
        self, store: JobStore, limit: int | None
    ) -> None:
        token = new_token()
        add_run(store, "held")
        [held] = claim(store, token=token)
        store.set_gate("queue:default", limit)
        waiting = add_run(store, "waiting")
        assert [run.id for run in claim(store, limit=0, token=token)] == [held.id]
        assert claim(store, limit=0) == []
        assert current(store, waiting).status is Status.PENDING

    def test_every_start_raises_the_attempt(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retries=5, backoff=(1.0,)))
        for attempt in range(1, 4):
            assert run.attempt == attempt
            assert settle(store, fail(store, run))
            store.shift_clock(10)
            [run] = claim(store)

    def test_higher_priority_goes_first_then_the_earlier_run_time(self, store: JobStore) -> None:
        for name, priority, due_in in (
            ("e", 0, -10),
            ("b", 5, -10),
            ("f", -100, -90),
            ("a", 5, -20),
            ("c", 1, -1),
            ("d", 0, -80),
        ):
            add_run(store, name, priority=priority, due_in=due_in)
        assert [run.id for run in claim(store, limit=4)] == ["a", "b", "c", "d"]
        assert [run.id for run in claim(store)] == ["e", "f"]

    def test_run_times_a_microsecond_apart_are_in_order(self, store: JobStore) -> None:
        for number in (3, 1, 2):
            add_run(store, f"run-{number}", run_at=1_763_000_000_000_000 + number)
        assert [run.id for run in claim(store)] == ["run-1", "run-2", "run-3"]

    def test_only_the_queues_asked_for_are_claimed_from(self, store: JobStore) -> None:
        for queue in ("mail", "Mail", ".mail", "default"):
            add_run(store, queue=queue, group=queue)
        assert [run.group for run in claim(store, ".mail")] == [".mail"]
        assert [run.group for run in claim(store, "mail", "nobody's")] == ["mail"]
        assert claim(store, "nobody's") == []
        assert store.claim([([], 5)], node=NODE, token=new_token(), lease=LEASE).runs == []

    def test_several_queues_are_claimed_from_in_one_order(self, store: JobStore) -> None:
        for name, queue, priority, due_in in (
            ("c", "x", 0, -30),
            ("a", "y", 9, -10),
            ("d", "y", 0, -20),
            ("b", "x", 5, -10),
            ("e", "z", 0, -10),
        ):
            add_run(store, name, queue=queue, priority=priority, due_in=due_in)
        assert [run.id for run in claim(store, "x", "y", "z", limit=4)] == ["a", "b", "c", "d"]
        assert [run.id for run in claim(store, "z", "z")] == ["e"]

    def test_any_number_of_queues_is_claimed_from(self, store: JobStore) -> None:
        queues = [f"queue-{number}" for number in range(2000)]
        filled = [queue for queue in queues[::40] for _ in range(3)]
        store.add_runs([make_run(store, f"r{number}", queue=queue) for number, queue in enumerate(filled)])
        urgent = [add_run(store, queue=queue, priority=5).id for queue in queues[1::1000]]
        later = add_run(store, queue=queues[7], due_in=100)
        pause(store, queues[0])
        found: list[str] = []
        for limit, number in ((20, 20), (1, 1), (1000, len(filled) - 3 + 2 - 21), (1000, 0)):
            claimed = store.claim([(queues, limit)], node=NODE, token=new_token(), lease=LEASE)
            assert len(claimed.runs) == number
            found += [run.id for run in claimed.runs]
            left = len(filled) - 3 + 2 - len(found)
            assert claimed.next_at is not None
            assert claimed.next_at <= claimed.now if left else claimed.next_at == later.run_at
        assert sorted(found[:2]) == sorted(urgent)
        assert sorted(found[2:]) == sorted(f"r{number}" for number in range(3, len(filled)))

    def test_a_delayed_run_waits_for_its_time(self, store: JobStore) -> None:
        later = add_run(store, due_in=100, priority=100)
        now = add_run(store)
        assert [run.id for run in claim(store)] == [now.id]
        store.shift_clock(99)
        assert claim(store) == []
        store.shift_clock(2)
        assert [run.id for run in claim(store)] == [later.id]

    def test_delayed_runs_whose_time_has_come_are_in_order_with_the_others(self, store: JobStore) -> None:
        for name, priority, due_in in (("c", 0, 10), ("a", 9, 20), ("d", 0, 15), ("e", -1, -10), ("b", 5, -10)):
            add_run(store, name, priority=priority, due_in=due_in)
        store.shift_clock(30)
        assert [run.id for run in claim(store)] == ["a", "b", "c", "d", "e"]

    def test_a_claim_says_when_the_next_run_of_its_queues_is_due(self, store: JobStore) -> None:
        def next_at(*queues: str, limit: int = 10) -> int | None:
            return store.claim([(queues, limit)], node=NODE, token=new_token(), lease=LEASE).next_at

        assert next_at("x", "y") is None
        late, soon = add_run(store, queue="x", due_in=500), add_run(store, queue="y", due_in=300)
        assert next_at("x", "y") == soon.run_at
        assert next_at("x") == late.run_at
        assert next_at("z") is None
        settle(store, cancel(soon, store.beat()))
        assert next_at("x", "y") == late.run_at

    def test_what_the_limit_left_behind_is_due_now(self, store: JobStore) -> None:
        store.add_runs([make_run(store), make_run(store), make_run(store, due_in=500)])
        claimed = store.claim([(["default"], 1)], node=NODE, token=new_token(), lease=LEASE)
        assert claimed.next_at is not None
        assert claimed.next_at <= claimed.now

    # -- a claim repeated --------------------------------------------------------------------------------------

    def test_repeating_a_claim_returns_the_same_runs_and_no_more(self, store: JobStore) -> None:
        store.add_runs([make_run(store, due_in=-n) for n in range(5)])
        token = new_token()
        first = claim(store, limit=2, token=token)
        again = claim(store, limit=2, token=token)
        assert {run.id for run in again} == {run.id for run in first}
        assert {run.attempt for run in again} == {1}
        assert len(claim(store)) == 3

    def test_a_repeated_claim_returns_all_that_is_held_whatever_it_asks_for(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(4)])
        token = new_token()
        first = claim(store, limit=3, token=token)
        assert {run.id for run in claim(store, "other", limit=1, token=token)} == {run.id for run in first}

    def test_a_repeated_claim_returns_only_what_is_still_held(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(3)])
        token = new_token()
        done, back, held = claim(store, token=token)
        assert store.settle([succeed(store, done), give_back(store, back)]) == [True, True]
        assert [run.id for run in claim(store, token=token)] == [held.id]

    def test_a_repeated_claim_does_not_get_what_others_took_over(self, store: JobStore) -> None:
        token = new_token()
        add_run(store)
        [mine] = claim(store, token=token)
        store.shift_clock(LEASE + 1)
        assert settle(store, recover(mine, store.beat()))
        [theirs] = claim(store)
        assert (theirs.id, theirs.attempt) == (mine.id, 2)
        assert claim(store, token=token) == []

    # -- paused queues ------------------------------------------------------------------------------------------

    def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, store: JobStore) -> None:
        held, other = add_run(store, queue="held"), add_run(store, queue="other")
        pause(store, "held")
        added_later = add_run(store, queue="held", due_in=-5)
        assert [run.id for run in claim(store, "held", "other")] == [other.id]
        claimed = store.claim([(["held"], 5)], node=NODE, token=new_token(), lease=LEASE)
        assert (claimed.runs, claimed.next_at) == ([], None)
        resume(store, "held")
        assert [run.id for run in claim(store, "held", "other")] == [held.id, added_later.id]

    def test_what_runs_in_a_paused_queue_goes_on(self, store: JobStore) -> None:
        run = start(store)
        pause(store, "default")
        assert claim(store, token=run.token) == [current(store, run)]
        assert settle(store, succeed(store, run))

    def test_a_run_that_goes_back_into_a_paused_queue_waits_there(self, store: JobStore) -> None:
        run = start(store)
        pause(store, "default")
        assert settle(store, give_back(store, run))
        assert claim(store) == []
        resume(store, "default")
        assert [back.id for back in claim(store)] == [run.id]


def _taken(store: JobStore, key: str) -> str | None:
    """Return the id of the run that holds a key, or None."""
    return store.add_runs([make_run(store, unique=key)])[0]
