"""What the sentinel does with the store and its workers goes on, whatever the store or a worker does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.cluster.leases import LeaseKeeper
from mainspring.cluster.messages import STOP, STOP_RUNS, read
from mainspring.cluster.worker_handle import Claim, WorkerHandle
from mainspring.core.instants import SECOND
from mainspring.core.lanes import lanes_of
from mainspring.core.run import Error, Run, Status
from mainspring.errors import StoreUnavailable
from mainspring.executors.scoreboard import Scoreboard, make_board
from mainspring.testing.conformance.helpers import lapsed
from tests.cluster.kit import wait_until

LEASE = 3.0


def wait(failures: int) -> float:
    """Stand for a back-off in a module that must not be imported."""
    return 1.0


class Desk:
    """A worker as its sentinel sees it, and the worker's ends of the pipe and the board."""

    def __init__(self) -> None:
        ours, self.pipe = Pipe()
        process = SimpleNamespace(pid=os.getpid(), sentinel=0)
        self.board = make_board(50)
        self.left = WorkerHandle(process, ours, Scoreboard(os.dup(self.board.fileno())))

    def close(self) -> None:
        self.left.close()
        self.board.close()

    def claims(self, runs: list[Run], ago: float) -> None:
        """Have the worker claim runs, heard of so many seconds ago."""
        heard_at = self.left.started_at - ago
        self.left.claims.update({run.id: Claim(str(run.token), heard_at) for run in runs})


@pytest.fixture
def desk() -> Iterator[Desk]:
    with closing(Desk()) as desk:
        yield desk


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    with closing(Mainspring(f"sqlite:///{tmp_path}/jobs.db", lease=LEASE)) as app:
        yield app


@pytest.fixture
def claim(app: Mainspring) -> Callable[..., list[Run]]:
    """Enqueue runs and claim them."""

    @app.task
    def nothing() -> None: ...

    def claim(count: int, **options: Any) -> list[Run]:
        app.enqueue_many([nothing.options(**options).call() for _ in range(count)])
        claimed = app.store.claim([(("default",), count)], node="a node", token=os.urandom(4).hex(), lease=LEASE)
        assert len(claimed.runs) == count
        return list(claimed.runs)

    return claim


def states(app: Mainspring, runs: list[Run]) -> list[tuple[Status, int]]:
    return [(run.status, run.attempt) for run in app.store.get_runs([run.id for run in runs]) if run is not None]


def test_leases_are_renewed_though_the_store_was_away_when_the_cluster_started(
    app: Mainspring, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []
    beat = app.store.beat

    def beat_at_last() -> int:
        tries.append(None)
        if len(tries) == 1:
            raise StoreUnavailable("the network was cut")
        return beat()

    monkeypatch.setattr(app.store, "beat", beat_at_last)
    desk.left.claims["run-1"] = Claim("token", desk.left.started_at)
    keeper = LeaseKeeper(app, lambda: [desk.left])
    keeper.start()
    try:
        wait_until(lambda: desk.pipe.poll(0))  # the store does not know that run: the answer to a renewal
    finally:
        keeper.close()
    assert read(desk.pipe) == (STOP_RUNS, [["run-1", "token"]])
    assert len(tries) > 1


@pytest.mark.parametrize("death", ["crashed", "timed out", "cancelled"])
def test_a_run_that_ended_with_its_process_had_run_since_it_was_claimed(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]], death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = claim(1, delivery="at_most_once", timeout=1)
    desk.claims([run], ago=0)
    desk.board.enter(run.id, 1)
    if death == "timed out":
        desk.left.stuck.add(run.id)
    if death == "cancelled":
        assert app.store.cancel([run.id]) == [True]
    now = app.store.beat() + 60 * SECOND
    monkeypatch.setattr(app, "now", lambda: now)
    LeaseKeeper(app, lambda: [desk.left]).settle(desk.left, -9)
    [ended] = app.store.get_runs([run.id])
    assert ended is not None
    assert ended.started_at is not None
    assert ended.finished_at == now
    assert now - ended.started_at >= 60 * SECOND


@pytest.mark.parametrize(("number", "crashes"), [(20, [1, 2]), (21, [0, 1])])
def test_of_a_crowd_that_dies_together_nobody_is_charged_the_first_time(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]], number: int, crashes: list[int]
) -> None:
    charged, runs = [], claim(number)
    for token in ("second", "third"):
        desk.claims(runs, ago=0)
        for run in runs:
            desk.board.enter(run.id, None)
        LeaseKeeper(app, lambda: [desk.left]).settle(desk.left, -9)
        for run in runs:
            desk.board.forget(run.id)
        desk.left.claims.clear()
        found = app.store.get_runs([run.id for run in runs])
        charged.append({run.crashes for run in found if run is not None})
        runs = list(app.store.claim([(lanes_of("default"), number)], node="a node", token=token, lease=LEASE).runs)
    assert charged == [{count} for count in crashes]


def test_a_run_whose_outcome_is_too_large_keeps_no_other_from_being_charged(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = claim(3)
    desk.claims(runs, ago=0)
    for run in runs:
        desk.board.enter(run.id, None)
    large = Error("ValueError", "no", os.urandom(1_000_000).hex(), 0, 1)
    get_runs = app.store.get_runs

    def with_errors(run_ids: Sequence[str]) -> list[Run | None]:
        found = get_runs(run_ids)
        return [
            replace(run, errors=(large, large)) if run is not None and run.id == runs[1].id else run for run in found
        ]

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "get_runs", with_errors)
        LeaseKeeper(app, lambda: [desk.left]).settle(desk.left, -9)
    found = [run for run in app.store.get_runs([run.id for run in runs]) if run is not None]
    assert [run.status is Status.RUNNING for run in found] == [False] * 3
    assert (found[0].crashes, found[2].crashes) == (1, 1)


