"""Damaged, truncated, swapped, oversized and foreign frames in real stores: none executed, none dropped."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine, text

from mainspring.codec import Codec, Keyring
from mainspring.codec.frame import seal
from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Status
from mainspring.core.transitions import recover
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.node.node import Node
from mainspring.testing.clock import VirtualClock
from mainspring.testing.conformance.helpers import LEASE, add_job, add_run, cancel_all, claim, lapsed
from tests.servers import MariaDB, PostgreSQL, Redis

NUMBER = 100  # jobs, and as many runs
KEY = "a key of the tests, long enough"

Write = Callable[[str, str, bytes], None]  # "jobs" or "runs", id, bytes


class SQL:
    """Writes into the tables behind the store's back."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)

    def frame(self, table: str, name: str) -> bytes:
        with self._engine.connect() as connection:
            row = connection.execute(text(_SELECT[table]), {"id": name}).one()
        return bytes(row[0])

    def overwrite(self, table: str, name: str, frame: bytes) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(_UPDATE[table]), {"id": name, "frame": frame})

    def damage_miss(self, name: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("UPDATE mainspring_jobs SET miss = '{' WHERE id = :id"), {"id": name})

    def close(self) -> None:
        self._engine.dispose()


_SELECT = {
    "jobs": "SELECT frame FROM mainspring_jobs WHERE id = :id",
    "runs": "SELECT payload FROM mainspring_runs WHERE id = :id",
}
_UPDATE = {
    "jobs": "UPDATE mainspring_jobs SET frame = :frame WHERE id = :id",
    "runs": "UPDATE mainspring_runs SET payload = :frame WHERE id = :id",
}


