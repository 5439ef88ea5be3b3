from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import Firing
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run, Status
from mainspring.core.transitions import cancel, retry
from mainspring.errors import ConflictingIdError, JobLookupError
from mainspring.jobstores.base import ENDS, RUNS_STEP, NodeInfo, RunQuery
from mainspring.jobstores.memory import MemoryJobStore, indexes
from mainspring.jobstores.memory.indexes import Entry, Timetable
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import (
    CALL,
    LEASE,
    add_job,
    add_run,
    beat,
    behind,
    break_,
    cancel_all,
    claim,
    current,
    due_one,
    fail,
    give_back,
    make_job,
    make_run,
    settle,
    start,
    stored,
    succeed,
)
from mainspring.triggers.interval import IntervalTrigger

ALL = RunQuery()
HOUR = 3600


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryJobStore:
    return MemoryJobStore(clock)


def ids(store: MemoryJobStore) -> list[str]:
    return sorted(run.id for run in store.find_runs(ALL, limit=1000))


def end(store: MemoryJobStore, *names: str, **fields: Any) -> None:
    for name in names:
        assert settle(store, succeed(store, start(store, name, **fields)))


# -- what is kept ------------------------------------------------------------------------------------------------


def test_objects_are_kept_as_they_are(store: MemoryJobStore) -> None:
    class Unpicklable:
        lock = threading.Lock()

        def method(self) -> None: ...

    thing = Unpicklable()
    add_job(store, call=Call(thing.method, (thing,), {"fn": print}, "method"))
    run = start(store, call=Call(lambda: None, (thing,)))
    assert stored(store).call.func == thing.method
    assert stored(store).args[0] is run.args[0] is thing


def test_it_says_that_it_is_volatile_and_keeps_objects(store: MemoryJobStore) -> None:
    assert (store.volatile, store.keeps_objects) == (True, True)


def test_it_cannot_be_pickled_and_says_why(store: MemoryJobStore) -> None:
    with pytest.raises(TypeError, match="lives in one process"):
        pickle.dumps(store)


def test_its_repr_is_short(store: MemoryJobStore) -> None:
    add_job(store)
    add_run(store)
    add_run(store)
    assert repr(store) == "<MemoryJobStore (1 jobs, 2 runs)>"


def test_what_is_stored_outlives_a_shutdown(store: MemoryJobStore) -> None:
    add_job(store)
    store.shutdown()
    assert stored(store).id == "job"


def test_a_shutdown_wakes_whoever_waits(store: MemoryJobStore) -> None:
    cursor = store.wait(0, 0)
    seen: list[int] = []
    sleeper = threading.Thread(target=lambda: seen.append(store.wait(cursor, 60)), daemon=True)
    sleeper.start()
    store.shutdown()
    sleeper.join(60)
    assert seen == [cursor + 1]


def test_a_store_whose_jobs_lead_back_to_it_is_collected(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock)
    add_job(store, call=Call(store.beat, name="beat"))
    add_run(store, call=Call(store.beat, name="beat"))
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None


def test_an_unknown_job_is_reported_with_near_matches(store: MemoryJobStore) -> None:
    add_job(store, "nightly-report")
    with pytest.raises(JobLookupError, match="did you mean 'nightly-report'"):
        store.remove_job("nightly-reprot")


def test_a_job_is_not_restored_over_a_new_one_of_its_id(store: MemoryJobStore) -> None:
    first = add_job(store)
    store.set_aside("job", first.version, "unreadable")
    second = add_job(store)
    with pytest.raises(ConflictingIdError):
        store.set_aside("job", 0, None)
    assert [broken.id for broken in store.get_jobs(broken=True).broken] == ["job"]
    store.set_aside("job", second.version, "unreadable too")
    assert len(store.get_jobs(broken=True).broken) == 2
    assert store.set_aside("job", 0, None) is True
    assert stored(store).incarnation == second.incarnation


# -- retention ---------------------------------------------------------------------------------------------------


def test_the_oldest_finished_runs_go_when_there_are_too_many(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=3)
    end(store, "a", "b", "c")
    assert ids(store) == ["a", "b", "c"]
    end(store, "d", "e")
    assert ids(store) == ["c", "d", "e"]
    assert store.stats().totals["succeeded"] == 5


