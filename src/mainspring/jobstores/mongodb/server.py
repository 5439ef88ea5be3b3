"""A MongoDB server: its client, its clock, its errors, and writes that compare a version."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal

from bson import Int64
from pymongo import DeleteOne, MongoClient, ReplaceOne, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ClientBulkWriteException,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.health import Health, check_version
from mainspring.locks import free_in_children

__all__ = ["Document", "MongoServer", "long", "plain"]

TIMEOUT_MS: Final = 4500
OLDEST_VERSION: Final = (5, 0)
BULK_VERSION: Final = 8
"""Since this version, one request can hold many writes and answers for each of them."""
CLOCK_SECONDS: Final = 1.0
"""Ask the server for its time again after this many seconds; in between, count on from the last answer."""
LARGEST_STEP_US: Final = 1_000_000
"""If the server's clock seems to go back by less than this, its answer only came late."""
SCHEMA: Final = 1
_DUPLICATE: Final = 11000
"""The code of MongoDB's error for a unique key that another document has."""
_NO_RIGHT: Final = (13, 18)
"""The codes of MongoDB's errors for a missing permission and for a failed log-in."""
_EPOCH: Final = datetime(1970, 1, 1)
Document = dict[str, Any]


def long(number: int | None) -> Int64 | None:
    """Return a number as 64 bits, whatever its size: the partial indexes select documents by that type."""
    return None if number is None else Int64(number)


def plain(number: Any) -> Any:
    """Turn an Int64 that was read into a plain int, which can be packed; return any other value unchanged."""
    return int(number) if isinstance(number, Int64) else number


