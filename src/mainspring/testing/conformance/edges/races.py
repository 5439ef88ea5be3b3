"""Edges between runs under concurrent threads: no run is lost, started early or released twice."""

from __future__ import annotations

from threading import Event

import pytest

from mainspring.core.run import FINAL, Run, Status
from mainspring.core.transitions import cancel
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.testing.conformance.helpers import (
    add_after,
    add_run,
    behind,
    claim,
    current,
    drop,
    fail,
    in_one_shard,
    make_run,
    settle,
    start,
    succeed,
    together,
)

ROUNDS = 10
THREADS = 8


@in_one_shard
class EdgeRaceConformance:
    """Tests that release each run once and in time while other threads add, end, cancel and claim runs."""

    def test_a_run_added_while_its_predecessor_ends_is_neither_lost_nor_early(self, store: JobStore) -> None:
        for round_ in range(ROUNDS):
            firsts = [start(store) for _ in range(4)]
            ended = Event()

            def act(index: int, firsts: list[Run] = firsts, ended: Event = ended) -> list[Run]:
                if index == 0:
                    store.settle([succeed(store, first) for first in firsts])
                    ended.set()
                    return []
                if index == 1:
                    early: list[Run] = []
                    while not ended.is_set():
                        for run in claim(store, "next"):
                            standings = store.standings([after.id for after in run.after])
                            assert all(each is not None and each.status in FINAL for each in standings)
                            early.append(run)
                    return early
                return [add_run(store, queue="next", after=behind(*firsts))]

            _, early, *added = together(THREADS, act)
            runs = early + claim(store, "next")
            assert sorted(run.id for run in runs) == sorted(run.id for each in added for run in each), f"round {round_}"
            assert {run.refused for run in runs} == {None}
            assert store.settle([succeed(store, run) for run in runs]) == [True] * len(runs)

    def test_a_run_added_while_its_predecessor_fails_is_refused_once(self, store: JobStore) -> None:
        for round_ in range(ROUNDS):
            first = start(store)

            def act(index: int, first: Run = first) -> tuple[str, ...]:
                if index == 0:
                    return store.settle([fail(store, first)]).refused
                return store.add_runs([make_run(store, queue="next", after=behind(first))]).refused

            refused = [run_id for each in together(THREADS, act) for run_id in each]
            assert len(refused) == len(set(refused)) == THREADS - 1, f"round {round_}"
            runs = claim(store, "next")
            assert sorted(refused) == sorted(run.id for run in runs)
            assert {run.refused for run in runs} == {first.id}
            assert current(store, first).followed == THREADS - 1

    def test_predecessors_that_end_in_several_calls_at_once_release_it_once(self, store: JobStore) -> None:
        for round_ in range(ROUNDS):
            firsts = [start(store) for _ in range(THREADS)]
            runs = [add_after(store, *firsts) for _ in range(3)]

            def end(index: int, firsts: list[Run] = firsts) -> bool:
                return settle(store, succeed(store, firsts[index]))

            assert together(THREADS, end) == [True] * THREADS
            claimed = claim(store, "next")
            assert sorted(run.id for run in claimed) == sorted(run.id for run in runs), f"round {round_}"
            assert {(run.attempt, run.waits) for run in claimed} == {(1, 0)}

    def test_a_run_added_behind_many_while_they_end_counts_each_once(self, store: JobStore) -> None:
        for round_ in range(ROUNDS):
            store.add_runs([make_run(store) for _ in range(40)])
            firsts = claim(store)

            def act(index: int, firsts: list[Run] = firsts) -> str:
                if index < 4:
                    for first in firsts[index::4]:
                        assert settle(store, succeed(store, first))
                    return ""
                order = firsts if index % 2 else firsts[::-1]
                return add_run(store, queue="next", after=behind(*order)).id

            added = [run_id for run_id in together(THREADS, act) if run_id]
            assert sorted(run.id for run in claim(store, "next")) == sorted(added), f"round {round_}"

    @pytest.mark.parametrize("well", [True, False])
    def test_a_run_cancelled_while_its_predecessor_ends_is_not_started(self, store: JobStore, well: bool) -> None:
        for round_ in range(ROUNDS):
            first = start(store)
            runs = [add_after(store, first) for _ in range(5)]

            def act(index: int, first: Run = first, runs: list[Run] = runs) -> list[bool]:
                if index == 0:
                    return list(store.settle([(succeed if well else fail)(store, first)]))
                return [settle(store, cancel(run, store.beat())) for run in runs[index - 1 :: 2]]

            written = together(3, act)
            assert written[0] == [True]
            cancelled = sum(sum(each) for each in written[1:])
            assert cancelled == len(runs), f"round {round_}"
            assert claim(store, "next") == []

    def test_each_refused_run_is_dropped_once(self, store: JobStore) -> None:
        for round_ in range(ROUNDS):
            first = start(store)
            runs = [add_after(store, first) for _ in range(10)]
            assert set(store.settle([fail(store, first)]).refused) == {run.id for run in runs}
            runs = [current(store, run) for run in runs]

            def act(index: int, runs: list[Run] = runs) -> int:
                if index % 2:
                    return len(claim(store, "next"))
                return sum(store.settle([drop(store, run) for run in runs]))

            assert sum(together(4, act)) == 10, f"round {round_}"

    def test_flows_run_to_their_ends_whoever_acts(self, store: JobStore) -> None:
        """Add and run small flows in several threads: each step starts once, after all its predecessors."""
        flows, width = 6, 4
        finished: list[str] = []

        def act(index: int) -> None:
            if index < 2:
                for _ in range(flows // 2):
                    tops = [make_run(store) for _ in range(width)]
                    middle = [make_run(store, after=behind(*tops)) for _ in range(width)]
                    store.add_runs([*tops, *middle, make_run(store, after=behind(*middle, *tops))])
                return
            while len(finished) < flows * (2 * width + 1):
                for run in claim(store, limit=3):
                    standings = store.standings([after.id for after in run.after])
                    assert all(each is not None and each.status is Status.SUCCEEDED for each in standings)
                    assert settle(store, succeed(store, run))
                    finished.append(run.id)

        together(6, act)
        assert len(finished) == len(set(finished)) == flows * (2 * width + 1)
        assert store.stats(RunQuery(status=(Status.BLOCKED, Status.PENDING, Status.RUNNING))).matching == 0