def test_only_finished_runs_are_counted_against_the_limit(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=1)
    settle(store, break_(store, start(store, "broken")))
    start(store, "running")
    end(store, "a", "b")
    add_run(store, "waiting")
    assert ids(store) == ["b", "broken", "running", "waiting"]


def test_a_run_that_was_sent_back_is_not_the_oldest_any_more(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=2)
    first = start(store, "first", policy=Policy(retries=0))
    settle(store, fail(store, first))
    end(store, "second")
    [failed] = store.get_runs(["first"])
    assert failed is not None
    assert settle(store, retry(failed, clock.now()))
    [again] = claim(store)
    settle(store, succeed(store, again))
    end(store, "third")
    assert ids(store) == ["first", "third"]


def test_missed_records_count_against_the_limit_and_an_extended_one_is_the_newest(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=2)

    def miss(job: Job, name: str) -> None:
        record = make_run(store, name, status=Status.MISSED, finished_at=clock.now(), job_id=job.id)
        at = clock.now() - SECOND
        assert store.fire([Firing(job.id, stored(store).version, at, at, missed=(record,))], LEASE) == [()]

    job = add_job(store)
    for name in ("a", "b", "a", "c"):
        miss(job, name)
    assert ids(store) == ["a", "c"]


def test_nothing_finished_is_kept_if_none_is_wanted(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=0)
    end(store, "a")
    assert ids(store) == []
    assert store.add_runs([make_run(store, "a")]) == ["a"]
    assert ids(store) == []


def test_runs_are_kept_for_a_time_unless_their_policy_says_otherwise(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_for=100)
    end(store, "usual")
    end(store, "shorter", policy=Policy(retention=10.0))
    end(store, "longer", policy=Policy(retention=1000.0))
    for seconds, left in ((9, 3), (1, 2), (89, 2), (1, 1), (899, 1), (1, 0)):
        clock.advance(seconds)
        store.prune()
        assert len(ids(store)) == left


def test_a_deleted_id_is_forgotten_after_an_hour(store: MemoryJobStore, clock: VirtualClock) -> None:
    end(store, "a", "b")
    store.delete_runs(["a"])
    clock.advance(3599)
    store.add_runs([make_run(store, "a")])
    assert ids(store) == ["b"]
    clock.advance(1)
    store.add_runs([make_run(store, "a")])
    assert ids(store) == ["a", "b"]


def test_no_more_than_so_many_deleted_ids_are_remembered(
    store: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "IDS_REMEMBERED", 2)
    end(store, "a", "b", "c")
    store.delete_runs(["a", "b", "c"])
    store.add_runs([make_run(store, name) for name in ("a", "b", "c")])
    assert ids(store) == ["a"]


# -- waking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda store, run: add_job(store, "later", due_in=500),
        lambda store, run: add_job(store, "paused", due_in=None),
        lambda store, run: store.update_job(stored(store)),
        lambda store, run: store.remove_job("job"),
        lambda store, run: store.due(10, 2),
        lambda store, run: claim(store, "other"),
        lambda store, run: store.extend([beat(run)], LEASE),
        lambda store, run: settle(store, succeed(store, run)),
        lambda store, run: add_run(store, queue="paused"),
        lambda store, run: add_run(store, queue="other", due_in=900),
        lambda store, run: store.add_runs([make_run(store, run.id)]),
        lambda store, run: store.set_gate("queue:other", 0),
        lambda store, run: cancel_all(store, "other"),
        lambda store, run: store.prune(),
    ],
)
def test_nobody_is_woken_for_what_no_loop_waits_for(
    store: MemoryJobStore, act: Callable[[MemoryJobStore, Run], object]
) -> None:
    add_job(store, due_in=100)
    run = start(store)
    add_run(store, queue="other", due_in=800)
    store.set_gate("queue:paused", 0)
    cursor = store.wait(0, 0)
    act(store, run)
    assert store.wait(cursor, 0) == cursor


def test_a_batch_wakes_once(store: MemoryJobStore) -> None:
    cursor = store.wait(0, 0)
    store.add_runs([make_run(store) for _ in range(10)])
    store.add_jobs([make_job(store, f"job-{n}", due_in=-n) for n in range(10)])
    assert store.wait(cursor, 0) == cursor + RUNS_STEP + 1


