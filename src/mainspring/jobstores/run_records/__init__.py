"""A store of runs over small primitives: a back end compares and sets single records, and needs no transactions."""

from mainspring.jobstores.run_records.records import Order, RunRecord, RunRecords, StoreNote, Want
from mainspring.jobstores.run_records.store import RunRecordStore

__all__ = ["Order", "RunRecord", "RunRecordStore", "RunRecords", "StoreNote", "Want"]
