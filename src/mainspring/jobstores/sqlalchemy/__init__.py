"""Jobs and runs in a SQL database."""

from mainspring.jobstores.sqlalchemy.store import SchemaTooNew, SQLAlchemyJobStore

__all__ = ["SQLAlchemyJobStore", "SchemaTooNew"]
