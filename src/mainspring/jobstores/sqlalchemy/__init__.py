"""A store in a SQL database."""

from mainspring.jobstores.sqlalchemy.store import SchemaMismatch, SQLAlchemyJobStore

__all__ = ["SQLAlchemyJobStore", "SchemaMismatch"]
