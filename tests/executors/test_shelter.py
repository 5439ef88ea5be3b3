"""A run is interrupted before or after what it does in a store, never in the middle of it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring import interrupts
from mainspring.clock import SystemClock
from mainspring.core.run import Report, Result
from mainspring.errors import RunTimeout
from mainspring.executors.execution import Item, StopReason, may_always_start
from mainspring.executors.pool import ThreadPoolExecutor
from mainspring.executors.threads import slots as slots_module
from mainspring.executors.threads.slots import Slot, Slots
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.redis.connection import RedisConnection
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.sqlite.dialect import SQLiteDatabase, _SharedWork
from mainspring.jobstores.sqlalchemy.sqlite.host_clock import HostClock
from mainspring.testing.conformance import helpers
from tests.executors import tasks
from tests.executors.helpers import Reports, make_run, timeout, wait_until
from tests.executors.test_slots import InterruptAtStep, QuietSlot, slots

__all__ = ["slots"]


class Ledger:
    """A store whose two numbers are equal unless a write was left in the middle."""

    def __init__(self) -> None:
        self.begun = self.done = 0

    @interrupts.sheltered
    def write(self) -> None:
        self.begun += 1
        self.write_again()
        self.done += 1

    @interrupts.sheltered
    def write_again(self) -> None:
        self.begun += 1
        self.done += 1


class AtStepInside(InterruptAtStep):
    files = frozenset([slots_module.__file__, interrupts.__file__, __file__])


@pytest.mark.parametrize("stop", list(StopReason))
def test_an_interrupt_at_any_step_leaves_no_write_in_the_middle(slots: Slots, stop: StopReason) -> None:
    slot = QuietSlot(threading.Event())
    slots._slots.append(slot)
    ledger = Ledger()
    hits = left_to_the_thread = step = 0
    while True:
        step += 1
        slot.kind = None
        reports: list[Report] = []
        item: Item = (make_run(ledger.write), reports.append, 0, may_always_start)
        interrupter = AtStepInside(slots, slot, item, stop, step)
        sys.settrace(interrupter)
        try:
            slots.execute(slot, item)
        finally:
            sys.settrace(None)
        assert ledger.begun == ledger.done, f"step {step}"
        assert (slot.shelter.inside, slot.shelter._knocks) == (False, []), f"step {step}"
        (report,) = reports
        if interrupter.hit:
            hits += 1
            left_to_the_thread += slot.kind is None
            stopped = report.result is Result.CANCELLED
            assert stopped if stop is StopReason.CANCEL else isinstance(report.exception, RunTimeout), f"step {step}"
        else:
            assert report.result is Result.RETURNED
        after: list[Report] = []
        slots.execute(slot, (make_run(tasks.add, 1), after.append, 0, may_always_start))
        assert [one.value for one in after] == [1], f"step {step}"
        if not interrupter.done:
            break
    assert hits > left_to_the_thread > 20
    slots.drop(slot)


# -- stores ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(2, timeout_grace=60)
    pool.start(None, "threads")
    yield pool
    pool.shutdown()


def until_interrupted(pool: ThreadPoolExecutor) -> None:
    """In the thread of a run, let its time be over now, and execute Python code until the watchdog interrupts it."""
    assert pool._threads is not None
    here, slots = threading.current_thread(), pool._threads.slots
    for slot in list(slots._slots):
        if slot.thread is here and slot.item is not None:
            if slot.interrupt is None:
                slot.deadline = (time.monotonic(), slot.item)
                slots._watch_from(time.monotonic())
            wait_until(partial(_is_interrupted, slot))


def _is_interrupted(slot: Slot) -> bool:
    return slot.interrupt is not None and slot.interrupt.settled


def timed_out(pool: ThreadPoolExecutor, func: Callable[..., Any], *args: Any, seconds: float = 600) -> None:
    reports = Reports()
    pool.submit([make_run(func, *args, policy=timeout(seconds))], reports)
    (report,) = reports.wait()
    assert isinstance(report.exception, RunTimeout)


@pytest.fixture(params=["memory", "sqlite"])
def slow_store(request: pytest.FixtureRequest, pool: ThreadPoolExecutor, tmp_path: Path) -> Iterator[JobStore]:
    """Return a store in whose midst a run is interrupted."""

    class SlowClock(SystemClock):
        def now(self) -> int:
            until_interrupted(pool)
            return super().now()

    class SlowHostClock(HostClock):
        def now(self) -> int:
            until_interrupted(pool)
            return super().now()

    if request.param == "memory":
        yield MemoryJobStore(SlowClock())
        return
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    database = store._open()
    assert isinstance(database, SQLiteDatabase)
    database.clock = SlowHostClock()
    yield store
    store.shutdown()


def test_what_a_run_does_in_a_store_when_its_time_is_over_is_done(
    slow_store: JobStore, pool: ThreadPoolExecutor
) -> None:
    run = helpers.make_run(slow_store, "kept", unique="key")
    timed_out(pool, slow_store.add_runs, [run])
    assert [found and found.id for found in slow_store.get_runs(["kept"])] == ["kept"]
    assert slow_store.add_runs([helpers.make_run(slow_store, "other", unique="key")]) == ["kept"]


def test_a_run_that_calls_a_store_again_and_again_ends_at_its_time_out(pool: ThreadPoolExecutor) -> None:
    store = MemoryJobStore()

    def counts_for_ever() -> None:
        while True:
            store.stats()

    timed_out(pool, counts_for_ever, seconds=0.02)


def test_a_run_that_waits_in_a_store_has_not_cost_a_slot() -> None:
    pool = ThreadPoolExecutor(1, timeout_grace=0.01)
    pool.start(None, "threads")
    assert pool._threads is not None

    class SlowStore:
        @interrupts.sheltered
        def wait(self) -> None:
            [slot] = slots_of_pool
            for _ in range(3):  # each time the grace is over, and given again
                until_interrupted(pool)
                assert slot.interrupt is not None
                before = wait_until(lambda: slot.interrupt.again)  # type: ignore[union-attr]
                wait_until(lambda before=before: slot.interrupt.again > before)  # type: ignore[misc]

    slots_of_pool = pool._threads.slots._slots
    timed_out(pool, SlowStore().wait)
    assert pool.stuck == 0
    pool.shutdown()


def test_the_time_out_of_one_caller_is_no_error_of_another_who_shares_its_commit(
    pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    database = store._open()
    assert isinstance(database, SQLiteDatabase)

    def slowly(tx: Any) -> str:
        until_interrupted(pool)
        tx.insert("queues", ("name",), [("theirs",)])
        return "done"

    other = _SharedWork(slowly)
    database._queue.append(other)  # as another thread does that waits for its turn
    timed_out(pool, lambda: store.set_gate("queue:ours", 0))
    assert (other.committed, other.error, other.result) == (True, None, "done")
    assert [queue.name for queue in store.stats().queues] == ["ours", "theirs"]
    store.shutdown()


def test_the_time_out_of_a_run_is_not_taken_for_a_connection_that_was_lost(pool: ThreadPoolExecutor) -> None:
    servers: Any = SimpleNamespace(spread=False, patience=0.0, pool=lambda key: None, doubt=lambda error: None)
    replies: list[str] = []

    class SlowLink(RedisConnection):
        def _sent(self, pool: Any, command: bytes) -> Any:
            return "connection"

        def _reply(self, connection: Any, reads: bool) -> Any:
            until_interrupted(pool)
            replies.append("whole")

    link = SlowLink(servers, ["{a}"])
    timed_out(pool, lambda: link.call("beat", ("{a}",), reads=True))
    assert replies == ["whole"]


def test_what_waits_for_a_thread_to_leave_a_store_is_raised_once() -> None:
    here = interrupts.Shelter()
    knock = interrupts.InterruptRequest()
    here.enter()
    here.announce(knock)
    knock.left, knock.settled = RunTimeout, True
    with pytest.raises(RunTimeout):
        here.leave()
    here.enter()
    here.leave()


def test_a_thread_that_is_about_to_be_interrupted_does_not_enter_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    here, knock = interrupts.Shelter(), interrupts.InterruptRequest()
    here.announce(knock)
    waits: list[bool] = []

    def wait(seconds: float) -> None:
        waits.append(here.inside)
        if len(waits) == 3:
            knock.left, knock.settled = RunTimeout, True

    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(RunTimeout):
        here.enter()
    assert waits == [False] * 4
    assert here.inside is False