def test_a_job_added_before_one_that_was_removed_wakes_who_has_looked_since(store: MemoryJobStore) -> None:
    add_job(store, "soon", due_in=10)
    add_job(store, "late", due_in=500)
    store.remove_job("soon")
    assert store.due(10, 2).next_at == stored(store, "late").at
    cursor = store.wait(0, 0)
    add_job(store, "between", due_in=100)
    assert store.wait(cursor, 0) != cursor


# -- the indexes under them --------------------------------------------------------------------------------------


def test_rewriting_jobs_does_not_fill_the_memory(store: MemoryJobStore) -> None:
    jobs = [add_job(store, f"job-{n}", due_in=100 + n) for n in range(10)]
    for _ in range(100):
        for job in jobs:
            store.update_job(job)
    assert len(store._times._heap) <= 2 * len(jobs) + indexes.MOST_OUTDATED_ITEMS + 1


def test_cancelling_runs_does_not_fill_the_memory(store: MemoryJobStore) -> None:
    for _ in range(50):
        store.add_runs([make_run(store, due_in=due_in) for due_in in (-5, 500) for _ in range(5)])
        assert cancel_all(store) == 10
    lane = store._runs._lanes["default"]
    assert len(lane._ready) + len(lane._delayed) <= indexes.MOST_OUTDATED_ITEMS + 10
    assert claim(store) == []


def test_a_job_that_always_misses_does_not_fill_the_memory(store: MemoryJobStore, clock: VirtualClock) -> None:
    add_job(store)
    for _ in range(500):
        record = make_run(store, "job:missed", status=Status.MISSED, job_id="job")
        at = clock.now() - SECOND
        store.fire([Firing("job", stored(store).version, at, at, missed=(record,))], LEASE)
    assert len(store._runs._history._finished) <= indexes.MOST_OUTDATED_ITEMS + 2
    assert ids(store) == ["job:missed"]


def test_empty_lanes_are_forgotten(store: MemoryJobStore) -> None:
    for number in range(10):
        end(store, f"run-{number}", queue=f"queue-{number}")
    add_run(store, queue="busy")
    store.set_gate("queue:paused", 0)
    store.prune()
    assert list(store._runs._lanes) == ["busy"]
    assert [queue.name for queue in store.stats().queues] == ["busy", "paused"]


def test_edges_do_not_fill_the_memory(store: MemoryJobStore, clock: VirtualClock) -> None:
    for round_ in range(20):
        first, *middle = (make_run(store, policy=Policy(retention=1.0)) for _ in range(10))
        middle = [replace(run, after=behind(first)) for run in middle]
        last = make_run(store, after=behind(*middle), policy=Policy(retention=1.0))
        store.add_runs([first, *middle, last])
        for _ in range(11):
            settle(store, (fail if round_ % 3 == 0 else succeed)(store, claim(store, limit=1)[0]))
        if round_ % 2:
            settle(store, retry(current(store, last), store.beat()) if round_ % 3 == 0 else cancel(last, store.beat()))
            cancel_all(store)
        clock.advance(2)
        store.prune()
        clock.advance(HOUR)
        store.prune()
    table = store._runs
    assert (len(table), table._edges._masks, table._blocked, table._unique) == (0, {}, {}, {})


def test_what_follows_may_come_after_a_run_that_is_not_kept(clock: VirtualClock) -> None:
    store = MemoryJobStore(clock, keep_runs=0)
    run = start(store)
    follower = make_run(store, after=behind(run))
    assert settle(store, replace(succeed(store, run), then=(follower,)))
    assert ids(store) == sorted([run.id, follower.id])
    [follower] = claim(store)
    assert settle(store, succeed(store, follower))
    clock.advance(HOUR)
    store.prune()
    assert ids(store) == []


def test_runs_that_one_end_releases_start_in_the_order_in_which_they_were_added(store: MemoryJobStore) -> None:
    first = start(store)
    runs = [make_run(store, after=behind(first)) for _ in range(50)]
    store.add_runs(runs)
    settle(store, succeed(store, first))
    assert [run.id for run in claim(store)] == [run.id for run in runs]


