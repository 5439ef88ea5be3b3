"""Concurrent threads: each run and each fire happens once, whatever the threads do."""

from __future__ import annotations

from threading import Lock

from msgspec.structs import replace

from mainspring.core.job import Job
from mainspring.core.plan import Firing, Place, firing, plan
from mainspring.core.run import Run, Status
from mainspring.core.transitions import cancel, recover
from mainspring.errors import ConflictingIdError, VersionConflict
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import count_unfinished
from mainspring.testing.conformance.helpers import (
    LEASE,
    UNFINISHED,
    add_job,
    add_run,
    claim,
    current,
    fail,
    fired_run,
    give_back,
    lapsed,
    make_job,
    make_run,
    new_token,
    settle,
    start,
    step,
    stored,
    succeed,
    together,
    unfinished,
)

ALL = RunQuery()
THREADS = 8


class ConcurrencyConformance:
    """Tests of promises that hold while many threads act at the same moment."""

    def test_each_run_is_claimed_by_one_node(self, store: JobStore) -> None:
        runs = [make_run(store) for _ in range(200)]
        store.add_runs(runs)

        def claim_all(index: int) -> list[Run]:
            mine: list[Run] = []
            while batch := claim(store, limit=7, node=f"node-{index}"):
                mine += batch
            return mine

        claimed = [run for mine in together(THREADS, claim_all) for run in mine]
        assert sorted(run.id for run in claimed) == sorted(run.id for run in runs)
        assert {run.attempt for run in claimed} == {1}

    def test_each_due_job_is_fired_once_by_several_schedulers(self, store: JobStore) -> None:
        store.add_jobs([make_job(store, f"job-{n:03}", due_in=-30, every=3600) for n in range(100)])

        def schedule(index: int) -> list[str]:
            fired: list[str] = []
            # Hide the job for no time at all, so that the schedulers really collide.
            while page := store.due(20, 0).jobs:
                now = store.beat()
                steps = [firing(due, plan(due, now), Place("default"), now) for due in page]
                fired += [run_id for answer in store.fire(steps, LEASE) for run_id in answer or ()]
            return fired

        fired = [run_id for mine in together(THREADS, schedule) for run_id in mine]
        assert len(fired) == len(set(fired)) == 100
        assert {run.id for run in store.find_runs(ALL, limit=1000)} == set(fired)
        store.shift_clock(3600)
        assert [due.unfinished for due in store.due(1000, 0).jobs] == [1] * 100

    def test_each_version_of_a_job_has_one_winner(self, store: JobStore) -> None:
        add_job(store)
        fires = 0
        for round_ in range(10):
            read = [stored(store) for _ in range(THREADS)]

            def act(index: int, read: list[Job] = read) -> bool:
                job = read[index]
                if index % 2:
                    run = fired_run(store, job)
                    return store.fire([step(store, job, next_in=-1, runs=(run,))], LEASE) != [None]
                job.max_instances = index + 1
                try:
                    store.update_job(job)
                except VersionConflict:
                    return False
                return True

            won = together(THREADS, act)
            assert won.count(True) == 1, f"round {round_}"
            winner = won.index(True)
            if winner % 2:
                fires += 1
            else:
                assert stored(store).max_instances == winner + 1
            assert store.stats(ALL).matching == fires

    def test_fires_within_and_besides_the_schedule_keep_to_the_most_instances(self, store: JobStore) -> None:
        for round_ in range(5):
            name = f"job-{round_}"
            job = add_job(store, name, max_instances=2)
            owner = (name, job.incarnation)

            def act(index: int, name: str = name, owner: tuple[str, int] = owner) -> None:
                while count_unfinished(store, [owner])[0] < 2:
                    now = store.beat()
                    if index % 2:
                        steps = [firing(due, plan(due, now), Place("default"), now) for due in store.due(10, 0).jobs]
                        store.fire(steps, LEASE)
                        continue
                    read = stored(store, name)
                    run = make_run(store, f"{name}@{read.incarnation}@{index}", job_id=name)
                    if count_unfinished(store, [owner])[0] < 2:
                        store.fire([Firing(name, read.version, read.at, read.nominal, (run,), unscheduled=True)], LEASE)

            together(THREADS, act)
            assert unfinished(store, job) == 2, f"round {round_}"

    def test_adding_one_id_has_one_winner(self, store: JobStore) -> None:
        def add(index: int) -> bool:
            try:
                store.add_job(make_job(store, max_instances=index + 1))
            except ConflictingIdError:
                return False
            return True

        won = together(THREADS, add)
        assert won.count(True) == 1
        assert stored(store).max_instances == won.index(True) + 1

    def test_versions_are_never_given_twice(self, store: JobStore) -> None:
        def write(index: int) -> list[int]:
            job = make_job(store, f"job-{index}")
            versions = []
            for _ in range(5):
                store.add_job(job)
                versions.append(job.version)
                store.update_job(job)
                versions.append(job.version)
                store.remove_job(job.id)
            return versions

        versions = [version for mine in together(THREADS, write) for version in mine]
        assert len(set(versions)) == len(versions)

    def test_one_run_gets_a_unique_key(self, store: JobStore) -> None:
        for _ in range(5):
            key = new_token()

            def add(index: int, key: str = key) -> str | None:
                return store.add_runs([make_run(store, unique=key)])[0]

            assert len(set(together(THREADS, add))) == 1
        assert store.stats(ALL).matching == 5

    def test_one_id_is_one_run(self, store: JobStore) -> None:
        assert together(THREADS, lambda index: store.add_runs([make_run(store, "one")])) == [["one"]] * THREADS
        assert len(claim(store)) == 1

    def test_one_word_about_a_run_is_accepted(self, store: JobStore) -> None:
        run = start(store)
        follower = make_run(store, queue="other")

        def speak(index: int) -> bool:
            outcome = (succeed, fail, give_back)[index % 3](store, run)
            return settle(store, replace(outcome, then=(follower,)))

        assert together(THREADS, speak).count(True) == 1
        assert len(claim(store, "other")) == 1
        counters = store.stats().totals
        assert counters["succeeded"] + counters["failed"] == (current(store, run).status is not Status.PENDING)

    def test_each_lost_run_is_recovered_by_one_janitor(self, store: JobStore) -> None:
        store.add_runs([make_run(store) for _ in range(50)])
        assert len(claim(store)) == 50
        store.shift_clock(LEASE + 1)

        def sweep(index: int) -> int:
            expired = lapsed(store, 100)
            return sum(store.settle([recover(run, store.beat()) for run in expired]))

        assert sum(together(THREADS, sweep)) == 50
        assert {run.interruptions for run in claim(store)} == {1}

    def test_a_run_is_either_claimed_or_cancelled(self, store: JobStore) -> None:
        runs = [make_run(store) for _ in range(60)]
        store.add_runs(runs)

        def act(index: int) -> list[str]:
            if index % 2:
                mine = []
                while batch := claim(store, limit=3):
                    mine += [run.id for run in batch]
                return mine
            return [run.id for run in runs if settle(store, cancel(run, store.beat()))]

        ended = [run_id for mine in together(THREADS, act) for run_id in mine]
        assert sorted(ended) == sorted(run.id for run in runs)
        assert store.stats(RunQuery(status=(Status.PENDING,))).matching == 0

    def test_nothing_is_lost_or_doubled_between_producers_and_workers(self, store: JobStore) -> None:
        produced, done, lock = 4 * 40, [0], Lock()

        def act(index: int) -> list[str]:
            if index % 2:
                return [add_run(store).id for _ in range(40)]
            while True:
                batch = claim(store, limit=5)
                accepted = sum(store.settle([succeed(store, run) for run in batch]))
                with lock:
                    done[0] += accepted
                    if done[0] >= produced:
                        return []

        together(THREADS, act)
        assert done == [produced]
        assert store.stats().totals["succeeded"] == produced
        assert store.stats(RunQuery(status=UNFINISHED)).matching == 0
        assert store.stats().queues == []