# -- a worker that stands still ---------------------------------------------------------------------------------------


def test_what_a_worker_has_not_started_in_more_than_a_lease_is_given_back_as_if_never_claimed(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    runs = claim(3)
    desk.claims(runs, ago=2 * LEASE)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    assert states(app, runs) == [(Status.PENDING, 0)] * 3
    assert desk.left.claims == {}


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_what_it_executes_is_renewed_however_long_that_takes(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]], delivery: str
) -> None:
    runs = claim(2, delivery=delivery)
    desk.claims(runs, ago=100 * LEASE)
    desk.board.enter(runs[0].id, None)
    desk.board.enter(runs[1].id, None)
    desk.board.end(runs[1].id)  # its outcome is not yet in the store
    app.store.shift_clock(LEASE - 0.5)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    app.store.shift_clock(LEASE - 0.5)
    assert lapsed(app.store) == []
    assert states(app, runs) == [(Status.RUNNING, 1)] * 2


def test_what_it_has_claimed_within_a_lease_is_renewed_started_or_not(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    runs = claim(2)
    desk.claims(runs, ago=0.9 * LEASE)
    app.store.shift_clock(LEASE - 0.5)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    app.store.shift_clock(LEASE - 0.5)
    assert lapsed(app.store) == []
    assert states(app, runs) == [(Status.RUNNING, 1)] * 2


def test_what_may_start_only_once_is_left_to_a_worker_that_may_be_about_to_start_it(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    runs = claim(2, delivery="at_most_once")
    desk.claims(runs, ago=2 * LEASE)
    app.store.shift_clock(LEASE - 0.5)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    app.store.shift_clock(LEASE - 0.5)
    assert lapsed(app.store) == []
    assert states(app, runs) == [(Status.RUNNING, 1)] * 2


def test_an_old_claim_takes_nothing_from_whoever_has_claimed_the_run_since(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    (run,) = claim(1)
    desk.left.claims[run.id] = Claim("an older token", desk.left.started_at - 2 * LEASE)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    assert states(app, [run]) == [(Status.RUNNING, 1)]
    assert read(desk.pipe) == (STOP_RUNS, [[run.id, "an older token"]])


def test_a_run_that_is_to_be_cancelled_is_cancelled_where_it_has_not_been_started(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    (run,) = claim(1)
    assert app.handle(run.id).cancel()
    desk.claims([run], ago=2 * LEASE)
    LeaseKeeper(app, lambda: [desk.left]).renew()
    assert [status for status, _ in states(app, [run])] == [Status.CANCELLED]


def test_a_worker_that_is_buried_meanwhile_keeps_nobody_from_being_renewed(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]]
) -> None:
    runs = claim(1)
    desk.claims(runs, ago=2 * LEASE)
    desk.left.board.close()
    LeaseKeeper(app, lambda: [desk.left]).renew()
    assert states(app, runs) == [(Status.RUNNING, 1)]


def test_what_a_crashed_run_names_is_not_imported_where_the_next_crash_would_end_the_cluster(
    app: Mainspring, desk: Desk, claim: Callable[..., list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = claim(1, retries=1, backoff=wait)
    desk.claims([run], ago=0)
    desk.board.enter(run.id, None)
    keeper = LeaseKeeper(app, lambda: [desk.left])
    imported: list[str] = []
    monkeypatch.setattr(keeper._place, "backoff", imported.append)
    keeper.settle(desk.left, -11)
    (found,) = app.store.get_runs([run.id])
    assert found is not None
    assert (found.status, found.crashes, found.failures) == (Status.PENDING, 1, 0)
    assert (found.policy.backoff, imported) == (run.policy.backoff, [])


# -- a worker that does not read ---------------------------------------------------------------------------------------


def heard(pipe: Connection) -> list[tuple[str, Any]]:
    found = []
    while pipe.poll(0):
        found.append(read(pipe))
    return found


def test_a_worker_that_does_not_read_keeps_nobody_waiting_and_hears_all_when_it_does(desk: Desk) -> None:
    claims = [(f"run-{number:05}-{'x' * 100}", f"token-{number}") for number in range(5_000)]
    desk.left.stop_runs(claims)  # far more than a pipe holds
    desk.left.ask_to_stop("enough")
    told: list[tuple[str, str]] = []
    for _ in range(1000):
        for word, what in heard(desk.pipe):
            if word == STOP:
                assert what == "enough"
                claims_told = {tuple(claim) for claim in told}
            else:
                told += [(run_id, token) for run_id, token in what]
        desk.left.say_again()
        desk.left.stop_runs(claims)
        if len(told) == len(claims):
            break
    assert told == claims  # each once, in order
    assert claims_told < set(claims)


def test_a_worker_that_has_gone_is_told_nothing(desk: Desk) -> None:
    desk.pipe.close()
    desk.left.stop_runs([("run", "token")])
    desk.left.ask_to_stop("enough")
    desk.left.ping()
    desk.left.hear()
    assert desk.left.deaf
