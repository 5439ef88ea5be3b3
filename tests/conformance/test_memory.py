from __future__ import annotations

import pytest

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance import StoreConformance


class TestMemoryJobStore(StoreConformance):
    @pytest.fixture
    def store(self) -> JobStore:
        return MemoryJobStore()
