"""A store of runs made of small primitives: a back end compares and sets single records, and needs no transactions."""

from mainspring.jobstores.run_records.records import Fact, Order, RunRecord, RunRecords, Want
from mainspring.jobstores.run_records.store import RunRecordStore

__all__ = ["Fact", "Order", "RunRecord", "RunRecordStore", "RunRecords", "Want"]
