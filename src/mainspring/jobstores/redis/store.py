"""Keep jobs and runs in Redis (6.2 or newer) or Valkey: one Lua script per verb, so each step is atomic."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec
import redis

from mainspring.codec import Codec
from mainspring.core.instants import SECOND
from mainspring.core.quantities import check_count
from mainspring.errors import ConfigurationError, ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import Answers, BrokenJob, Health
from mainspring.jobstores.health import check_version
from mainspring.jobstores.records.rows import ALTERED, FireRow, JobRow
from mainspring.jobstores.redis import health as redis_health
from mainspring.jobstores.redis.calls import REDIS_SCHEMA
from mainspring.jobstores.redis.runs import RedisRuns
from mainspring.jobstores.redis.servers import FixedServer
from mainspring.jobstores.redis.shards import Shard, Shards, pin
from mainspring.jobstores.redis.urls import make_servers, take_options
from mainspring.jobstores.redis.wire import (
    checksum,
    earliest,
    job_rows,
    new_run,
    or_false,
    raw,
    times_text,
    version_text,
)

__all__ = ["REDIS_SCHEMA", "RedisJobStore", "pin"]

FIRINGS_PER_SCRIPT: Final = 1000
"""One script call handles at most this many firings."""
OLDEST_REDIS: Final = (6, 2)
"""The oldest server version that has all the commands of the scripts."""
MOST_SHARDS: Final = 16_384
"""The number of slots of a Redis Cluster."""
_APSCHEDULER: Final = ("apscheduler.jobs", "apscheduler.run_times")
log = logging.getLogger("mainspring.jobstores.redis")


class RedisJobStore(RedisRuns):
    """A store of jobs and runs in Redis or Valkey, for any number of nodes.

    Give a `url` (redis://, rediss://, unix://, redis+sentinel://h1:p1,h2:p2/service/db, redis+cluster://h1:p1,h2:p2), a
    `client` of your own that answers in bytes, or redis-py's own arguments. The store connects when it is first used.
    All keys begin with `{name:k}`, where k is the shard, or with `{name:0/jobs_key/run_times_key}` if you choose these
    two. So stores that differ in any of the three names share nothing. The first use fixes `shards`; you cannot change
    it later. With `replicas=n`, the store acknowledges, hands out and executes nothing before n replicas have it.
    The URL can set name, shards, replicas and keep_runs (`?replicas=1`). `pickle_protocol` is accepted for
    APScheduler's signature and ignored: nothing is pickled.
    """

    remote = True
    tells_topics = True
    _told: ClassVar[set[tuple[str, str]]] = set()

    def __init__(
        self,
        db: int = 0,
        jobs_key: str | None = None,
        run_times_key: str | None = None,
        pickle_protocol: int | None = None,
        *,
        url: str | None = None,
        client: redis.Redis | None = None,
        name: str = "mainspring",
        shards: int = 1,
        replicas: int = 0,
        codec: Codec | None = None,
        keep_runs: int = 100_000,
        **connect_args: Any,
    ) -> None:
        given = {"name": name, "shards": shards, "replicas": replicas, "keep_runs": keep_runs}
        url, options = take_options(url, given)
        check_count("db", db, least=0)
        _check(options, jobs_key, run_times_key, client, url, connect_args)
        servers = FixedServer(client) if client is not None else make_servers(url, db, connect_args)
        if servers.spread and (jobs_key or run_times_key):
            raise ConfigurationError(
                "jobs_key and run_times_key cannot be chosen in a Redis Cluster, where all keys of a shard share a "
                "hash tag: leave them out and choose `name` instead"
            )
        keys = Shards(options["name"], options["shards"], jobs_key, run_times_key)
        super().__init__(codec, options["name"], keys, servers, options["replicas"])
        self.keep_runs = options["keep_runs"]
        self._replicas: int = options["replicas"]
        self._swept = {}

    @property
    def redis(self) -> redis.Redis:
        """A client of the server that has the first shard's jobs, for inspection."""
        return redis.Redis(connection_pool=self._servers.pool(self.jobs_key))

    @property
    def jobs_key(self) -> str:
        """The key of the hash that holds the jobs (of the first shard)."""
        return self._shards.all[0].jobs

    @property
    def run_times_key(self) -> str:
        """The key of the sorted set that holds the next run times (of the first shard)."""
        return self._shards.all[0].times

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the store; warn if the server may lose data, or if APScheduler's jobs are in the same database."""
        self._check_server()
        if self._link.exists(_APSCHEDULER):
            log.warning(
                "Redis at %s holds jobs of APScheduler (%s); they are left alone: `mainspring import` takes them over",
                self._link.place,
                ", ".join(_APSCHEDULER),
            )
        super().start(scheduler, alias)

    def _check_server(self) -> None:
        """Refuse a server that is too old; warn of risky settings, of each once."""
        for place, said in self._link.info().items():
            check_version(f"Redis at {place}", said.get("redis_version", ""), "Valkey, or Redis", OLDEST_REDIS)
            found = redis_health.judge(said, {}, self._replicas)
            for text in (*found.warnings, *(found.reasons if found.durable is False else ())):
                if (place, text) not in RedisJobStore._told:
                    RedisJobStore._told.add((place, text))
                    log.warning("Redis at %s: %s", place, text)

    def health(self) -> Health:
        """Ask the servers whether acknowledged writes survive."""
        return redis_health.health(self._link, REDIS_SCHEMA, self._replicas)

    def shutdown(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._subscriptions.close()
        self._ends.close()
        self._link.close()

    # -- jobs --------------------------------------------------------------------------------------------------

    def _add_job_rows(self, rows: Sequence[JobRow], replace: bool) -> list[tuple[int, int]]:
        parts: dict[Shard, list[JobRow]] = {}
        for row in rows:
            parts.setdefault(self._shards.of_job(row.id), []).append(row)
        stamps: dict[int, tuple[int, int]] = {}
        written: list[tuple[str, int]] = []
        for shard, part in parts.items():
            plain = [[row.id, or_false(row.at), times_text(row.at, row.nominal), raw(row.frame)] for row in part]
            reply = self._call(shard, "add_jobs", [replace, plain])
            if isinstance(reply, int):
                # All or none: a step is atomic within one shard only, so remove the jobs that other shards have taken.
                for job_id, version in written:
                    mark = [job_id, version_text(version)]
                    self._call(self._shards.of_job(job_id), "remove_jobs", [[mark], False])
                raise ConflictingIdError(part[reply - 1].id)
            for row, version, incarnation in zip(part, *reply, strict=True):
                stamps[id(row)] = version, int(incarnation)
                written.append((row.id, version))
        return [stamps[id(row)] for row in rows]

    def _update_job_row(self, row: JobRow) -> int:
        args = [row.id, version_text(row.version), or_false(row.at), times_text(row.at, row.nominal), raw(row.frame)]
        version = int(self._call(self._shards.of_job(row.id), "update_job", args))
        if version < 0:
            raise JobLookupError(row.id)
        if version == 0:
            raise VersionConflict(row.id)
        return version

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove jobs; each shard is an atomic step, all shards together are not."""
        if job_ids is None:
            return sum(int(self._call(shard, "remove_jobs", [False, broken])) for shard in self._shards.all)
        parts: dict[Shard, list[Any]] = {}
        for job_id in dict.fromkeys(job_ids):
            parts.setdefault(self._shards.of_job(job_id), []).append([job_id, False])
        return sum(int(self._call(shard, "remove_jobs", [marks, broken])) for shard, marks in parts.items())

    def _job_rows(self, job_ids: Sequence[str] | None) -> list[JobRow]:
        rows: dict[str, JobRow] = {}  # a page may repeat a job of an earlier page
        for job_id in job_ids or ():
            found = self._call(self._shards.of_job(job_id), "get_job", [job_id], reads=True)
            rows.update((row.id, row) for row in job_rows(found))
        for shard in self._shards.all if job_ids is None else ():
            cursor = "0"
            while True:
                after, page = self._call(shard, "list_jobs", [cursor, 1000], reads=True)
                rows.update((row.id, row) for row in job_rows(page))
                cursor = after.decode()
                if cursor == "0":
                    break
        return sorted(rows.values(), key=lambda row: (row.at is None, row.at or 0))

    def _due_rows(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        now, times = 0, []
        rows: list[JobRow] = []
        for shard in self._shards.turn():
            now, next_at, page = self._call(shard, "due", [limit - len(rows), int(hold * SECOND)])
            rows += job_rows(page)
            times.append(next_at)
        if len(self._shards.all) > 1:
            rows.sort(key=lambda row: row.at or 0)
        return now, rows, earliest(times)

    def _fire_rows(self, firings: Sequence[FireRow], lease: float) -> Answers[tuple[str, ...] | None]:
        waiting: list[str] = []

        def act(shard: Shard, steps: Sequence[FireRow]) -> list[tuple[str, ...] | None]:
            plain = [
                [
                    step.job_id,
                    version_text(step.version),
                    False if step.next_at is None else str(step.next_at),
                    times_text(step.next_at, step.next_nominal),
                    [new_run(run) for run in step.runs],
                    [new_run(run) for run in step.missed],
                    step.miss or "",
                    step.unscheduled,
                    False if step.frame is None else raw(step.frame),
                ]
                for step in steps
            ]
            answers = self._call(shard, "fire", [int(lease * SECOND), plain])
            return [_inserted(step, answer, waiting) for step, answer in zip(steps, answers, strict=True)]

        found = self._shards.ask(firings, lambda step: self._shards.of_job(step.job_id), act, FIRINGS_PER_SCRIPT)
        return Answers(found, waiting=waiting)

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        shard = self._shards.of_job(job_id)
        if reason is not None:
            return bool(self._call(shard, "set_aside", [job_id, version_text(version), reason]))
        answer = int(self._call(shard, "restore", [job_id, checksum(job_id)]))
        if answer < 0:
            raise ConflictingIdError(job_id)
        return answer == 1

    def _broken_jobs(self) -> list[BrokenJob]:
        found = []
        for shard in self._shards.all:
            for packed, frame in zip(*self._call(shard, "list_broken", reads=True), strict=True):
                job_id, reason, at = _restored_broken(packed)
                found.append(BrokenJob(id=job_id, reason=reason, payload=frame or b"", at=at))
        return sorted(found, key=lambda job: job.at)

    def __repr__(self) -> str:
        return f"<RedisJobStore ({self._link.place}, {self.name})>"


def _check(
    options: dict[str, Any],
    jobs_key: str | None,
    run_times_key: str | None,
    client: redis.Redis | None,
    url: str | None,
    connect_args: dict[str, Any],
) -> None:
    shards = options["shards"]
    for key, value in (("jobs_key", jobs_key), ("run_times_key", run_times_key)):
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigurationError(f"{key} must be a non-empty string, not {value!r}; leave it out to have one")
    if not options["name"]:
        raise ConfigurationError("name is empty; it is what all keys of the store begin with")
    check_count("shards", shards, most=MOST_SHARDS)
    for option in ("replicas", "keep_runs"):
        check_count(option, options[option], least=0)
    if shards > 1 and (jobs_key or run_times_key):
        raise ConfigurationError(
            f"jobs_key and run_times_key name one key each, and shards={shards} shards need a key each, with its hash "
            "tag: leave them out and choose `name` instead"
        )
    if jobs_key is not None and jobs_key == run_times_key:
        raise ConfigurationError(f"jobs_key and run_times_key are both {jobs_key!r}; they need a key each")
    if client is None:
        return
    if url is not None or connect_args:
        given = "url" if url is not None else next(iter(connect_args))
        raise ConfigurationError(f"a client was given, so {given!r} would not be used; give one or the other")
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigurationError(
            f"a {type(client).__name__} cannot be used as a client; give a redis.Redis, or for a Redis Cluster its "
            "URL: redis+cluster://host1:6379,host2:6379"
        )
    if pool.connection_kwargs.get("decode_responses"):
        raise ConfigurationError("the client decodes what it reads; make one with decode_responses=False")


def _restored_broken(packed: bytes) -> tuple[str, str, int]:
    """Return the id, reason and time of a job that was set aside, as far as they are readable."""
    try:
        return msgspec.msgpack.decode(packed, type=tuple[str, str, int])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return packed.decode("utf-8", "backslashreplace")[:100], f"bad_data: what was kept of it {ALTERED}", 0


def _inserted(step: FireRow, answer: bytes, waiting: list[str]) -> tuple[str, ...] | None:
    """Return the ids of a step's new runs, None if it was lost; note those that were not leased."""
    if answer == b"1" and len(step.runs) == 1:  # as most are
        return (step.runs[0].id,)
    if answer == b"-":
        return None
    if b"2" in answer:
        waiting += [run.id for run, new in zip(step.runs, answer, strict=True) if new == ord("2")]
    return tuple(run.id for run, new in zip(step.runs, answer, strict=True) if new != ord("0"))
