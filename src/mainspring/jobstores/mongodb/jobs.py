"""Jobs in MongoDB: one document per record; each write compares the version."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from bson import Binary, Int64
from pymongo import ASCENDING

from mainspring.jobstores.health import Health
from mainspring.jobstores.mongodb.server import Document, MongoServer, long, plain
from mainspring.jobstores.mongodb.watching import follow
from mainspring.jobstores.split import JobRecord, WatchedRecords

__all__ = ["MongoJobs"]

_TIMED: Final = {"wake": {"$type": "long"}}


class MongoJobs(WatchedRecords):
    """The records of jobs in one collection."""

    server = "MongoDB"
    max_bytes = 4 * 1024 * 1024  # a document takes 16 MB

    def __init__(self, mongo: MongoServer) -> None:
        super().__init__()
        self.mongo = mongo
        mongo.prepare.append(self._create_index)

    @property
    def place(self) -> str:
        return self.mongo.place

    @property
    def client(self) -> Any:
        return self.mongo.client

    def start(self) -> None:
        self.mongo.get()

    def _create_index(self) -> None:
        with self.mongo.asked("write"):
            self.mongo.get().create_index("wake", partialFilterExpression=_TIMED)

    def shutdown(self) -> None:
        super().shutdown()
        self.mongo.close()

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        with self.mongo.asked("read"):
            found = {each["_id"]: _record(each) for each in self.mongo.get().find({"_id": {"$in": [*set(keys)]}})}
        return [found.get(key) for key in keys]

    def all(self) -> list[JobRecord]:
        with self.mongo.asked("read"):
            return [_record(each) for each in self.mongo.get().find()]

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        with self.mongo.asked("read"):
            timed = self.mongo.get().find(_TIMED, sort=[("wake", ASCENDING)], limit=limit + 1)
            found = [_record(each) for each in timed]
        number = sum(each.wake is not None and each.wake <= until for each in found[:limit])
        return found[:number], found[number].wake if len(found) > number else None

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        jobs = self.mongo.get()
        marked = [(_document(new), None if seen is None else seen.version) for new, seen in writes]
        done = self.mongo.write(jobs, marked)
        if all(done):
            return done
        # The driver may send a write twice. The second one is refused, but the stored version is our own.
        lost = [new.key for (new, _), won in zip(writes, done, strict=True) if not won]
        found = self.mongo.versions(jobs, lost)
        return [won or found.get(new.key) == new.version for (new, _), won in zip(writes, done, strict=True)]

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        return self.mongo.delete(self.mongo.get(), [(each.key, each.version) for each in seen])

    def follow(self, stopped: threading.Event) -> None:
        follow(self.mongo.get(), [{"$project": {"_id": 1}}], lambda change: self.changes.stir(), stopped)

    def health(self) -> Health:
        return self.mongo.health()


def _document(record: JobRecord) -> Document:
    return {
        "_id": record.key,
        "v": Int64(record.version),
        "wake": long(record.wake),
        "data": Binary(record.data),
    }


def _record(document: Document) -> JobRecord:
    return JobRecord(document["_id"], int(document["v"]), plain(document["wake"]), bytes(document["data"]))
