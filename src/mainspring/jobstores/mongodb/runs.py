"""Runs in MongoDB: one document per record, and two small collections for notes and the ids of deleted runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from bson import Binary, Int64
from pymongo import ASCENDING, DESCENDING, DeleteOne, UpdateOne
from pymongo.collection import Collection

from mainspring.core.lanes import queue_of
from mainspring.core.run import Status
from mainspring.jobstores.base import ENDS, RUNS_STEP
from mainspring.jobstores.health import Health
from mainspring.jobstores.mongodb.server import Document, MongoServer, long, plain
from mainspring.jobstores.mongodb.watching import follow
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow
from mainspring.jobstores.run_records import Order, RunRecord, RunRecords, StoreNote, Want
from mainspring.jobstores.run_records.records import NEVER
from mainspring.jobstores.split import ChangeSignal
from mainspring.jobstores.values import IDS_REMEMBERED_US, RunStanding

__all__ = ["MongoRuns"]

_UP, _DOWN = ASCENDING, DESCENDING
_ORDERS: Final[dict[str, list[tuple[str, int]]]] = {
    "urgent": [("priority", _DOWN), ("run_at", _UP), ("_id", _UP)],
    "run_at": [("run_at", _UP)],
    "oldest": [("priority", _DOWN), ("created_at", _UP), ("_id", _UP)],
    "lease": [("lease_until", _UP), ("_id", _UP)],
    "expires": [("expires_at", _UP)],
    "newest": [("created_at", _DOWN), ("_id", _DOWN)],
}
_FIELDS: Final = tuple(name for name in RunRow.__struct_fields__ if name not in ("id", "after"))
_BYTES: Final = frozenset({"call", "state", "live"})
_LONGS: Final = frozenset({"run_at", "created_at", "finished_at", "keep", "lease_until", "claimed_at"})
_TOLD: Final = {"$in": ["pending", *sorted(FINAL_VALUES)]}
"""The statuses that wake others: a node can claim the run, or a caller waits for its end."""
_decode_rows: Final = msgspec.msgpack.Decoder(list[RunRow]).decode


class MongoRuns(RunRecords):
    """Run records in three collections."""

    remote = True
    tells_topics = True

    def __init__(self, mongo: MongoServer) -> None:
        self.mongo = mongo
        self.changes, self.ends = ChangeSignal([self._follow]), ChangeSignal()
        mongo.prepare.append(self._create_indexes)

    @property
    def _runs(self) -> Collection[Document]:
        return self.mongo.get("_runs")

    @property
    def _facts(self) -> Collection[Document]:
        return self.mongo.get("_facts")

    def start(self) -> None:
        self.mongo.get()

    def _create_indexes(self) -> None:
        runs, facts, gone = self._runs, self._facts, self.mongo.get("_gone")
        with self.mongo.asked("write"):
            runs.create_index([("status", _UP), ("lane", _UP), ("priority", _DOWN), ("run_at", _UP)])
            runs.create_index([("created_at", _UP), ("_id", _UP)])
            runs.create_index("unique", unique=True, partialFilterExpression={"unique": {"$type": "string"}})
            for name in ("token", "group", "job_id", "gate"):
                runs.create_index([(name, _UP), ("status", _UP)], partialFilterExpression={name: {"$type": "string"}})
            for name in ("expires_at", "todo_at", "lease_until"):
                runs.create_index(name, partialFilterExpression={name: {"$type": "long"}})
            runs.create_index("after")
            facts.create_index([("kind", _UP), ("name", _UP)])
            facts.create_index([("kind", _UP), ("tag", _UP), ("name", _UP)])
            gone.create_index("until")

    def shutdown(self) -> None:
        self.changes.stop()
        self.changes.join()
        self.ends.stop()
        self.mongo.close()

    def now(self) -> int:
        return self.mongo.now()

    def health(self) -> Health:
        return self.mongo.health()

    # -- runs --------------------------------------------------------------------------------------------------

    def add(self, records: Sequence[RunRecord]) -> list[bool]:
        return self.mongo.insert(self._runs, [_document(each) for each in records])

    def get(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        with self.mongo.asked("read"):
            found = self._runs.find({"_id": {"$in": list(ids)}}) if ids else ()
            return {each["_id"]: _record(each) for each in found}

    def swap(self, writes: Sequence[tuple[RunRecord, int]]) -> list[bool]:
        return self.mongo.replace(self._runs, [(_document(record), version) for record, version in writes])

    def remove(self, marks: Sequence[tuple[str, int]], until: int | None) -> list[bool]:
        if until is not None and marks:
            gone, set_until = self.mongo.get("_gone"), {"$set": {"until": Int64(until)}}
            with self.mongo.asked("write"):
                gone.bulk_write([UpdateOne({"_id": each}, set_until, upsert=True) for each, _ in marks], ordered=False)
                gone.delete_many({"until": {"$lt": Int64(until - IDS_REMEMBERED_US)}})
        return self.mongo.delete(self._runs, marks)

    def remembered(self, ids: Sequence[str], now: int) -> set[str]:
        query = {"_id": {"$in": list(ids)}, "until": {"$gt": Int64(now)}}
        with self.mongo.asked("read"):
            return {each["_id"] for each in self.mongo.get("_gone").find(query)}

    def find(self, want: Want, order: Order, limit: int, skip: int = 0) -> list[RunRecord]:
        with self.mongo.asked("read"):
            found = self._runs.find(_query(want), sort=_ORDERS[order], limit=limit, skip=skip)
            return [_record(each) for each in found]

    def count(self, want: Want, by: Literal["queue", "lane", "gate", ""] = "") -> Counter[str]:
        with self.mongo.asked("read"):
            if not by:
                return Counter({"": self._runs.count_documents(_query(want))})
            steps = [{"$match": _query(want)}, {"$group": {"_id": f"${by}", "n": {"$sum": 1}}}]
            return Counter({each["_id"]: each["n"] for each in self._runs.aggregate(steps)})

    def holders(self, keys: Sequence[str]) -> dict[str, str]:
        query = {"unique": {"$in": list(keys), "$type": "string"}}
        with self.mongo.asked("read"):
            return {each["unique"]: each["_id"] for each in self._runs.find(query, ["unique"])}

    def standings(self, ids: Sequence[str]) -> dict[str, RunStanding]:
        with self.mongo.asked("read"):
            found = self._runs.find({"_id": {"$in": list(ids)}}, ["status", "refused"])
            return {each["_id"]: RunStanding(Status(each["status"]), each["refused"]) for each in found}

    # -- notes -------------------------------------------------------------------------------------------------

    def notes(
        self,
        kind: str,
        *,
        names: Sequence[str] | None = None,
        tag: str | None = None,
        since: str = "",
        before: str | None = None,
        limit: int | None = None,
        skip: int = 0,
    ) -> list[StoreNote]:
        query: Document = {"kind": kind}
        if tag is not None:
            query["tag"] = tag
        name: Document = {} if names is None else {"$in": list(names)}
        if since:
            name["$gte"] = since
        if before is not None:
            name["$lt"] = before
        if name:
            query["name"] = name
        with self.mongo.asked("read"):
            found = self._facts.find(query, sort=[("name", _DOWN)], limit=limit or 0, skip=skip)
            return [
                StoreNote(kind, each["name"], int(each["v"]), bytes(each["data"]), each["tag"], int(each["until"]))
                for each in found
            ]

    def put_notes(self, writes: Sequence[tuple[StoreNote, int | None]]) -> list[bool]:
        return self.mongo.write(self._facts, [(_note(note), version) for note, version in writes])

    def drop_notes(self, notes: Sequence[StoreNote]) -> None:
        if notes:
            marks = [{"_id": f"{note.kind}:{note.name}", "v": Int64(note.version)} for note in notes]
            with self.mongo.asked("write"):
                self._facts.bulk_write([DeleteOne(mark) for mark in marks], ordered=False)

    def add_totals(self, ends: Counter[str]) -> None:
        more = {status: Int64(number) for status, number in ends.items() if number}
        if more:
            with self.mongo.asked("write"):
                self._facts.update_one({"_id": "totals"}, {"$inc": more}, upsert=True)

    def totals(self) -> dict[str, int]:
        with self.mongo.asked("read"):
            found = self._facts.find_one({"_id": "totals"}) or {}
        return {name: int(number) for name, number in found.items() if name != "_id"}

    # -- waking ------------------------------------------------------------------------------------------------

    def stir(self, topic: str) -> None:
        (self.ends if topic == ENDS else self.changes).stir(RUNS_STEP)

    def wait(self, cursor: int, timeout: float, topic: str) -> int:
        if topic != ENDS:
            return self.changes.wait(cursor, timeout)
        self.changes.listen()  # one stream reports both topics
        return self.ends.wait(cursor, timeout)

    def _follow(self, stopped: threading.Event) -> None:
        wanted: list[dict[str, Any]] = [{"fullDocument.status": _TOLD}, {"fullDocument.cancelling": True}]
        fields = {f"fullDocument.{name}": 1 for name in ("status", "queue")}
        try:
            follow(self._runs, [{"$match": {"$or": wanted}}, {"$project": fields}], self._tell, stopped)
        finally:
            self.ends.stir()  # ends may go unnoticed until the next stream is open

    def _tell(self, change: Document | None) -> None:
        """Stir the topics that a change concerns; None means that anything may have changed."""
        run = {} if change is None else change["fullDocument"]
        ended = run.get("status") in FINAL_VALUES
        if not ended or queue_of(run["queue"]) in self.limited:
            self.changes.stir(RUNS_STEP)
        if ended or change is None:
            self.ends.stir()


def _document(record: RunRecord) -> Document:
    row = record.row
    document: Document = {"_id": row.id, "v": Int64(record.version)}
    for name in _FIELDS:
        value = getattr(row, name)
        if value is not None and name in _BYTES:
            value = Binary(value)
        document[name] = long(value) if name in _LONGS else value
    return document | {
        "expires_at": long(record.expires_at),
        "after": list(record.after),
        "masks": list(record.after.values()),
        "open": list(record.open),
        "mark": Int64(record.mark),
        "link": record.link,
        "successors": list(record.successors),
        "marks": [Int64(mark) for mark in record.successors.values()],
        "unreleased": record.unreleased,
        "then": Binary(msgspec.msgpack.encode(record.then)) if record.then else None,
        "todo_at": long(record.todo_at),
    }


def _record(document: Document) -> RunRecord:
    fields = {name: document.get(name) for name in _FIELDS}
    for name in _BYTES:
        fields[name] = None if fields[name] is None else bytes(fields[name])  # type: ignore[arg-type]
    for name in _LONGS:
        fields[name] = plain(fields[name])
    return RunRecord(
        RunRow(id=document["_id"], **fields),  # type: ignore[arg-type]
        int(document["v"]),
        plain(document["expires_at"]),
        dict(zip(document["after"], document["masks"], strict=True)),
        tuple(document["open"]),
        int(document["mark"]),
        document["link"],
        dict(zip(document["successors"], map(int, document["marks"]), strict=True)),
        document["unreleased"],
        _decode_rows(document["then"]) if document["then"] else [],
        plain(document["todo_at"]),
    )


def _note(note: StoreNote) -> Document:
    return {
        "_id": f"{note.kind}:{note.name}",
        "kind": note.kind,
        "name": note.name,
        "v": Int64(note.version),
        "data": Binary(note.data),
        "tag": note.tag,
        "until": Int64(note.until),
    }


def _query(want: Want) -> Document:
    """Translate a want into a query."""
    query: Document = {"status": {"$in": list(want.status)}} if want.status else {}
    for name, values in (("queue", want.queues), ("lane", want.lanes), ("gate", want.gates)):
        if values is not None:
            query[name] = {"$in": list(values)}
    for name in ("group", "job_id", "token", "after"):
        if (value := getattr(want, name)) is not None:
            query[name] = value
    if want.parked:
        query |= {"status": "blocked", "waits": 0}
        query.setdefault("gate", {"$type": "string"})
    for name, until in (
        ("run_at", want.run_until),
        ("lease_until", want.lease_until),
        ("expires_at", want.expires_until),
        ("todo_at", want.todo_until),
    ):
        if until is not None:
            query[name] = {"$lte": Int64(until), "$type": "long"}
    if want.run_after is not None:
        query.setdefault("run_at", {})["$gt"] = Int64(want.run_after)
    if want.counted:
        query["expires_at"] = {"$type": "long", "$lt": Int64(NEVER), "$mod": [2, 0]}
    if want.older is not None:
        at, run_id = want.older
        query["$or"] = [{"created_at": {"$lt": Int64(at)}}, {"created_at": Int64(at), "_id": {"$lt": run_id}}]
    return query
