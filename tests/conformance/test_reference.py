"""The reference store of examples/ keeps the whole contract."""

from __future__ import annotations

import pytest

from examples.reference_store import ReferenceStore
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance import StoreConformance


class TestReferenceStore(StoreConformance):
    @pytest.fixture
    def store(self) -> JobStore:
        return ReferenceStore()
