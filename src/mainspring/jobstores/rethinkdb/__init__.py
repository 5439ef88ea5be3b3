"""Jobs in RethinkDB; their runs are kept by another store."""

from mainspring.jobstores.rethinkdb.store import RethinkDBJobStore

__all__ = ["RethinkDBJobStore"]
