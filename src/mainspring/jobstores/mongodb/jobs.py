"""Jobs in MongoDB: a document per record, compared by its version."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

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
        new = [_document(record) for record, seen in writes if seen is None]
        changed = [(_document(record), seen.version) for record, seen in writes if seen is not None]
        added = iter(self.mongo.insert(jobs, new))
        replaced = iter(self._replaced(changed))
        return [next(added if seen is None else replaced) for _, seen in writes]

    def _replaced(self, writes: Sequence[tuple[Document, int]]) -> list[bool]:
        jobs = self.mongo.get()
        done = self.mongo.replace(jobs, writes)
        if all(done):
            return done
        # A write that the driver has sent twice finds its own version.
        lost = [document for (document, _), won in zip(writes, done, strict=True) if not won]
        with self.mongo.asked("read"):
            found = {
                each["_id"]: each["v"] for each in jobs.find({"_id": {"$in": [each["_id"] for each in lost]}}, ["v"])
            }
        return [
            won or found.get(document["_id"]) == document["v"] for (document, _), won in zip(writes, done, strict=True)
        ]

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