class MongoServer:
    """The server of one store: a database, and collections whose names begin with that of the jobs."""

    def __init__(self, database: str, collection: str, client: Any, make: Callable[[], Any], url: str | None) -> None:
        self.database, self.collection = database, collection
        self._given, self._make, self._url = client, make, url
        self._lock = free_in_children(threading.Lock())
        self._client: Any = None
        self._pid = 0
        self._clock: tuple[float, int] | None = None  # when we asked, and the server's time minus ours
        self._last = 0
        self._major: int | None = None
        self._ready = 0  # the process that has checked the server
        self.prepare: list[Callable[[], None]] = []
        """The functions to call once in each process before it uses the collections; they create indexes."""

    @property
    def client(self) -> MongoClient[Document]:
        """The client that the user gave, or our own, which each process makes on its first use."""
        if self._given is not None:
            return self._given  # type: ignore[no-any-return]
        if self._client is None or self._pid != os.getpid():  # a client does not survive a fork
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    self._client, self._pid = self._make(), os.getpid()
        return self._client  # type: ignore[no-any-return]

    @property
    def place(self) -> str:
        """The name of the server, for messages."""
        return f"MongoDB ({without_password(self._url)})" if self._url else "MongoDB"

    def close(self) -> None:
        """Close our own client; leave open a client that the user gave."""
        client, self._client, self._ready = self._client, None, 0
        if client is not None and self._pid == os.getpid():
            client.close()

    # -- collections and their guarantees ----------------------------------------------------------------------

    @property
    def write_concern(self) -> WriteConcern:
        """The write concern of the client; by default, a majority has each write in its journals."""
        own = self.client.write_concern
        return own if own.document.get("w") is not None else WriteConcern("majority", j=True, wtimeout=TIMEOUT_MS)

    def get(self, ending: str = "") -> Collection[Document]:
        """Return the collection of the jobs, or the one with this suffix; check the server on the first use."""
        if self._ready != os.getpid():
            self.start()
        return self._get(ending)

    def _get(self, ending: str = "") -> Collection[Document]:
        return self.client[self.database].get_collection(
            f"{self.collection}{ending}",
            write_concern=self.write_concern,
            read_concern=ReadConcern("majority"),
            read_preference=ReadPreference.PRIMARY,
        )

    @contextmanager
    def asked(self, what: Literal["read", "write"]) -> Iterator[None]:
        """Turn PyMongo's errors into ours: OutcomeUnknown for a write without a reply, else StoreUnavailable."""
        try:
            yield
        except ServerSelectionTimeoutError as error:
            raise StoreUnavailable(f"{self.place} cannot be reached: {_said(error)}") from error
        except (AutoReconnect, WriteConcernError) as error:
            kind = OutcomeUnknown if what == "write" else StoreUnavailable
            raise kind(f"{self.place} did not answer a {what}: {_said(error)}") from error
        except PyMongoError as error:
            raise StoreUnavailable(f"{self.place} refused a {what}: {_said(error)}{_advice(error)}") from error

    # -- start, time, health -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Check and prepare the server; raise ConfigurationError if the server or the collection cannot be used."""
        with self.asked("read"):
            version = self.client.admin.command("buildInfo")["version"]
            foreign = self._get().find_one({"job_state": {"$exists": True}}, ["_id"])
            schema = self._get("_facts").find_one({"_id": "schema"})
        check_version(self.place, version, "MongoDB", OLDEST_VERSION)
        if self.write_concern.document.get("w") == 0:
            raise ConfigurationError("w=0 leaves writes unanswered, and two nodes would run one job; leave w out")
        if foreign is not None:
            raise ConfigurationError(
                f"the collection {self.database}.{self.collection} holds jobs of APScheduler, such as "
                f"{foreign['_id']!r}; give this store another collection, and take the jobs over with: mainspring "
                "import"
            )
        if schema is not None and schema["n"] > SCHEMA:
            raise ConfigurationError(
                f"a newer mainspring wrote {self.database}.{self.collection} (schema {schema['n']}, this one knows "
                f"{SCHEMA}); upgrade mainspring on this node"
            )
        with self.asked("write"):
            self._get("_facts").update_one({"_id": "schema"}, {"$set": {"n": SCHEMA}}, upsert=True)
        self._ready = os.getpid()
        for prepare in self.prepare:
            prepare()

    def now(self) -> int:
        """Return the server's time in microseconds, a whole number of milliseconds."""
        began = time.monotonic()
        if self._clock is None or not 0 <= began - self._clock[0] < CLOCK_SECONDS:
            with self.asked("read"):
                told = self.client.admin.command("hello")["localTime"]
            ended = time.monotonic()
            there = round((told - _EPOCH).total_seconds() * 1000) * 1000
            self._clock = began, there - int((began + ended) / 2 * 1_000_000)
        now = (self._clock[1] + int(time.monotonic() * 1_000_000)) // 1000 * 1000
        if 0 < self._last - now < LARGEST_STEP_US:
            return self._last
        self._last = now
        return now

    def health(self) -> Health:
        """Judge by the settings of server and client whether acknowledged writes survive."""
        with self.asked("read"):
            hello = self.client.admin.command("hello")
            version = f"MongoDB {self.client.admin.command('buildInfo')['version']}"
        members = len(hello.get("hosts", ())) + len(hello.get("passives", ()))
        concern = self.write_concern.document
        warnings = [] if hello.get("setName") else ["a single server tells nobody of changes: nodes look every second"]
        durable = False
        if concern.get("w") != "majority" and hello.get("setName"):
            reason = (
                f"the client asks for w={concern.get('w')!r}: a fail-over may lose what it acknowledged; leave w out"
            )
        elif concern.get("j") is False:
            reason = "the client asks for journal=false: a power failure may lose what was acknowledged; leave it out"
        else:
            durable = True
            reason = "one member has each write in its journal; a replica set of three survives its loss"
            if members > 1:
                reason = f"a majority of {members} members has each write in its journal"
        return Health(
            durable=durable,
            replicas=members // 2 if durable else 0,
            reasons=(reason,),
            version=version,
            schema=SCHEMA,
            warnings=tuple(warnings),
        )

    # -- writes ------------------------------------------------------------------------------------------------

    def write(self, collection: Collection[Document], writes: Sequence[tuple[Document, int | None]]) -> list[bool]:
        """Replace each document that has this version, or insert it for None; return whether each was written."""
        added = iter(self.insert(collection, [document for document, version in writes if version is None]))
        changed = [(document, version) for document, version in writes if version is not None]
        replaced = iter(self.replace(collection, changed))
        return [next(added if version is None else replaced) for _, version in writes]

    def versions(self, collection: Collection[Document], ids: Sequence[str]) -> dict[str, int]:
        """Return the versions of the stored documents by id."""
        with self.asked("read"):
            return {each["_id"]: each["v"] for each in collection.find({"_id": {"$in": ids}}, ["v"])}

    def insert(self, collection: Collection[Document], documents: Sequence[Document]) -> list[bool]:
        """Insert each document whose id and unique key no other has; return for each whether it was inserted.

        The driver may send an insert twice: a refused document whose version is stored was inserted the first time.
        """
        if not documents:
            return []
        refused: set[int] = set()
        with self.asked("write"):
            try:
                collection.insert_many(documents, ordered=False)
            except BulkWriteError as error:
                errors = error.details["writeErrors"]
                _only_duplicates(errors, error.details.get("writeConcernErrors"))
                refused = {each["index"] for each in errors}
        if refused:
            found = self.versions(collection, [documents[number]["_id"] for number in refused])
            refused = {n for n in refused if found.get(documents[n]["_id"]) != documents[n]["v"]}
        return [number not in refused for number in range(len(documents))]

    def replace(self, collection: Collection[Document], writes: Sequence[tuple[Document, int]]) -> list[bool]:
        """Replace each document that has this version, unless another document has its unique key.

        Return for each whether it was replaced.
        """
        if not writes:
            return []
        with self.asked("write"):
            if len(writes) > 1 and self._is_bulk():
                return self._replace_many(collection, writes)
            return [self._replace(collection, document, version) for document, version in writes]

    def _is_bulk(self) -> bool:
        if self._major is None:
            self._major = int(self.client.admin.command("buildInfo")["version"].partition(".")[0])
        return self._major >= BULK_VERSION

    def _replace(self, collection: Collection[Document], document: Document, version: int) -> bool:
        try:
            done = collection.replace_one({"_id": document["_id"], "v": Int64(version)}, document)
        except DuplicateKeyError:
            return False
        return done.matched_count == 1

    def _replace_many(self, collection: Collection[Document], writes: Sequence[tuple[Document, int]]) -> list[bool]:
        space = f"{self.database}.{collection.name}"
        models = [
            ReplaceOne({"_id": document["_id"], "v": Int64(version)}, document, namespace=space)
            for document, version in writes
        ]
        results = self._write_many(models).update_results
        return [number in results and results[number].matched_count == 1 for number in range(len(models))]

    def delete(self, collection: Collection[Document], marks: Sequence[tuple[str, int]]) -> list[bool]:
        """Delete each document that has this version; return for each whether it was deleted."""
        wanted = [{"_id": key, "v": Int64(version)} for key, version in marks]
        with self.asked("write"):
            if len(wanted) < 2 or not self._is_bulk():
                return [collection.delete_one(each).deleted_count == 1 for each in wanted]
            space = f"{self.database}.{collection.name}"
            results = self._write_many([DeleteOne(each, namespace=space) for each in wanted]).delete_results
        return [number in results and results[number].deleted_count == 1 for number in range(len(wanted))]

    def _write_many(self, models: Sequence[Any]) -> Any:
        """Send many writes in one request, and return the result of each."""
        try:
            return self.client.bulk_write(models, ordered=False, verbose_results=True, write_concern=self.write_concern)
        except ClientBulkWriteException as error:
            if error.error is not None:
                raise error.error from error
            _only_duplicates(error.write_errors or [], error.write_concern_errors)
            return error.partial_result


def _only_duplicates(errors: Any, concerns: Any) -> None:
    """Raise an error unless all errors of a batch are about duplicate keys."""
    if concerns:
        raise WriteConcernError(str(concerns[0]))
    for each in errors:
        if each["code"] != _DUPLICATE:
            raise OperationFailure(each["errmsg"], each["code"])


def _advice(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure) and error.code in _NO_RIGHT:
        return "; correct the user or the password, and name the database of the user: ?authSource=admin"
    return ""


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {without_password(str(error))}"
