"""A node whose ticks are called by hand, and another on the same store."""

from __future__ import annotations

import pytest

from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.clock import VirtualClock
from tests.node.bench import Bench


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryJobStore:
    return MemoryJobStore(clock)


@pytest.fixture
def bench(clock: VirtualClock, store: MemoryJobStore) -> Bench:
    return Bench(clock, store)


@pytest.fixture
def other(clock: VirtualClock, store: MemoryJobStore) -> Bench:
    """Another node on the same store."""
    return Bench(clock, store)
