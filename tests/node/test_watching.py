"""What whoever watches a node is told, in which order, and what the node takes from it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.core.run import Result, Run, Status
from mainspring.jobstores.base import RunQuery
from mainspring.node.store_link import StoreLink
from tests.node.bench import Bench


class Watching:
    """Notes what it is told, and which of it the node still held then."""

    steady_since: float | None = None
    runs_left: int | None = None
    began_at = 0.0

    def __init__(self, bench: Bench) -> None:
        self.told: list[tuple[str, list[bool]]] = []
        self.between: list[str] = []
        """Whose former claim is forgotten, by another thread, while this one is told of the new."""
        self._claims = bench.link.claims
        bench.node.watcher = self

    def stop_all(self) -> None: ...

    def claiming(self, node: str, token: str, queues: Sequence[str]) -> None: ...

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


def test_a_node_whose_watcher_has_heard_the_store_for_a_lease_recovers_the_runs_of_the_dead_at_once(
    bench: Bench, other: Bench
) -> None:
    bench.add(seconds=1000)
    bench.link.scheduler()
    bench.clock.advance(16)
    Watching(other).steady_since = bench.clock.monotonic() - other.node.lease
    link = other.node.links["default"] = StoreLink(other.node, "default", other.store)
    link.heartbeat()
    link.janitor()
    assert [run.status for run in other.store.find_runs(RunQuery())] == [Status.PENDING]
