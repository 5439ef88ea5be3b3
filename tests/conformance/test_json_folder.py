"""The folder of JSON files of examples/ keeps the contract.

Only the parts that concern jobs: its runs are in another store, which passes the others elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.json_folder_store import JsonFolderStore
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance import (
    ConcurrencyConformance,
    CountConformance,
    FiringConformance,
    InstantConformance,
    JobConformance,
)


class TestJsonFolder(JobConformance, FiringConformance, CountConformance, InstantConformance, ConcurrencyConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[JobStore]:
        store = JsonFolderStore(str(tmp_path), runs=MemoryJobStore())
        store.start(None, "default")
        yield store
        store.shutdown()
