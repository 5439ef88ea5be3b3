"""Jobs and runs in MongoDB."""

from mainspring.jobstores.mongodb.store import MongoDBJobStore

__all__ = ["MongoDBJobStore"]
