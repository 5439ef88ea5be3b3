"""Whoever watches a node is told of the end of one claim before it is told of the next one of the same run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.run import Result, Run
from tests.loops.bench import Bench


class Watching:
    """Notes what it is told, and which of it the node still held then."""

    def __init__(self, bench: Bench) -> None:
        self.told: list[tuple[str, list[bool]]] = []
        self.between: list[str] = []
        """Whose former claim is forgotten, by another thread, while this one is told of the new."""
        self._claims = bench.link.claims
        bench.node.watcher = self

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None: ...

    def claimed(self, runs: Sequence[Run]) -> None:
        self.told.append(("claimed", [run.id in self._claims for run in runs]))
        for run_id in self.between:
            self._claims.pop(run_id)

    def ended(self, run_ids: Sequence[str]) -> None:
        self.told.append(("ended", [run_id in self._claims for run_id in run_ids]))


def test_an_end_is_told_before_the_run_may_be_claimed_anew(bench: Bench) -> None:
    watching = Watching(bench)
    bench.add()
    bench.link.scheduler()
    bench.executor.end_all()
    bench.link.worker()
    assert (watching.told, bench.link.claims) == ([("claimed", [False]), ("ended", [True])], {})


def test_a_run_that_was_held_when_its_next_claim_came_is_not_started_though_it_has_just_been_forgotten(
    bench: Bench,
) -> None:
    watching = Watching(bench)
    bench.add()
    bench.link.scheduler()
    ((run, _),) = bench.executor.given.values()
    watching.between = [run.id]
    bench.link.begin([replace(run, token="the next")])
    assert [(report.run.token, report.result) for report in bench.link.worker.outbox] == [("the next", Result.BUSY)]
