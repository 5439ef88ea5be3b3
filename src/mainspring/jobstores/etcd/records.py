"""Job records in etcd.

`<path>/jobs/<key>` holds a record. The keys `<path>/due/<wake>/<key>` are the timetable: etcd sorts keys, so the due
ones are one range. A record's stamp is the revision of its last change, which etcd never uses again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import msgspec

from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.etcd.client import b64, unb64
from mainspring.jobstores.health import Health, check_version
from mainspring.jobstores.split import JobRecord, WatchedRecords, is_due, wake_of, wake_text

__all__ = ["EtcdRecords"]

WRITES_AT_ONCE: Final = 30
"""A transaction of etcd takes 128 operations. Each write needs up to four, and all writes together need one more."""
BYTES_AT_ONCE: Final = 1_000_000
"""etcd takes requests of up to 1.5 MiB."""
READS_AT_ONCE: Final = 100
KEYS_AT_ONCE: Final = 500
DATABASE_BYTES: Final = 2 * 1024**3
"""The default of etcd's --quota-backend-bytes."""
MANY_REVISIONS: Final = 100_000
OLDEST: Final = (3, 4)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, int | None, bytes]).decode

log = logging.getLogger("mainspring.jobstores.etcd")


class EtcdRecords(WatchedRecords):
    """Records below one path; `client` is an EtcdClient, or an object with the same `call` and perhaps `watch`."""

    server: ClassVar[str] = "etcd"
    max_bytes: ClassVar[int | None] = 256 * 1024
    max_jobs: ClassVar[int | None] = 50_000

    def __init__(self, path: str, client: Any, *, closes: bool) -> None:
        super().__init__()
        self.path, self.client = path, client
        self._closes = closes
        self._checked = False
        self._following: threading.Event | None = None

    def start(self) -> None:
        """Check the server, and that APScheduler has no jobs under the path; log warnings about the server."""
        for warning in self.health().warnings:
            log.warning("%r: %s", self.client, warning)
        self._refuse_strangers()

    def _refuse_strangers(self) -> None:
        """Raise ConfigurationError if APScheduler has its jobs under this path."""
        if self._checked:
            return
        for start, end in (("/", "/due/"), ("/due0", "/jobs/"), ("/jobs0", "0")):
            for kv in self.read_keys(self.path + start, self.path + end, 50):
                if unb64(kv.get("value", "")).startswith(b"\x80"):  # the first byte of every pickle
                    name = unb64(kv["key"]).decode(errors="replace")
                    raise ConfigurationError(
                        f"{self.path} in {self.client!r} holds jobs of APScheduler ({name!r}); choose another path, "
                        "and take them over with `mainspring import`"
                    )
        self._checked = True

    def shutdown(self) -> None:
        """Stop listening; close our own client, or the user's if the user asked for that."""
        if self._following is not None and hasattr(self.client, "stop_watch"):
            self.client.stop_watch(self._following)
        super().shutdown()
        if self._closes:
            self.client.close()

    # -- reading -----------------------------------------------------------------------------------------------

    def _job(self, key: str) -> str:
        return f"{self.path}/jobs/{key}"

    def _due(self, key: str, wake: int) -> str:
        return f"{self.path}/due/{wake_text(wake)}/{key}"

    def _record(self, kv: dict[str, Any]) -> JobRecord:
        key, data = unb64(kv["key"]).decode()[len(self.path) + 6 :], unb64(kv.get("value", ""))
        stamp = int(kv["mod_revision"])
        try:
            return JobRecord(key, *_decode(data), stamp)
        except msgspec.DecodeError:  # somebody has altered it: the caller sets it aside as a broken job
            return JobRecord(key, stamp, None, data, stamp)

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        self._refuse_strangers()
        found: dict[str, JobRecord] = {}
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), READS_AT_ONCE):
            asked = [{"requestRange": {"key": b64(self._job(key))}} for key in wanted[start : start + READS_AT_ONCE]]
            for part in self.client.call("kv/txn", {"success": asked}).get("responses", ()):
                for kv in part["response_range"].get("kvs", ()):
                    record = self._record(kv)
                    found[record.key] = record
        return [found.get(key) for key in keys]

    def read_keys(self, start: str, end: str, limit: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Read the keys from `start` to before `end`, a page at a time."""
        kvs: list[dict[str, Any]] = []
        while True:
            page = min(KEYS_AT_ONCE, limit - len(kvs)) if limit else KEYS_AT_ONCE
            body = {"key": b64(start), "range_end": b64(end), "limit": page, **options}
            answer = self.client.call("kv/range", body)
            kvs += answer.get("kvs", ())
            if not answer.get("more") or (limit and len(kvs) >= limit):
                return kvs
            start = unb64(kvs[-1]["key"]).decode() + "\0"

    def all(self) -> list[JobRecord]:
        self._refuse_strangers()
        return [self._record(kv) for kv in self.read_keys(f"{self.path}/jobs/", f"{self.path}/jobs0")]

    def count(self) -> int:
        around = {"key": b64(f"{self.path}/jobs/"), "range_end": b64(f"{self.path}/jobs0")}
        return int(self.client.call("kv/range", {**around, "count_only": True}).get("count", 0))

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        kvs = self.read_keys(f"{self.path}/due/", f"{self.path}/due0", limit + 1, keys_only=True)
        names = [unb64(kv["key"]).decode()[len(self.path) + 5 :] for kv in kvs]
        wakes = [wake_of(name) for name in names]
        number = sum(wake <= until for wake in wakes[:limit])
        found = self.get([name[21:] for name in names[:number]]) if number else []
        page = [record for record in found if record is not None and is_due(record, until)]
        return page, wakes[number] if len(wakes) > number else None

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        return self._write(writes)

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        return self._write([(None, record) for record in seen])

    def _write(self, writes: Sequence[tuple[JobRecord | None, JobRecord | None]]) -> list[bool]:
        self._refuse_strangers()
        answers: list[bool] = []
        for some in _parts(writes):
            steps = [self._step(record, seen) for record, seen in some]
            # Send several writes as one transaction. It has an inner transaction for each, which compares and answers
            # by itself.
            found = self.client.call("kv/txn", steps[0] if len(steps) == 1 else self._together(steps), write=True)
            parts = [found] if len(steps) == 1 else [part["response_txn"] for part in found["responses"][: len(steps)]]
            revision = int(found["header"]["revision"])
            for (record, _), part in zip(some, parts, strict=True):
                answers.append(bool(part.get("succeeded", False)))
                if record is not None and answers[-1]:
                    record.stamp = revision
        self.changes.stir()
        return answers

    def _together(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        done: list[dict[str, Any]] = [{"requestTxn": step} for step in steps]
        if any("requestPut" in each for step in steps for each in step["success"]):
            # etcd checks its quota only for outer writes: without one, it would take inner writes even when it is full.
            done.append({"requestPut": {"key": b64(f"{self.path}/wrote")}})
        return {"success": done}

    def _step(self, record: JobRecord | None, seen: JobRecord | None) -> dict[str, Any]:
        key = (record or seen).key  # type: ignore[union-attr]
        job = b64(self._job(key))
        # A key that does not exist has the revision 0.
        revision = 0 if seen is None else seen.stamp
        same = {"key": job, "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        old, new = None if seen is None else seen.wake, None if record is None else record.wake
        done: list[dict[str, Any]] = []
        if record is None:
            done.append({"requestDeleteRange": {"key": job}})
        else:
            value = _encode((record.version, record.wake, record.data))
            done.append({"requestPut": {"key": job, "value": b64(value)}})
        if old is not None and old != new:
            done.append({"requestDeleteRange": {"key": b64(self._due(key, old))}})
        if new is not None and old != new:
            done.append({"requestPut": {"key": b64(self._due(key, new))}})
        return {"compare": [same], "success": done}

    # -- waking ------------------------------------------------------------------------------------------------

    def follow(self, stopped: threading.Event) -> None:
        """Watch the timetable."""
        self._following, watch = stopped, getattr(self.client, "watch", None)
        if watch is None:  # the user's own client cannot watch
            stopped.wait(1.0)
        else:
            watch(f"{self.path}/due/", f"{self.path}/due0", self.changes.stir, stopped)

    # -- health ------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Report durability: a majority of the members has each write on disk before etcd acknowledges it."""
        status = self.client.call("maintenance/status", {})
        check_version(repr(self.client), status.get("version", ""), "etcd", OLDEST)
        warnings = [] if int(status.get("leader", 0)) else ["etcd has no leader: it takes no writes"]
        members, alarms = 1, []
        with suppress(StoreUnavailable):  # only the root user may ask some of this
            members = len(self.client.call("cluster/member/list", {}).get("members", ())) or 1
            alarms = self.client.call("maintenance/alarm", {"action": "GET"}).get("alarms", [])
        for alarm in sorted({str(each.get("alarm")) for each in alarms}):
            warnings.append(
                f"etcd has the alarm {alarm} and takes no writes"
                + ("; compact it, then etcdctl defrag and etcdctl alarm disarm" if alarm == "NOSPACE" else "")
            )
        size = int(status.get("dbSize", 0))
        quota = int(status.get("dbSizeQuota", 0)) or DATABASE_BYTES
        if size > 0.8 * quota:
            warnings.append(f"its database has {size:,} bytes of {quota:,}: when it is full, etcd takes no writes")
        if not self._is_compacted(int(status["header"]["revision"])):
            warnings.append(
                "etcd keeps every change since its beginning, two for each fire; start it with "
                "--auto-compaction-retention=1h"
            )
        majority = f"{members // 2 + 1} of {members} members have" if members > 1 else "the only member has"
        return Health(
            durable=True,
            replicas=members // 2,
            reasons=(f"{majority} each write on disk before it is acknowledged",),
            version=f"etcd {status.get('version', 'of an unknown version')}",
            warnings=tuple(warnings),
        )

    def _is_compacted(self, revision: int) -> bool:
        """Return False if there are many revisions, and the first ones can still be read."""
        if revision < MANY_REVISIONS:
            return True
        try:
            self.client.call("kv/range", {"key": b64(f"{self.path}/jobs/"), "revision": 2, "count_only": True})
        except StoreUnavailable:
            return True
        return False


def _parts(
    writes: Sequence[tuple[JobRecord | None, JobRecord | None]],
) -> Iterator[list[tuple[JobRecord | None, JobRecord | None]]]:
    """Divide writes into transactions small enough for etcd, by number and by bytes."""
    part: list[tuple[JobRecord | None, JobRecord | None]] = []
    size = 0
    for record, seen in writes:
        more = 4000 + (0 if record is None else len(record.data))
        if part and (len(part) == WRITES_AT_ONCE or size + more > BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append((record, seen))
        size += more
    if part:
        yield part
