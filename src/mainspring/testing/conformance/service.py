"""Service verbs: find and forget runs; queues, nodes, counters, waking, time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import UNFINISHED, Run, Status
from mainspring.jobstores.base import RUNS_STEP, JobStore, NodeInfo, QueueInfo, RunQuery
from mainspring.testing.conformance.helpers import (
    add_job,
    add_run,
    break_,
    cancel_all,
    claim,
    current,
    fail,
    give_back,
    keep,
    make_job,
    make_run,
    pause,
    resume,
    settle,
    start,
    stored,
    succeed,
)

ALL = RunQuery()


class ServiceConformance:
    """Tests of a store's service verbs, for people, janitors and loops."""

    # -- find and count ----------------------------------------------------------------------------------------

    def test_runs_are_found_by_every_field_and_all_together(self, store: JobStore) -> None:
        fields = [
            {"queue": "mail", "group": "g1", "job_id": "j1"},
            {"queue": "mail", "group": "g2", "job_id": "j1"},
            {"queue": "Mail", "group": "g1", "job_id": "j2"},
            {"queue": "default"},
        ]
        runs = [add_run(store, **some) for some in fields]
        settle(store, succeed(store, claim(store, "Mail")[0]))
        claim(store, "default")
        expected = [
            (RunQuery(), [0, 1, 2, 3]),
            (RunQuery(queue="mail"), [0, 1]),
            (RunQuery(group="g1"), [0, 2]),
            (RunQuery(job_id="j1"), [0, 1]),
            (RunQuery(status=(Status.PENDING,)), [0, 1]),
            (RunQuery(status=(Status.SUCCEEDED, Status.RUNNING)), [2, 3]),
            (RunQuery(status=(Status.PENDING,), queue="mail", group="g2", job_id="j1"), [1]),
            (RunQuery(group="g1", job_id="nobody"), []),
        ]
        for query, found in expected:
            ids = {runs[index].id for index in found}
            assert {run.id for run in store.find_runs(query)} == ids, query
            assert store.stats(query).matching == len(ids), query

    def test_the_newest_runs_are_found_first(self, store: JobStore) -> None:
        now = store.beat()
        store.add_runs([make_run(store, f"run-{n}", created_at=now + n) for n in range(5)])
        assert [run.id for run in store.find_runs(ALL)] == [f"run-{n}" for n in (4, 3, 2, 1, 0)]
        assert [run.id for run in store.find_runs(ALL, limit=2)] == ["run-4", "run-3"]

    @pytest.mark.parametrize("spread", [0, 1])
    def test_pages_have_no_gaps_and_no_doubles_while_runs_are_added(self, store: JobStore, spread: int) -> None:
        now = store.beat()
        store.add_runs([make_run(store, created_at=now + n * spread) for n in range(50)])
        before = {run.id for run in store.find_runs(ALL, limit=50)}
        seen: list[str] = []
        after: Run | None = None
        while page := store.find_runs(ALL, after=after, limit=7):
            seen += [run.id for run in page]
            after = page[-1]
            add_run(store, created_at=now + 1000)
        assert len(seen) == len(set(seen))
        assert set(seen) == before

    def test_a_page_goes_on_after_a_run_that_was_deleted_meanwhile(self, store: JobStore) -> None:
        now = store.beat()
        store.add_runs([make_run(store, f"run-{n}", created_at=now + n, due_in=-n) for n in range(6)])
        store.settle([succeed(store, run) for run in claim(store)])
        page = store.find_runs(ALL, limit=3)
        store.delete_runs([page[-1].id])
        assert [run.id for run in store.find_runs(ALL, after=page[-1], limit=3)] == ["run-2", "run-1", "run-0"]

    def test_pages_of_a_query_hold_what_matches_only(self, store: JobStore) -> None:
        now = store.beat()
        for n in range(10):
            add_run(store, f"run-{n}", created_at=now + n, group="even" if n % 2 == 0 else "odd")
        page = store.find_runs(RunQuery(group="even"), limit=3)
        rest = store.find_runs(RunQuery(group="even"), after=page[-1])
        assert [run.id for run in (*page, *rest)] == [f"run-{n}" for n in (8, 6, 4, 2, 0)]

    # -- delete and prune --------------------------------------------------------------------------------------

    def test_unfinished_runs_are_found_wherever_they_wait(self, store: JobStore) -> None:
        now = store.beat()
        made = iter(range(now - 20, now))
        for _ in range(3):
            settle(store, succeed(store, start(store, created_at=next(made))))
        running = start(store, created_at=next(made))
        waiting = add_run(store, created_at=next(made), queue="mail")
        delayed = add_run(store, created_at=next(made), due_in=99.0)
        failed = start(store, created_at=next(made))
        settle(store, fail(store, failed))
        urgent = add_run(store, created_at=next(made), queue="mail", priority=9)
        expected = [
            (RunQuery(status=UNFINISHED), [urgent, delayed, waiting, running]),
            (RunQuery(status=(Status.PENDING,)), [urgent, delayed, waiting]),
            (RunQuery(status=(Status.PENDING,), queue="mail"), [urgent, waiting]),
            (RunQuery(status=(Status.RUNNING,), queue="mail"), []),
            (RunQuery(status=(Status.FAILED, Status.PENDING)), [urgent, failed, delayed, waiting]),
            (RunQuery(status=(Status.PENDING, Status.PENDING), queue="default"), [delayed]),
        ]
        for query, runs in expected:
            assert [run.id for run in store.find_runs(query)] == [run.id for run in runs], query
            assert [run.id for run in store.find_runs(query, limit=1)] == [run.id for run in runs[:1]], query
            after = [run.id for run in store.find_runs(query, after=current(store, runs[0]))] if runs else []
            assert after == [run.id for run in runs[1:]], query

    def test_whoever_looks_for_what_has_no_index_can_stop_after_a_number_of_runs(self, store: JobStore) -> None:
        now = store.beat()
        for number in range(9):
            queue = "rare" if number == 1 else "default"
            add_run(store, f"run-{number}", created_at=now - 90 + 10 * number, queue=queue)
        newest = store.find_runs(ALL, limit=1)[0]
        behind, far, further = (store.made_behind(*each) for each in ((None, 3), (newest, 3), (None, 9)))
        if behind is None:
            assert far is None, "this store finds all by an index"
        elif len(store.generations()) == 1:  # several parts share the number
            assert (behind, far, further) == (now - 40, now - 40, None)
        assert {run.id for run in store.find_runs(RunQuery(since=now - 30))} >= {"run-6", "run-7", "run-8"}
        assert [run.id for run in store.find_runs(RunQuery(queue="rare", since=now - 80))] == ["run-1"]

    def test_the_newest_runs_of_several_jobs_are_found_together(self, store: JobStore) -> None:
        now = store.beat()
        for number in range(12):
            add_run(store, f"run-{number}", job_id=f"job-{number % 3}", created_at=now - 100 + number)
        found = store.recent_runs(["job-2", "nobody", "job-0"], 3)
        assert [[run.id for run in runs] for runs in found] == [
            ["run-11", "run-8", "run-5"],
            [],
            ["run-9", "run-6", "run-3"],
        ]

    def test_only_finished_runs_are_deleted(self, store: JobStore) -> None:
        done, bad, running = start(store), start(store), start(store)
        waiting = add_run(store)
        store.settle([succeed(store, done), break_(store, bad)])
        assert store.delete_runs([done.id, bad.id, running.id, waiting.id, "nobody"]) == 2
        assert [run and run.id for run in store.get_runs([done.id, bad.id, running.id, waiting.id])] == [
            None,
            None,
            running.id,
            waiting.id,
        ]
        assert store.delete_runs([done.id]) == 0
        assert store.delete_runs([]) == 0

    def test_runs_past_their_retention_are_pruned(self, store: JobStore) -> None:
        short, longer = (start(store, policy=Policy(retention=seconds)) for seconds in (100.0, 1000.0))
        store.settle([succeed(store, short), fail(store, longer)])
        store.shift_clock(90)
        assert store.prune() == 0
        store.shift_clock(20)
        assert store.prune() == 1
        assert [run and run.id for run in store.get_runs([short.id, longer.id])] == [None, longer.id]
        store.shift_clock(1000)
        assert store.prune() == 1
        assert store.stats(ALL).matching == 0

    def test_unfinished_and_broken_runs_are_never_pruned(self, store: JobStore) -> None:
        policy = Policy(retention=1.0)
        bad, running = start(store, policy=policy), start(store, policy=policy)
        waiting = add_run(store, policy=policy)
        settle(store, break_(store, bad))
        store.shift_clock(400 * 86400)
        assert store.prune() == 0
        assert {run.id for run in store.find_runs(ALL)} == {bad.id, running.id, waiting.id}

    def test_a_run_that_was_sent_back_is_not_pruned(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retention=10.0, retries=1, backoff=(1.0,)))
        settle(store, fail(store, run))
        store.shift_clock(100)
        assert store.prune() == 0
        assert current(store, run).status is Status.PENDING

    def test_no_more_than_the_limit_is_pruned_at_once(self, store: JobStore) -> None:
        store.add_runs([make_run(store, policy=Policy(retention=1.0)) for _ in range(5)])
        store.settle([succeed(store, run) for run in claim(store)])
        store.shift_clock(10)
        assert [store.prune(limit=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_a_run_for_which_a_retention_was_asked_for_is_kept_so_long_however_many_are(self, store: JobStore) -> None:
        keep(store, 0)
        week = 7 * 86400.0
        asked, usual, failed = start(store, policy=Policy(retention=week)), start(store), start(store)
        waiting = add_run(store, queue="other", policy=Policy(retention=week))
        assert store.settle([succeed(store, asked), succeed(store, usual), fail(store, failed)]) == [True] * 3
        assert cancel_all(store, "other") == 1
        store.shift_clock(week - 60)
        store.prune()
        ids = [asked.id, waiting.id, usual.id, failed.id]
        assert [run and run.id for run in store.get_runs(ids)] == [asked.id, waiting.id, None, None]
        store.shift_clock(61)
        assert store.prune() == 2
        assert store.stats(ALL).matching == 0

    def test_runs_for_which_a_retention_was_asked_for_take_no_room_from_others(self, store: JobStore) -> None:
        keep(store, 1)
        usual = start(store)
        assert settle(store, succeed(store, usual))
        asked = [start(store, policy=Policy(retention=60.0)) for _ in range(5)]
        assert store.settle([succeed(store, run) for run in asked]) == [True] * 5
        assert store.prune() == 0
        assert store.stats(ALL).matching == 6
        store.shift_clock(61)
        assert store.prune() == 5
        assert [run.id for run in store.find_runs(ALL)] == [usual.id]

    def test_a_pruned_id_is_known_for_an_hour(self, store: JobStore) -> None:
        run = start(store, policy=Policy(retention=1.0))
        settle(store, succeed(store, run))
        store.shift_clock(10)
        assert store.prune() == 1
        store.shift_clock(3500)
        assert store.add_runs([make_run(store, run.id)]) == [run.id]
        assert store.get_runs([run.id]) == [None]

    # -- queues -------------------------------------------------------------------------------------------------

    def test_queues_are_described_by_name(self, store: JobStore) -> None:
        assert store.stats().queues == []
        oldest = add_run(store, queue="mail", due_in=-50)
        add_run(store, queue="mail", due_in=-20, priority=9)
        add_run(store, queue="mail", due_in=100)
        start(store, queue=".pool")
        pause(store, "idle")
        assert store.stats().queues == [
            QueueInfo(name=".pool", running=1),
            QueueInfo(name="idle", limit=0),
            QueueInfo(name="mail", waiting=2, delayed=1, oldest_at=oldest.run_at),
        ]

    def test_a_queue_without_unfinished_runs_is_not_listed(self, store: JobStore) -> None:
        run = start(store)
        pause(store, "idle")
        settle(store, succeed(store, run))
        resume(store, "idle")
        assert store.stats().queues == []

    def test_a_delayed_run_waits_when_its_time_has_come(self, store: JobStore) -> None:
        run = add_run(store, due_in=100)
        assert store.stats().queues == [QueueInfo(name="default", delayed=1)]
        store.shift_clock(101)
        assert store.stats().queues == [QueueInfo(name="default", waiting=1, oldest_at=run.run_at)]

    def test_pausing_twice_is_pausing_once(self, store: JobStore) -> None:
        add_run(store)
        pause(store, "default")
        pause(store, "default")
        assert store.stats().queues[0].paused is True
        resume(store, "default")
        resume(store, "default")
        assert store.stats().queues[0].paused is False

    def test_what_waits_in_one_queue_can_be_cancelled_at_once(self, store: JobStore) -> None:
        running = start(store)
        due, delayed, other = add_run(store), add_run(store, due_in=500), add_run(store, queue="other")
        pause(store, "default")
        assert cancel_all(store) == 2
        states = [current(store, run).status for run in (running, due, delayed, other)]
        assert states == [Status.RUNNING, Status.CANCELLED, Status.CANCELLED, Status.PENDING]
        assert current(store, due).finished_at is not None
        resume(store, "default")
        store.shift_clock(501)
        assert claim(store) == []
        assert cancel_all(store) == 0

    # -- nodes -------------------------------------------------------------------------------------------------

    def test_a_node_is_listed_as_it_announced_itself(self, store: JobStore) -> None:
        assert store.nodes() == []
        told = _node("n1", queues=("mail", ".pool"), state="draining", version="1.2", missing=("a:b",), stuck=2)
        before = store.beat()
        store.beat(told, ttl=30)
        [node] = store.nodes()
        assert before <= node.beat_at <= store.beat()
        assert replace(node, beat_at=0) == told

    def test_a_silent_node_is_forgotten(self, store: JobStore) -> None:
        store.beat(_node("silent"), ttl=30)
        store.beat(_node("alive"), ttl=30)
        store.shift_clock(20)
        store.beat(_node("alive", state="paused"), ttl=30)
        assert {node.id for node in store.nodes()} == {"silent", "alive"}
        store.shift_clock(20)
        assert [(node.id, node.state) for node in store.nodes()] == [("alive", "paused")]
        store.shift_clock(20)
        assert store.nodes() == []

    def test_a_node_that_leaves_is_off_the_list(self, store: JobStore) -> None:
        for name in ("n1", "n2"):
            store.beat(_node(name), ttl=30)
        store.beat(_node("n1"), ttl=0)
        store.beat(_node("nobody"), ttl=0)
        assert [node.id for node in store.nodes()] == ["n2"]

    # -- counters, time, waking --------------------------------------------------------------------------------

    def test_the_jobs_are_counted(self, store: JobStore) -> None:
        assert store.stats().jobs == 0
        store.add_jobs([make_job(store, f"job-{n}", due_in=None if n else 5) for n in range(3)])
        store.remove_job("job-1")
        assert store.stats().jobs == 2

    def test_the_clock_of_the_store_can_be_moved(self, store: JobStore) -> None:
        before = store.beat()
        store.shift_clock(0.5)
        store.shift_clock(100)
        assert before + 100_500_000 <= store.beat() < before + 160 * SECOND

    def test_a_beat_tells_the_time_whether_a_node_comes_stays_or_leaves(self, store: JobStore) -> None:
        told = [store.beat(), store.beat(_node("n1"), ttl=30), store.beat(), store.beat(_node("n1"), ttl=0)]
        assert told[0] <= told[1] <= told[2] <= told[3] <= store.beat() < told[0] + 60 * SECOND

    def test_a_wait_without_time_returns_at_once(self, store: JobStore) -> None:
        cursor = store.wait(0, 0)
        assert isinstance(store.wait(cursor, 0), int)

    @pytest.mark.parametrize(
        "change",
        [
            *("add job", "replace job", "earlier", "resume job", "restore"),
            *("add run", "delayed run", "back", "then", "resume", "cancel"),
        ],
    )
    def test_a_change_made_before_the_wait_is_not_missed(self, store: JobStore, change: str) -> None:
        job = add_job(store, due_in=500)
        paused = add_job(store, "paused", due_in=None)
        add_job(store, "broken", due_in=400)
        store.set_aside("broken", stored(store, "broken").version, "unreadable")
        run, other = start(store), start(store)
        add_run(store, queue="idle")
        pause(store, "idle")
        store.due(10, 0)  # a loop checks this before it sleeps
        cursor = store.wait(0, 0)
        job.at = paused.at = store.beat() + 5 * SECOND
        follower = make_run(store, queue="other")
        changes: dict[str, Callable[[], object]] = {
            "add job": lambda: add_job(store, "new", due_in=5),
            "replace job": lambda: store.add_jobs([job], replace=True),
            "earlier": lambda: store.update_job(job),
            "resume job": lambda: store.update_job(paused),
            "restore": lambda: store.set_aside("broken", 0, None),
            "add run": lambda: add_run(store),
            "delayed run": lambda: add_run(store, due_in=5),
            "back": lambda: settle(store, give_back(store, run)),
            "then": lambda: settle(store, replace(succeed(store, other), then=(follower,))),
            "resume": lambda: resume(store, "idle"),
            "cancel": lambda: store.cancel([run.id]),
        }
        known = store.cursor()
        changes[change]()
        assert known is None or store.cursor() != known  # a process knows its own changes at once
        assert (heard := store.wait(cursor, 30)) != cursor
        if store.tells_topics and change in ("add job", "replace job", "earlier", "resume job", "restore"):
            assert (heard - cursor) % RUNS_STEP != 0

    def test_a_cursor_that_tells_topics_says_that_a_run_is_no_job(self, store: JobStore) -> None:
        cursor = _quiet(store)
        add_run(store)
        heard = store.wait(cursor, 30)
        assert heard != cursor
        assert not store.tells_topics or (heard - cursor) % RUNS_STEP == 0

    def test_what_is_written_is_no_loss_of_data(self, store: JobStore) -> None:
        before = store.generations()
        add_job(store)
        add_run(store)
        store.remove_job("job")
        after = store.generations()
        assert all(new.follows(old) for old, new in zip(before, after, strict=True))

    def test_a_sleeper_is_woken_by_a_run_that_can_be_claimed(self, store: JobStore) -> None:
        cursor = store.wait(0, 0)
        seen: list[int] = []
        sleeper = Thread(target=lambda: seen.append(store.wait(cursor, 30)), daemon=True)
        sleeper.start()
        add_run(store)
        sleeper.join(60)
        assert seen
        assert seen != [cursor]


def _quiet(store: JobStore) -> int:
    """Return the cursor once the store reports no earlier event any more."""
    cursor = store.wait(0, 0.05)
    while (later := store.wait(cursor, 0.05)) != cursor:
        cursor = later
    return cursor


def _node(name: str, **fields: Any) -> NodeInfo:
    base: dict[str, Any] = {"id": name, "host": "host", "pid": 7, "started_at": 1_763_000_000_123_457}
    return NodeInfo(**{**base, **fields})
