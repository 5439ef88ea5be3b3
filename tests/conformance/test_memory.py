from __future__ import annotations

from collections import Counter

import pytest

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance import StoreConformance


class TestMemoryJobStore(StoreConformance):
    @pytest.fixture
    def store(self) -> JobStore:
        return MemoryJobStore()


def test_no_test_of_the_suite_hides_another_of_its_name() -> None:
    names = Counter(name for part in StoreConformance.__mro__ for name in vars(part) if name.startswith("test_"))
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) > 150
