"""A split store agrees with the memory store, command by command."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis.stateful import invariant, run_state_machine_as_test
from sqlalchemy import create_engine

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.split import SplitJobStore
from tests.conformance.stateful.machine import StoreMachine, budget
from tests.record_stores import DictRecords, TableRecords
from tests.servers import Redis

_numbers = count(1)


class SplitMachine(StoreMachine):
    """The machine, but for how often a missed record that gets longer is counted."""

    leases_fired = False

    @invariant()
    def counts_are_what_can_be_counted(self) -> None:
        ours, model = self.both(lambda store: {**store.stats().totals, "missed": 0})
        assert {key: value for key, value in ours.items() if value} == {k: v for k, v in model.items() if v}


def agree(make: Callable[[], JobStore], examples: int) -> None:
    class Machine(SplitMachine):
        pass

    Machine.make = staticmethod(make)
    run_state_machine_as_test(Machine, settings=budget(examples))


def test_memory_and_memory_agree_with_memory() -> None:
    agree(lambda: SplitJobStore(DictRecords(), MemoryJobStore(keep_runs=100_000)), 40)


def test_sqlite_and_redis_agree_with_memory(tmp_path: Path, redis_server: Redis) -> None:
    def make() -> JobStore:
        number = next(_numbers)
        jobs = TableRecords(create_engine(f"sqlite:///{tmp_path}/{number}.db"))
        return SplitJobStore(jobs, RedisJobStore(url=redis_server.url, name=f"stateful-split-{number}"))

    agree(make, 10)
