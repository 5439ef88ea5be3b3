"""Jobs in RethinkDB; another store keeps their runs."""

from mainspring.jobstores.rethinkdb.store import RethinkDBJobStore

__all__ = ["RethinkDBJobStore"]
