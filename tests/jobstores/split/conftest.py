"""A store of jobs and one of runs, and two nodes that share them."""

from __future__ import annotations

import pytest

from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.testing.clock import VirtualClock
from tests.jobstores.split.kit import Node
from tests.record_stores import DictRecords


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def jobs() -> DictRecords:
    return DictRecords()


@pytest.fixture
def runs(clock: VirtualClock) -> MemoryJobStore:
    return MemoryJobStore(clock)


@pytest.fixture
def first(jobs: DictRecords, runs: MemoryJobStore) -> Node:
    return Node(jobs, runs)


@pytest.fixture
def store(jobs: DictRecords, runs: MemoryJobStore) -> SplitJobStore:
    """Return the store as the second node sees it."""
    return Node(jobs, runs).store
