"""What has run does not run again, whatever is put to a store once more: S24 of the checklist.

Whoever can write rows as they like can also delete what is remembered; what holds is that no verb of a store runs an id
twice, while its run is kept and for an hour after it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine

from mainspring.core.policy import Policy
from mainspring.core.run import Beat, Condition, Outcome, Run, Status
from mainspring.core.transitions import cancel, recover, retry
from mainspring.jobstores.base import Hold, JobStore, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.jobstores.split.fired import add_fired
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import (
    LEASE,
    NODE,
    UNFINISHED,
    add_job,
    beat,
    break_,
    claim,
    current,
    due_one,
    fail,
    fire,
    fired_run,
    give_back,
    lapsed,
    new_token,
    settle,
    start,
    step,
    stop,
    stored,
    succeed,
)
from tests.conformance.test_redis import _empty_store
from tests.conformance.test_split import _with_redis
from tests.conformance.test_sqlalchemy import _emptied
from tests.record_stores import DictRecords

STORES = [
    "memory",
    "sqlite",
    "postgresql",
    "mariadb",
    "redis",
    "valkey",
    "redis in shards",
    "split",
    "split with redis",
]
ALL = RunQuery()


@contextmanager
def _open(name: str, request: pytest.FixtureRequest) -> Iterator[JobStore]:
    folder = request.getfixturevalue("tmp_path")
    if name == "memory":
        yield MemoryJobStore()
    elif name in ("postgresql", "mariadb"):
        engine = create_engine(request.getfixturevalue(f"{name}_server").url, pool_size=5)
        yield from _emptied(engine)
        engine.dispose()
    elif name in ("redis", "valkey"):
        yield from _empty_store(request.getfixturevalue(f"{name}_server"))
    elif name == "redis in shards":
        yield from _empty_store(request.getfixturevalue("redis_server"), shards=3)
    elif name == "split with redis":
        engine = create_engine(f"sqlite:///{folder}/jobs.db")
        yield from _with_redis(engine, request.getfixturevalue("redis_server"))
        engine.dispose()
    else:
        store: JobStore = SQLAlchemyJobStore(f"sqlite:///{folder}/jobs.db")
        if name == "split":
            store = SplitJobStore(DictRecords(), store)
        store.start(None, "default")
        yield store
        store.shutdown()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[JobStore]:
    with _open(request.param, request) as store:
        yield store


# -- captured runs -------------------------------------------------------------------------------------------------


def _delete(store: JobStore, run: Run) -> None:
    assert settle(store, succeed(store, run, "kept"))
    assert store.delete_runs([run.id]) == 1


def _prune(store: JobStore, run: Run) -> None:
    assert settle(store, succeed(store, run, "kept"))
    store.shift_clock(11)
    assert store.prune() == 1


def _settled(make: Callable[[JobStore, Run], Outcome]) -> Callable[[JobStore, Run], None]:
    def end(store: JobStore, run: Run) -> None:
        assert settle(store, make(store, run))

    return end


ENDS: dict[str, Callable[[JobStore, Run], None]] = {
    "succeeded": _settled(lambda store, run: succeed(store, run, "kept")),
    "failed": _settled(fail),
    "cancelled": _settled(stop),
    "broken": _settled(break_),
    "deleted": _delete,
    "pruned": _prune,
}


def _leased(run: Run) -> Run:
    return replace(run, status=Status.RUNNING, attempt=1, node=NODE, token=new_token(), started_at=run.created_at)


def _follow(store: JobStore, run: Run) -> None:
    for _ in range(6):  # so that in some shard or other it is not the one of the captured run
        parent = start(store, queue="other")
        assert settle(store, replace(succeed(store, parent), then=(run,)))


def _fire(store: JobStore, run: Run) -> None:
    store.fire([step(store, stored(store), next_in=-1, runs=(run,))], LEASE)


def _fire_besides(store: JobStore, run: Run) -> None:
    assert store.fire([step(store, stored(store), next_in=-1, runs=(run,), unscheduled=True)], LEASE) != [None]


REPLAYS: dict[str, Callable[[JobStore, Run], object]] = {
    "add_runs": lambda store, run: store.add_runs([run, run]),
    "fire": _fire,
    "fire, claimed": lambda store, run: _fire(store, _leased(run)),
    "fire, besides": _fire_besides,
    "fire, besides, claimed": lambda store, run: _fire_besides(store, _leased(run)),
    "settle, as what follows": _follow,
    "add_fired": lambda store, run: add_fired(store, [run], [], LEASE),
    "add_fired, claimed": lambda store, run: add_fired(store, [_leased(run)], [], LEASE),
}


def _nothing_runs(store: JobStore, run: Run, before: Run | None) -> None:
    """See that a run is as it was, that it cannot be claimed, and that nobody will recover it."""
    assert claim(store) == []
    store.shift_clock(LEASE + 1)
    assert lapsed(store, 100) == []
    assert claim(store) == []
    assert store.get_runs([run.id]) == [before]


@pytest.mark.parametrize("end", ENDS)
def test_a_captured_run_is_not_inserted_again_by_any_verb(store: JobStore, end: str) -> None:
    job = add_job(store)
    run = fired_run(store, job, policy=Policy(retention=10.0))
    store.add_runs([run])
    captured = current(store, run)
    [running] = claim(store)
    ENDS[end](store, running)
    [before] = store.get_runs([run.id])
    for seconds in (0, 3000):
        store.shift_clock(seconds)
        for verb, replay in REPLAYS.items():
            replay(store, captured)
            assert store.get_runs([run.id]) == [before], verb
        assert store.settle([Outcome(_leased(captured), Condition.WAITING), cancel(captured, 0)]) == [False, False]
        _nothing_runs(store, run, before)


@pytest.mark.parametrize("verb", REPLAYS)
def test_a_run_that_nobody_has_seen_is_inserted_by_every_verb(verb: str) -> None:
    store = MemoryJobStore()
    run = fired_run(store, add_job(store))
    REPLAYS[verb](store, run)
    assert [one.id for one in store.find_runs(RunQuery(status=UNFINISHED))] == [run.id]


# -- captured words ------------------------------------------------------------------------------------------------

WORDS: dict[str, Callable[[JobStore, Run], object]] = {
    "done again": lambda store, run: store.settle([succeed(store, run, "another")]),
    "failed after all": lambda store, run: store.settle([fail(store, run)]),
    "given back": lambda store, run: store.settle([give_back(store, run)]),
    "lost": lambda store, run: store.settle([recover(run, store.beat())]),
    "cancelled": lambda store, run: store.settle([stop(store, run)]),
    "broken": lambda store, run: store.settle([break_(store, run)]),
    "alive": lambda store, run: store.extend([beat(run, progress=1, data={"a": 1}, log=("x",))], LEASE),
    "to be stopped": lambda store, run: store.cancel([run.id]),
    "claimed": lambda store, run: claim(store, token=str(run.token)),
}


@pytest.mark.parametrize("end", ["succeeded", "deleted"])
def test_no_captured_word_of_its_holder_changes_a_run_that_has_ended(store: JobStore, end: str) -> None:
    running = start(store, policy=Policy(retries=5, backoff=(0.0,)))
    ENDS[end](store, running)
    [before] = store.get_runs([running.id])
    answers: dict[str, Any] = {}
    for name, say in WORDS.items():
        answers[name] = say(store, running)
        assert store.get_runs([running.id]) == [before]
    assert answers.pop("alive") == [Hold.LOST]
    assert answers.pop("claimed") == []
    assert set(map(tuple, answers.values())) == {(False,)}
    _nothing_runs(store, running, before)


def test_a_captured_claim_is_worth_nothing_once_another_holds_the_run(store: JobStore) -> None:
    first = start(store, policy=Policy(retries=5, backoff=(0.0,)))
    assert settle(store, give_back(store, first))
    [second] = claim(store)
    for name in ("done again", "failed after all", "given back", "lost", "cancelled", "broken"):
        assert WORDS[name](store, first) == [False], name
    assert store.extend([Beat(first.id, str(first.token))], LEASE) == [Hold.LOST]
    assert claim(store, token=str(first.token)) == []
    assert current(store, second).token == second.token
    assert settle(store, succeed(store, second))


def test_a_captured_order_to_try_again_holds_once(store: JobStore) -> None:
    running = start(store)
    assert settle(store, fail(store, running))
    order = retry(current(store, running), store.beat())
    assert settle(store, order)
    [again] = claim(store)
    assert settle(store, order) is False
    assert settle(store, succeed(store, again))
    assert settle(store, order) is False
    _nothing_runs(store, running, current(store, running))


# -- captured jobs -------------------------------------------------------------------------------------------------


def test_a_captured_step_is_lost_also_after_its_job_was_removed_and_added(store: JobStore) -> None:
    job = add_job(store)
    captured = step(store, job, next_in=-1, runs=(fired_run(store, job),))
    assert fire(store, due_one(store)) == (captured.runs[0].id,)
    [running] = claim(store)
    assert settle(store, succeed(store, running))
    assert store.fire([captured], LEASE) == [None]
    assert store.fire([replace(captured, unscheduled=True)], LEASE) == [None]
    store.remove_job(job.id)
    assert store.fire([captured], LEASE) == [None]
    add_job(store)
    assert store.fire([captured], LEASE) == [None]
    assert store.fire([replace(captured, unscheduled=True)], LEASE) == [None]
    assert (claim(store), store.stats(ALL).matching) == ([], 1)


def test_a_job_that_was_set_aside_comes_back_once(store: JobStore) -> None:
    job = add_job(store)
    assert store.set_aside(job.id, job.version, "unreadable")
    assert store.set_aside(job.id, 0, None)
    assert not store.set_aside(job.id, 0, None)
    store.remove_job(job.id)
    assert not store.set_aside(job.id, 0, None)
    assert store.get_all_jobs() == []
