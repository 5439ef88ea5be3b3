"""Runs over records with one compare-and-set keep the whole contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.runs_in_a_dict import DictRunRecords
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.run_records import RunRecordStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.testing.conformance import StoreConformance
from tests.record_stores import DictRecords


class TestRunsInADict(StoreConformance):
    @pytest.fixture
    def store(self) -> Iterator[JobStore]:
        store = SplitJobStore(DictRecords(), RunRecordStore(DictRunRecords()))
        store.start(None, "default")
        yield store
        store.shutdown()
