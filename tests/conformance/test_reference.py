"""The reference store of examples/ keeps the whole contract, and no history."""

from __future__ import annotations

import pytest

from examples.reference_store import ReferenceStore
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance import ContractConformance, NoHistoryConformance


class TestReferenceStore(ContractConformance, NoHistoryConformance):
    @pytest.fixture
    def store(self) -> JobStore:
        return ReferenceStore()