def test_a_run_given_back_goes_behind_those_of_its_time(store: MemoryJobStore, clock: VirtualClock) -> None:
    store.add_runs([make_run(store, name, run_at=clock.now()) for name in ("a", "b", "c")])
    [first] = claim(store, limit=1)
    settle(store, give_back(store, first))
    assert [run.id for run in claim(store)] == ["b", "c", "a"]


def test_a_page_that_was_fired_in_part_shows_the_rest_again(store: MemoryJobStore, clock: VirtualClock) -> None:
    for number in range(4):
        add_job(store, f"job-{number}", due_in=-10 + number)
    page = store.due(3, 2).jobs
    at = clock.now() + 100 * SECOND
    assert store.fire([Firing(page[1].job.id, page[1].version, at, at)], LEASE) == [()]
    assert [due.job.id for due in store.due(10, 1).jobs] == ["job-3"]
    assert store.due(0, 0).next_at == page[0].at
    clock.advance(1)
    assert [due.job.id for due in store.due(10, 0).jobs] == ["job-3"]
    clock.advance(1)
    assert [due.job.id for due in store.due(10, 0).jobs] == ["job-0", "job-2", "job-3"]
    assert due_one(store, "job-2").version == page[2].version


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.none() | st.integers(0, 50)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.none()),
        st.tuples(st.just("take"), st.integers(0, 4), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.integers(1, 9), st.none()),
    ),
    max_size=60,
)
_TRIGGER = IntervalTrigger(seconds=60, timezone="UTC")


@given(_STEPS)
def test_a_timetable_agrees_with_a_search_through_a_list(steps: list[tuple[str, int, int | None]]) -> None:
    jobs: dict[str, Entry] = {}
    table, now, version = Timetable(jobs), 0, 0
    model: dict[str, tuple[int, int]] = {}  # time and version of each job that has a time
    hidden: dict[str, int] = {}  # until when
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "MOST_OUTDATED_ITEMS", 1)
        for verb, number, value in steps:
            name = str(number)
            if verb == "put":
                version += 1
                entry = jobs.setdefault(name, Entry(Job(name, CALL, _TRIGGER)))
                table.put(entry, value, version)
                model.pop(name, None)
                hidden.pop(name, None)
                if value is not None:
                    model[name] = value, version
            elif verb == "remove" and name in jobs:
                table.put(jobs.pop(name), None, 0)
                model.pop(name, None)
                hidden.pop(name, None)
            elif verb == "pass":
                now += number
            elif verb == "take":
                hold = value or 0
                visible = sorted(
                    (key, name) for name, key in model.items() if key[0] <= now and hidden.get(name, 0) <= now
                )
                expected = [name for _, name in visible][:number]
                taken, _ = table.take(now, number, now + hold)
                assert [entry.job.id for entry in taken] == expected
                for name in expected:
                    hidden[name] = now + hold
            assert table.earliest() == min((key[0] for key in model.values()), default=None)


def test_a_fire_wakes_nobody_for_the_next_run_time_of_its_job(store: MemoryJobStore) -> None:
    add_job(store)
    cursor = store.wait(0, 0)
    due = due_one(store)
    assert store.fire([Firing(due.job.id, due.version, store.beat() + 5 * SECOND, None)], LEASE) == [()]
    assert store.wait(cursor, 0) == cursor


def test_a_node_that_leaves_wakes_the_others(store: MemoryJobStore) -> None:
    node = NodeInfo(id="n", host="h", pid=1, started_at=0)
    store.beat(node, ttl=30)
    cursor = store.wait(0, 0)
    store.beat(node, ttl=0)
    assert store.wait(cursor, 0) != cursor


def test_whoever_waits_for_ends_is_woken_by_one(store: MemoryJobStore) -> None:
    run = start(store)
    cursor = store.wait(0, 0, ENDS)
    seen: list[int] = []
    waiter = threading.Thread(target=lambda: seen.append(store.wait(cursor, 60, ENDS)))
    waiter.start()
    while not store._end_waiters:
        pass
    settle(store, succeed(store, run))
    waiter.join(60)
    assert seen == [cursor + 1]
    assert store._end_waiters == 0