class RedisKeys:
    """Writes into the hashes behind the store's back."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    @staticmethod
    def _key(table: str) -> str:
        return "{damage:0}:" + {"jobs": "jobs", "runs": "calls"}[table]

    def frame(self, table: str, name: str) -> bytes:
        found: Any = self._client.hget(self._key(table), name)
        return bytes(found)

    def overwrite(self, table: str, name: str, frame: bytes) -> None:
        self._client.hset(self._key(table), name, frame)

    def close(self) -> None:
        self._client.close()


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[JobStore, SQL | RedisKeys]]:
    codec = Codec(Keyring([KEY]))
    store: JobStore
    back: SQL | RedisKeys
    if kind == "redis":
        server: Redis = request.getfixturevalue("redis_server")
        store, back = RedisJobStore(url=server.url, name="damage", codec=codec), RedisKeys(server.url)
    else:
        if kind == "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        else:
            sql: PostgreSQL | MariaDB = request.getfixturevalue(f"{kind}_server")
            url = sql.url
        store, back = SQLAlchemyJobStore(url, codec=codec), SQL(url)
    try:
        store.remove_all_jobs()
        store.shift_clock(LEASE + 1)
        store.settle([recover(run, store.beat()) for run in lapsed(store, 1000)])  # of the tests before
        store.shift_clock(-LEASE - 1)
        cancel_all(store)
        yield store, back
    finally:
        store.shutdown()
        back.close()


def damages(frame: bytes, other: bytes, foreign: bytes, chance: random.Random) -> Iterator[bytes]:
    """Yield one way after another to spoil a frame."""
    while True:
        spot = chance.randrange(len(frame))
        yield frame[:spot] + bytes([frame[spot] ^ (1 << chance.randrange(8))]) + frame[spot + 1 :]
        yield frame[:spot]
        yield other  # somebody else's, validly signed for them
        yield foreign  # signed with another key
        yield frame + chance.randbytes(1 + spot)
        yield chance.randbytes(len(frame))
        yield b"\0" * (1 << 20)
        yield b""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "redis"])
def test_two_hundred_spoiled_frames_are_set_aside_with_their_bytes_and_hurt_nobody(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    chance = random.Random(20261115)
    foreign = Codec(Keyring(["somebody else's key, as long"])).dumps({"f": "os:abort", "a": [], "k": {}, "n": "x"}, "")
    with opened(kind, request, tmp_path) as (store, back):
        spoiled: dict[tuple[str, str], bytes] = {}
        for table, add in (("jobs", add_job), ("runs", add_run)):
            names = [f"{table}-{number}" for number in range(NUMBER)]
            for name in [*names, f"{table}-good"]:
                add(store, name, due_in=-10)
            other = back.frame(table, names[-1])
            ways = damages(back.frame(table, names[0]), other, foreign, chance)
            for name in names[:-1]:
                spoiled[table, name] = next(ways)
                back.overwrite(table, name, spoiled[table, name])
            spoiled[table, names[-1]] = b"\xff" + other
            back.overwrite(table, names[-1], spoiled[table, names[-1]])

        due = store.due(1000, 0).jobs
        assert [each.job.id for each in due] == ["jobs-good"]
        runs = claim(store, limit=1000)
        assert [run.id for run in runs] == ["runs-good"]
        assert claim(store, limit=1000) == []  # set aside, not handed out again and again
        assert store.due(1000, 0).jobs[0].job.id == "jobs-good"

        set_aside = {broken.id: broken for broken in store.get_jobs(broken=True).broken}
        for (table, name), frame in spoiled.items():
            if table == "jobs":
                assert bytes(set_aside[name].payload) == frame
                assert set_aside[name].reason
        broken = {run.id: run for run in store.find_runs(RunQuery(status=(Status.BROKEN,)), limit=1000)}
        for table, name in spoiled:
            if table == "runs":
                assert broken[name].reason
                assert back.frame("runs", name) == spoiled[table, name]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "redis"])
def test_runs_spoiled_while_they_ran_are_set_aside_when_their_node_is_gone_and_the_others_are_recovered(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(kind, request, tmp_path) as (store, back):
        for name in ("spoiled", "good"):
            add_run(store, name, due_in=-10)
        claim(store, limit=2)
        back.overwrite("runs", "spoiled", b"not a frame")

        store.shift_clock(LEASE + 1)

        recovered = {run.id for run in lapsed(store, 1000)}
        assert "good" in recovered
        assert "spoiled" not in recovered
        spoiled = store.get_runs(["spoiled"])[0]
        assert spoiled is not None
        assert spoiled.status is Status.BROKEN
        assert spoiled.reason
        assert back.frame("runs", "spoiled") == b"not a frame"


def newer(context: str) -> bytes:
    """Return a frame as a later version of mainspring might write it: its head has other flags."""
    return seal(b"\x00", 0x40, context, Keyring([KEY]))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "redis"])
def test_what_a_newer_mainspring_has_written_is_left_to_nodes_that_can_read_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(kind, request, tmp_path) as (store, back):
        frames = {}
        for table, add in (("jobs", add_job), ("runs", add_run)):
            add(store, f"{table}-new", due_in=-10)
            frames[table] = back.frame(table, f"{table}-new")
        back.overwrite("jobs", "jobs-new", newer("job:jobs-new"))
        back.overwrite("runs", "runs-new", newer("run:default:runs-new"))
        assert store.due(10, 0).jobs == []
        assert claim(store) == []
        assert "jobs-new" not in {broken.id for broken in store.get_jobs(broken=True).broken}
        [waiting] = [run for run in store.find_runs(RunQuery(queue="default")) if run.id == "runs-new"]
        assert (waiting.status, waiting.attempt) == (Status.PENDING, 0)

        for table, frame in frames.items():
            back.overwrite(table, f"{table}-new", frame)
        store.shift_clock(61)
        assert [due.job.id for due in store.due(10, 0).jobs] == ["jobs-new"]
        assert [run.id for run in claim(store)] == ["runs-new"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "redis"])
def test_lost_runs_that_only_others_can_read_do_not_hide_those_behind_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(kind, request, tmp_path) as (store, back):
        for number in range(90):
            add_run(store, f"new-{number}", due_in=-10)
        claim(store, limit=90)
        frames = {f"new-{number}": back.frame("runs", f"new-{number}") for number in range(90)}
        for name in frames:
            back.overwrite("runs", name, newer(f"run:default:{name}"))
        good = [add_run(store, f"good-{number}", due_in=-10).id for number in range(3)]
        store.shift_clock(1)
        claim(store, limit=3)
        store.shift_clock(LEASE + 1)

        assert [run.id for run in lapsed(store) if run.id.startswith("new")] == []
        assert {run.id for run in lapsed(store)} == set(good)
        found = [{run.id for run in lapsed(store, 2)} for _ in range(4)]  # passing over 40 of them at a time
        assert len(set().union(*found)) == 2
        store.settle([recover(run, store.beat()) for run in lapsed(store)])
        assert lapsed(store) == []
        for name, frame in frames.items():
            back.overwrite("runs", name, frame)
        assert len(lapsed(store, 1000)) == 90


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_a_damaged_missed_record_keeps_no_job_from_firing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(kind, request, tmp_path) as (store, back):
        assert isinstance(back, SQL)
        for name in ("good", "hurt"):
            add_job(store, name, due_in=-10)
        back.damage_miss("hurt")
        page = store.due(10, 0)
        assert sorted((due.job.id, due.miss) for due in page.jobs) == [("good", None), ("hurt", None)]
        firings = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
        assert None not in store.fire(firings, LEASE)


def test_with_another_key_nothing_runs_and_with_the_right_one_all_is_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    right, wrong = Keyring([KEY]), Keyring(["quite another key, as long"])
    with_key = SQLAlchemyJobStore(url, codec=Codec(right))
    add_job(with_key, "signed", due_in=-10)
    with_key.shutdown()

    stranger = SQLAlchemyJobStore(url, codec=Codec(wrong))
    stranger.start(None, "default")
    assert stranger.due(10, 0).jobs == []
    assert "unknown_key" in stranger.get_jobs(broken=True).broken[0].reason
    stranger.shutdown()

    both = SQLAlchemyJobStore(url, codec=Codec(Keyring(["quite another key, as long", KEY])))
    both.start(None, "default")
    assert [due.job.id for due in both.due(10, 0).jobs] == ["signed"]
    assert both.get_jobs(broken=True).broken == []
    both.shutdown()


def test_a_node_without_any_key_leaves_what_is_signed_to_those_who_have_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with_key = SQLAlchemyJobStore(url, codec=Codec(Keyring([KEY])))
    for job in ("one", "two"):
        add_job(with_key, job, due_in=-10)
    run = add_run(with_key, due_in=-10)

    keyless = SQLAlchemyJobStore(url)
    keyless.start(None, "default")
    assert keyless.due(10, 0).jobs == []
    assert keyless.get_all_jobs() == []
    assert claim(keyless) == []
    assert keyless.get_jobs(broken=True).broken == []
    told = [record.message for record in caplog.records if "left to other nodes" in record.message]
    assert len(told) == 1
    assert "needs a key that this node does not have" in told[0]
    keyless.shutdown()

    assert sorted(due.job.id for due in with_key.due(10, 0).jobs) == ["one", "two"]
    with_key.shift_clock(2)  # given back, to be looked at again a little later
    assert [found.id for found in claim(with_key)] == [run.id]
    with_key.shutdown()


def test_what_a_node_with_another_key_has_set_aside_is_put_back_by_the_janitor_of_one_that_can_read_it(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = SQLAlchemyJobStore(url, codec=Codec(Keyring([KEY])))
    add_job(store, "signed", due_in=-10)
    stranger = SQLAlchemyJobStore(url, codec=Codec(Keyring(["quite another key, as long"])))
    assert stranger.due(10, 0).jobs == []
    stranger.shutdown()
    assert [job.id for job in store.get_jobs(broken=True).broken] == ["signed"]

    clock = VirtualClock()
    link = Node({}, clock=clock).add_store("default", store)
    link.janitor()
    assert [job.id for job in store.get_jobs(broken=True).broken] == ["signed"]
    clock.advance(61)
    link.janitor()
    assert store.get_jobs(broken=True).broken == []
    assert [due.job.id for due in store.due(10, 0).jobs] == ["signed"]
    store.shutdown()
