"""Two connections to a database server, one of them stopped between two statements: what chance seldom finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, create_engine, text

from mainspring.core.run import Run, Status
from mainspring.core.transitions import cancel, change, retry
from mainspring.core.waiting.gates import QUEUE_GATE, Limit
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.transaction import Statements
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_after,
    add_run,
    behind,
    claim,
    current,
    fail,
    make_run,
    new_token,
    send_back,
    start,
    succeed,
)

T = TypeVar("T")

PATIENCE = 90.0
_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


class Stop:
    """Stops one store, once, before a statement that has a word in it, until it may go on."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.reached = Event()
        self.go_on = Event()

    def look(self, statement: str) -> None:
        """Wait if this is the statement."""
        if self.word in statement and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE)


class WatchedCursor:
    """A cursor that shows each statement to a stop before it executes it."""

    def __init__(self, cursor: Any, stop: Stop) -> None:
        self._cursor, self._stop = cursor, stop

    def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        self._stop.look(str(statement))
        return self._cursor.execute(statement, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class Race:
    """Two stores over the same tables: `slow` can be stopped between two statements, `quick` acts meanwhile."""

    edges, runs, limits = "race_edges", "race_runs", "race_limits"

    def __init__(self, engine: Engine) -> None:
        self.quick, self.slow = (SQLAlchemyJobStore(engine=engine, tablename="race_jobs") for _ in range(2))
        for store in (self.quick, self.slow):
            store.start(None, "default")
        # Both count ends, and who counts in the same row would wait for the one that is stopped.
        self.quick._open().slot, self.slow._open().slot = 0, 1
        self._engine = engine
        self._threads = ThreadPoolExecutor(4)

    def close(self) -> None:
        self._threads.shutdown()
        for store in (self.quick, self.slow):
            store.shutdown()
        with self._engine.begin() as connection:
            for table in (self.edges, self.runs, self.limits, "race_gone", "race_queues"):
                connection.execute(text(f"TRUNCATE TABLE {table}"))
            connection.execute(text("UPDATE race_meta SET value = 0 WHERE name = 'clock'"))

    def take_locks_from(self, store: SQLAlchemyJobStore) -> None:
        """Let a store read without locks, to show what they are for."""
        database = store._open()
        database.texts = Statements({**database.texts._words, "lock": "", "skip": ""}, database.placeholder)

    @property
    def dialect(self) -> str:
        return self._engine.dialect.name

    @contextmanager
    def stopped(self, word: str, act: Callable[[JobStore], T]) -> Iterator[Future[T]]:
        """Let the slow store act, and stop it before the statement that names `word`, until the block is left."""
        stop = Stop(word)
        database = self.slow._open()
        make = database._tx  # type: ignore[attr-defined]

        def watched(connection: Any) -> Any:
            tx = make(connection)
            tx.cursor = WatchedCursor(tx.cursor, stop)
            return tx

        database._tx = watched  # type: ignore[attr-defined]
        acting = self._threads.submit(act, self.slow)
        try:
            assert stop.reached.wait(PATIENCE), f"no statement names {word}"
            yield acting
        finally:
            database._tx = make  # type: ignore[attr-defined]
            stop.go_on.set()
        acting.result(PATIENCE)

    def begin(self, act: Callable[[JobStore], T]) -> tuple[Future[T], bool]:
        """Let the quick store act until it has done so, or waits for a lock; return which."""
        acting = self._threads.submit(act, self.quick)
        deadline = time.monotonic() + PATIENCE
        while not acting.done() and time.monotonic() < deadline:
            with self._engine.connect() as connection:
                if connection.execute(text(_WAITING[self.dialect])).scalar():
                    return acting, True
            time.sleep(0.12)  # MariaDB brings what it shows up to date only if nobody has looked for 0.1 s
        return acting, False


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = create_engine(request.getfixturevalue(f"{request.param}_server").url, pool_size=10)
    yield engine
    engine.dispose()


@pytest.fixture
def race(engine: Engine) -> Iterator[Race]:
    race = Race(engine)
    yield race
    race.close()


# -- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("well", [True, False])
def test_a_run_cannot_end_while_one_is_being_added_behind_it(race: Race, well: bool) -> None:
    first = start(race.quick)
    run = make_run(race.quick, queue="next", after=behind(first))
    with race.stopped(race.edges, lambda store: store.add_runs([run])) as adding:
        ending, waits = race.begin(lambda store: store.settle([(succeed if well else fail)(store, first)]))
        assert waits
    assert adding.result() == [run.id]
    answers = ending.result(PATIENCE)
    assert (answers, answers.refused) == ([True], () if well else (run.id,))
    [claimed] = claim(race.quick, "next")
    assert (claimed.id, claimed.refused) == (run.id, None if well else first.id)


@pytest.mark.parametrize("well", [True, False])
def test_a_run_that_is_added_while_its_predecessor_is_ending_waits_for_the_end(race: Race, well: bool) -> None:
    first = start(race.quick)
    other = add_after(race.quick, first, queue="other")
    run = make_run(race.quick, queue="next", after=behind(first))
    with race.stopped(race.edges, lambda store: store.settle([(succeed if well else fail)(store, first)])) as ending:
        adding, waits = race.begin(lambda store: store.add_runs([run]))
        assert waits
    answers = adding.result(PATIENCE)
    assert (answers, answers.refused) == ([run.id], () if well else (run.id,))
    assert ending.result().refused == (() if well else (other.id,))
    assert current(race.quick, run).status is Status.PENDING


def test_two_last_predecessors_that_end_at_once_release_a_run_once(race: Race) -> None:
    first, second = start(race.quick), start(race.quick)
    run = add_after(race.quick, first, second)
    with race.stopped(race.edges, lambda store: store.settle([succeed(store, first)])):
        race.quick.settle([succeed(race.quick, second)])
        middle = current(race.quick, run)
        assert (middle.status, middle.waits) == (Status.BLOCKED, 1)
    released = current(race.quick, run)
    assert (released.status, released.waits) == (Status.PENDING, 0)
    assert [one.id for one in claim(race.quick, "next")] == [run.id]


def test_a_run_that_is_cancelled_while_its_predecessor_is_ending_is_not_released(race: Race) -> None:
    first = start(race.quick)
    run = add_after(race.quick, first)
    with race.stopped(race.edges, lambda store: store.settle([succeed(store, first)])):
        assert race.quick.settle([cancel(run, race.quick.beat())]) == [True]
    assert current(race.quick, run).status is Status.CANCELLED
    assert claim(race.quick, "next") == []


def test_a_run_cannot_end_while_one_is_being_sent_back_behind_it(race: Race) -> None:
    first = start(race.quick)
    run = add_after(race.quick, first)
    race.quick.settle([cancel(run, race.quick.beat())])
    back = send_back(race.quick, current(race.quick, run))
    with race.stopped(race.edges, lambda store: store.settle([back])):
        ending, waits = race.begin(lambda store: store.settle([succeed(store, first)]))
        assert waits
    assert ending.result(PATIENCE) == [True]
    assert [one.id for one in claim(race.quick, "next")] == [run.id]


def test_a_run_that_is_sent_back_while_another_is_added_behind_it_is_waited_for(race: Race) -> None:
    first = start(race.quick)
    other = add_after(race.quick, first)
    race.quick.settle([fail(race.quick, first)])
    failed = current(race.quick, first)
    run = make_run(race.quick, queue="next", after=behind(first))
    with race.stopped(race.edges, lambda store: store.settle([retry(failed, store.beat())])):
        adding, waits = race.begin(lambda store: store.add_runs([run]))
        assert waits
    assert adding.result(PATIENCE) == [run.id]
    assert (current(race.quick, run).status, current(race.quick, first).followed) == (Status.BLOCKED, 1)
    [again] = claim(race.quick)
    race.quick.settle([succeed(race.quick, again)])
    assert {one.id for one in claim(race.quick, "next")} == {run.id, other.id}


def test_a_run_that_is_being_pruned_gets_no_successor(race: Race) -> None:
    first = start(race.quick)
    run = add_after(race.quick, first)
    race.quick.settle([succeed(race.quick, first), cancel(run, race.quick.beat())])
    for store in (race.quick, race.slow):
        store.shift_clock(30 * 86400)
    late = make_run(race.quick, after=behind(first))
    with race.stopped(race.edges, lambda store: store.prune()) as pruning:
        adding, waits = race.begin(lambda store: store.add_runs([late]))
        assert waits
    assert pruning.result() == 2
    assert adding.result(PATIENCE) == [None]


def test_a_run_that_gets_a_successor_is_not_pruned_at_the_same_moment(race: Race) -> None:
    first = start(race.quick)
    race.quick.settle([succeed(race.quick, first)])
    for store in (race.quick, race.slow):
        store.shift_clock(30 * 86400)
    run = make_run(race.quick, after=behind(first))
    with race.stopped(race.edges, lambda store: store.add_runs([run])):
        assert race.quick.prune() == 0  # it is locked, and passed by
    assert race.quick.prune() == 0
    assert add_run(race.quick, after=behind(first)).status is Status.PENDING


def test_without_the_lock_of_its_predecessor_a_run_would_wait_for_ever(race: Race) -> None:
    """The test above can tell: this is what it would see."""
    first = start(race.quick)
    run = make_run(race.quick, queue="next", after=behind(first))
    race.take_locks_from(race.slow)
    with race.stopped(race.edges, lambda store: store.add_runs([run])):
        ending, waits = race.begin(lambda store: store.settle([succeed(store, first)]))
        assert not waits
    assert ending.result(PATIENCE) == [True]
    assert current(race.quick, run).status is Status.BLOCKED


# -- gates ---------------------------------------------------------------------------------------------------------

LEASED = "claimed_at = %s WHERE id"  # the statement that leases runs where limits matter
PARKED = "SET status = 'blocked'"
WRITTEN = "expires_at = "  # the statement that writes outcomes


def _gated(race: Race, number: int = 1, **fields: Any) -> Run:
    return add_run(race.quick, gate="gate", gate_spec=Limit(number).to_text(), **fields)


def test_an_end_waits_for_a_claim_that_is_parking_somebody_for_it(race: Race) -> None:
    _gated(race)
    [holder] = claim(race.quick)
    run = _gated(race)
    with race.stopped(PARKED, lambda store: claim(store)) as claiming:
        ending, waits = race.begin(lambda store: store.settle([succeed(store, holder)]))
        assert waits
    assert claiming.result() == []
    assert ending.result(PATIENCE) == [True]
    assert current(race.quick, run).status is Status.PENDING
    assert [one.id for one in claim(race.quick)] == [run.id]


def test_an_end_that_did_not_wait_for_the_claim_would_leave_a_run_parked(race: Race) -> None:
    """The test above can tell: this is what it would see."""
    if race.dialect == "mysql":
        pytest.skip("on InnoDB the end waits even without the lock of the gate")
    _gated(race)
    [holder] = claim(race.quick)
    run = _gated(race)
    race.take_locks_from(race.quick)
    with race.stopped(PARKED, lambda store: claim(store)):
        ending, waits = race.begin(lambda store: store.settle([succeed(store, holder)]))
        assert not waits
    assert ending.result(PATIENCE) == [True]
    assert current(race.quick, run).status is Status.BLOCKED


def test_a_claim_that_comes_while_an_end_makes_room_parks_nobody_in_vain(race: Race) -> None:
    _gated(race)
    [holder] = claim(race.quick)
    run = _gated(race)
    with race.stopped(race.limits, lambda store: store.settle([succeed(store, holder)])):
        assert claim(race.quick) == []  # the end is not committed
        assert current(race.quick, run).status is Status.BLOCKED
    assert [one.id for one in claim(race.quick)] == [run.id]


def test_two_claims_at_once_do_not_take_the_same_slot(race: Race) -> None:
    _gated(race)  # the first claim makes the gate, and others wait for it
    race.quick.settle([succeed(race.quick, run) for run in claim(race.quick)])
    first = _gated(race)
    with race.stopped(LEASED, lambda store: claim(store)) as claiming:
        second = _gated(race)
        page = race.quick.claim([(["default"], 9)], node="n", token=new_token(), lease=LEASE)
        # The other claim judges the gate, so this one passes by, and comes again at once.
        assert (page.runs, page.next_at) == ([], page.now)
    assert [one.id for one in claiming.result()] == [first.id]
    assert claim(race.quick) == []
    assert current(race.quick, second).status is Status.BLOCKED


def test_two_claims_at_once_do_not_exceed_the_limit_of_a_queue(race: Race) -> None:
    race.quick.set_gate(f"{QUEUE_GATE}default", 1)
    first = add_run(race.quick)
    with race.stopped(LEASED, lambda store: claim(store)) as claiming:
        add_run(race.quick)
        other, waits = race.begin(lambda store: claim(store))
        assert waits
    assert [one.id for one in claiming.result()] == [first.id]
    assert other.result(PATIENCE) == []


def test_a_number_that_is_raised_while_a_claim_parks_somebody_lets_that_one_in(race: Race) -> None:
    _gated(race)
    claim(race.quick)
    run = _gated(race)
    with race.stopped(PARKED, lambda store: claim(store)):
        raising, waits = race.begin(lambda store: store.set_gate("gate", 2))
        assert waits
    raising.result(PATIENCE)
    assert [one.id for one in claim(race.quick)] == [run.id]


@pytest.mark.parametrize("how", ["changed", "followed"])
def test_a_parked_run_that_somebody_has_locked_when_a_slot_becomes_free_is_let_in(race: Race, how: str) -> None:
    _gated(race)
    [holder] = claim(race.quick)
    run = _gated(race)
    assert claim(race.quick) == []
    parked = current(race.quick, run)

    def act(store: JobStore) -> Any:
        if how == "changed":
            return store.settle([change(parked, priority=7)])
        return store.add_runs([make_run(store, after=behind(parked))])

    with race.stopped(WRITTEN if how == "changed" else race.edges, act):
        ending, waits = race.begin(lambda store: store.settle([succeed(store, holder)]))
        assert waits
    assert ending.result(PATIENCE) == [True]
    assert [one.id for one in claim(race.quick)] == [run.id]


def test_a_locked_parked_run_keeps_no_other_out(race: Race) -> None:
    _gated(race)
    [holder] = claim(race.quick)
    runs = [_gated(race) for _ in range(2)]
    assert claim(race.quick) == []
    cancelled, other = (current(race.quick, run) for run in runs)
    with race.stopped(WRITTEN, lambda store: store.settle([cancel(cancelled, store.beat())])) as acting:
        ending, _ = race.begin(lambda store: store.settle([succeed(store, holder)]))
    assert acting.result() == ending.result(PATIENCE) == [True]
    assert [one.id for one in claim(race.quick)] == [other.id]


def test_a_gate_is_not_forgotten_while_a_claim_judges_it(race: Race) -> None:
    run = _gated(race)
    with race.stopped(LEASED, lambda store: claim(store)) as claiming:
        race.quick.prune()
    assert [one.id for one in claiming.result()] == [run.id]
    race.quick.prune()
    _gated(race)
    assert claim(race.quick) == []
