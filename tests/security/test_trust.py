"""What a worker executes was put there by someone who holds the key: S1 to S5 and S24 of the checklist."""

from __future__ import annotations

import hmac
import pickle
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import redis
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.codec import Codec, FrameError, Keyring
from mainspring.codec.frame import PICKLED, seal
from mainspring.codec.values import Code
from mainspring.core.job import Job
from mainspring.core.run import Call, Run, Status
from mainspring.errors import ConfigurationError, RunFailed, TaskNotFound
from mainspring.testing.conformance.helpers import lapsed
from mainspring.triggers.date import DateTrigger
from tests.app.kit import KEY, LASTING, LIMIT, LOCAL, MakeApp
from tests.servers import Redis

OLD = "the key of the year before this"


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def same(value: Any) -> Any:
    return value


def shout(value: str) -> str:
    return value.upper()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def sql(database: Path) -> Callable[..., list[Any]]:
    """Do to the database what somebody who can write to it may do."""

    def execute(statement: str, *params: Any) -> list[Any]:
        connection = sqlite3.connect(database, timeout=LIMIT)
        with connection:
            rows = connection.execute(statement, params).fetchall()
        connection.close()
        return rows

    return execute


# -- S1 ----------------------------------------------------------------------------------------------------------


def test_pickle_needs_both_permission_and_a_key(make_app: MakeApp, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    with pytest.raises(TypeError):
        make_app(f"sqlite:///{tmp_path}/jobs.db").task(same).enqueue(Touch(trap))
    for url in ("redis://localhost:1/0", "postgresql://localhost:1/x"):
        app = make_app(url, allow_pickle=True)
        with pytest.raises(ConfigurationError, match="needs a key"):
            app.start(work=True)
        with pytest.raises(ConfigurationError, match="needs a key"):
            app.task(same).enqueue(1)
    assert not trap.exists()


def test_a_pickle_written_into_the_store_is_never_opened(
    make_app: MakeApp, tmp_path: Path, database: Path, sql: Any
) -> None:
    trap = tmp_path / "trap"
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    handles = [app.task(same).enqueue(number) for number in range(3)]
    body = pickle.dumps(Touch(trap))
    forged = [body, seal(body, PICKLED, "x", None), seal(body, PICKLED, "x", Keyring([OLD]))]
    for handle, frame in zip(handles, forged, strict=True):
        sql("UPDATE mainspring_runs SET payload = ? WHERE id = ?", frame, handle.id)
    app.start(work=True)
    assert {view.status for view in app.wait(handles, LIMIT)} == {Status.BROKEN}
    assert not trap.exists()


@pytest.mark.parametrize("flags", [0, PICKLED])
def test_a_worker_without_a_key_opens_no_pickle(
    make_app: MakeApp, tmp_path: Path, redis_server: Redis, flags: int
) -> None:
    trap = tmp_path / "trap"
    app = make_app(redis_server.url, name=f"pickles{flags}")
    task, now = app.task(name="same")(same), app.now()
    attack = ormsgpack.Ext(Code.PICKLE, pickle.dumps(Touch(trap)))
    bodies = [attack, [attack], {"f": "same", "a": [attack], "k": {}, "n": "same"}]
    frames = [pickle.dumps(Touch(trap)), *(seal(ormsgpack.packb(body), flags, "", None) for body in bodies)]
    forged = [
        Run(id=f"forged{number}", call=Call("same", frame=frame), created_at=now, run_at=now)
        for number, frame in enumerate(frames)
    ]
    app.store.add_runs(forged)
    app.start(work=True)
    assert {view.status for view in app.wait([run.id for run in forged], LIMIT)} == {Status.BROKEN}
    assert task.enqueue(1).result(timeout=LIMIT) == 1
    assert not trap.exists()


def test_where_pickle_is_allowed_it_travels_under_a_signature(make_app: MakeApp, database: Path) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY, allow_pickle=True)
    app.start(work=True)
    assert app.task(same).enqueue(complex(1, 2)).result(timeout=LIMIT) == complex(1, 2)


# -- S2 ----------------------------------------------------------------------------------------------------------


def flips(frame: bytes) -> Iterator[bytes]:
    for place in range(len(frame)):
        for bit in range(8):
            yield frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was parsed or decompressed."""
    seen: list[str] = []

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return call(*args, **kwargs)

        return noted

    monkeypatch.setattr(ormsgpack, "unpackb", noting("parsed", ormsgpack.unpackb))
    monkeypatch.setattr(zlib, "decompressobj", noting("decompressed", zlib.decompressobj))
    return seen


@pytest.mark.parametrize("value", ["x" * 50, "all work and no play " * 120], ids=["plain", "compressed"])
def test_no_flipped_bit_of_a_stored_call_or_job_reaches_the_parser(
    make_app: MakeApp, database: Path, looks: list[str], value: str
) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    record = app.task(same).enqueue(value).fetch().record
    packer = app.store._packer  # type: ignore[attr-defined]
    run_row, job_row = packer.run_row(record), packer.job_row(Job("job", record.call, DateTrigger()))
    looks.clear()
    for bad in flips(run_row.call):
        shown = packer.shown(replace(run_row, call=bad))
        assert (shown.call.func, bool(shown.reason)) == ("", True)
    for bad in flips(job_row.frame):
        with pytest.raises(FrameError):
            packer.job(replace(job_row, frame=bad))
    assert looks == []
    assert packer.shown(run_row).args == packer.job(job_row).call.args == (value,)
    assert set(looks) == ({"parsed"} if len(value) == 50 else {"parsed", "decompressed"})


def test_signatures_are_compared_whole_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noting(ours: bytes, theirs: bytes) -> bool:
        compared.append((len(ours), len(theirs)))
        return compare(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    codec = Codec(Keyring([KEY]))
    frame = codec.dumps("value", "run:x")
    for bad in flips(frame[12:44]):
        with pytest.raises(FrameError, match="signature"):
            codec.loads(frame[:12] + bad + frame[44:], "run:x")
    assert compared == [(32, 32)] * 256


# -- S3 ----------------------------------------------------------------------------------------------------------


def broken(app: Mainspring, *run_ids: str) -> None:
    """See that runs are set aside for their signature."""
    for view in app.wait(run_ids, LIMIT):
        assert (view.status, "bad_signature" in str(view.reason)) == (Status.BROKEN, True)


def test_the_calls_of_two_runs_cannot_be_swapped(make_app: MakeApp, database: Path, sql: Any) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    one, other = app.task(same).enqueue("one"), app.task(shout).enqueue("other")
    frames = dict(sql("SELECT id, payload FROM mainspring_runs"))
    sql("UPDATE mainspring_runs SET payload = ? WHERE id = ?", frames[other.id], one.id)
    app.start(work=True)
    broken(app, one.id)
    assert other.result(timeout=LIMIT) == "OTHER"


def test_a_run_cannot_be_moved_to_the_worker_of_another_queue(make_app: MakeApp, database: Path, sql: Any) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    task = app.task(queue="public")(same)
    app.add_job(task, "interval", hours=1, args=[1], id="job")
    direct, fired = task.enqueue(1), app.run_now("job")
    untouched = task.options(queue="admin").enqueue(2)
    sql("UPDATE mainspring_runs SET queue = 'admin'")
    app.start(work=True, queues=["admin"])
    broken(app, direct.id, fired.id)
    assert untouched.result(timeout=LIMIT) == 2


def test_a_run_cannot_be_moved_to_another_queue_in_redis(make_app: MakeApp, redis_server: Redis) -> None:
    app = make_app(redis_server.url, name="moved", secret_key=KEY)
    handle = app.task(queue="public")(same).enqueue(1)
    record = handle.fetch().record
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushdb()
    app.close()
    # With its frame, as somebody who can write to the store would put it there.
    moved = make_app(redis_server.url, name="moved", secret_key=KEY)
    moved.task(queue="public")(same)
    moved.store.add_runs([replace(record, queue="admin")])
    moved.start(work=True, queues=["admin"])
    broken(moved, handle.id)


def test_the_job_of_one_id_cannot_become_that_of_another(make_app: MakeApp, database: Path, sql: Any) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    app.add_job(same, "interval", hours=1, args=["harmless"], id="one")
    app.add_job(same, "interval", hours=1, args=["dangerous"], id="other")
    frames = dict(sql("SELECT id, frame FROM mainspring_jobs"))
    sql("UPDATE mainspring_jobs SET frame = ? WHERE id = 'one'", frames["other"])
    assert [job.id for job in app.jobs()] == ["other"]
    assert ["bad_signature" in str(each.reason) for each in app.broken()] == [True]


def test_a_result_cannot_be_forged_nor_moved(make_app: MakeApp, database: Path, sql: Any) -> None:
    app = make_app(f"sqlite:///{database}", secret_key=KEY)
    app.start(work=True)
    one, other = app.task(same).enqueue("one"), app.task(shout).enqueue("other")
    app.wait([one, other], LIMIT)
    app.stop()
    states = dict(sql("SELECT id, state FROM mainspring_runs"))
    sql("UPDATE mainspring_runs SET state = ? WHERE id = ?", states[other.id], one.id)
    assert "signature" in str(one.fetch().reason)
    unsigned = ormsgpack.packb([None, None, None, None, 0, 0, 0, None, 1, None, "forged", None, None])
    sql("UPDATE mainspring_runs SET state = ? WHERE id = ?", unsigned, one.id)
    view = one.fetch()
    assert (view.result, "not signed" in str(view.reason)) == (None, True)


# -- S4 ----------------------------------------------------------------------------------------------------------


@LASTING
def test_keys_are_rotated_and_nothing_is_lost(url: str, make_app: MakeApp) -> None:
    name = "rotated"
    steps: list[list[str]] = [[OLD], [OLD, KEY], [KEY, OLD], [KEY]]
    ids: list[str] = []
    for keys in steps:
        app = make_app(url, name=name, secret_key=keys)
        task = app.task(same)
        app.start(work=True)
        handles = app.enqueue_many(task.call(number) for number in range(50))
        ids += [handle.id for handle in handles]
        app.wait(handles, LIMIT)
        frame = handles[0].fetch().record.call.frame
        assert frame is not None
        assert Keyring.key_id(keys[0]) in frame
        app.close()
    last = make_app(url, name=name, secret_key=[KEY, OLD])
    assert {view.status for view in last.wait(ids, LIMIT)} == {Status.SUCCEEDED}
    assert last.broken() == []


@LASTING
def test_keys_are_rotated_while_others_still_sign_with_the_old_one(url: str, make_app: MakeApp) -> None:
    """Two nodes, restarted one after the other at every step, always with work of both under way."""
    ids: list[str] = []
    for old, new in pairwise([[OLD], [OLD, KEY], [KEY, OLD]]):
        apps = [make_app(url, name="rolling", secret_key=keys) for keys in (old, new)]
        for app in apps:
            app.task(same)
        handles = [app.enqueue_many(app.task(same).call(n) for n in range(20)) for app in apps]
        for app in apps:
            app.start(work=True)
        for app, sent, keys in zip(apps, handles, (old, new), strict=True):
            ids += [handle.id for handle in sent]
            assert {view.status for view in app.wait(sent, LIMIT)} == {Status.SUCCEEDED}
            frame = sent[0].fetch().record.call.frame
            assert frame is not None
            assert frame[8:12] == Keyring.key_id(keys[0])
        for app in apps:
            app.close()
    last = make_app(url, name="rolling", secret_key=[KEY, OLD])
    assert [view.status for view in last.wait(ids, LIMIT)] == [Status.SUCCEEDED] * 80
    assert last.broken() == []


# -- S5 ----------------------------------------------------------------------------------------------------------
# With a key, what a signed run names may be imported: whoever holds the key is trusted. Without one only registered
# tasks are executed, whatever the store says.


def test_without_a_key_a_worker_imports_nothing_that_the_store_names(
    make_app: MakeApp, redis_server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'trap')!r}, 'w')\ndef call(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = make_app(redis_server.url, name="keyless")
    now = app.now()
    names = [
        "os:system",
        "subprocess:Popen",
        "planted:call",
        "builtins:eval",
        "tests.security.test_trust:same.__globals__",
    ]
    runs = [Run(id=name, call=Call(name, ("true",)), created_at=now, run_at=now) for name in names]
    app.store.add_runs(runs)
    good = app.task(same).enqueue(1)
    app.start(work=True)
    assert good.result(timeout=LIMIT) == 1
    deadline = time.monotonic() + LIMIT
    assert app.node is not None
    while len(app.node.missing) < len(names):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert {view.status for view in app.find(queue="default") if view.id != good.id} == {Status.PENDING}
    assert not (tmp_path / "trap").exists()
    assert "planted" not in sys.modules
    for name in names:
        with pytest.raises(TaskNotFound):
            app.enqueue(name)


def test_with_a_key_an_unsigned_run_is_set_aside_unread(make_app: MakeApp, redis_server: Redis) -> None:
    enemy = make_app(redis_server.url, name="signed")
    now = enemy.now()
    enemy.store.add_runs([Run(id="enemy", call=Call("os:system", ("true",)), created_at=now, run_at=now)])
    app = make_app(redis_server.url, name="signed", secret_key=KEY)
    app.start(work=True)
    (view,) = app.wait(["enemy"], LIMIT)
    assert (view.status, view.attempt, "unsigned" in str(view.reason)) == (Status.BROKEN, 1, True)


def test_exception_types_are_compared_by_name_and_never_imported(
    make_app: MakeApp, redis_server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_error.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = make_app(redis_server.url, name="errors")
    planted = type("Error", (Exception,), {"__module__": "planted_error"})

    @app.task(retries=3, backoff=[0], retry_on=["planted_error:Error"])
    def fail(kind: str) -> None:
        raise planted if kind == "planted" else ValueError

    app.start(work=True)
    for kind, starts in [("planted", 4), ("other", 1)]:
        handle = fail.enqueue(kind)
        with pytest.raises(RunFailed):
            handle.result(timeout=LIMIT)
        assert len(handle.fetch().errors) == starts
    assert "planted_error" not in sys.modules


# -- S24: tests/security/test_replay.py has the verbs of every store; this is a whole app ------------------------


@LASTING
def test_a_captured_run_does_not_run_again(app: Mainspring) -> None:
    calls: list[int] = []
    lock = threading.Lock()

    @app.task
    def pay(amount: int) -> None:
        with lock:
            calls.append(amount)

    captured = pay.enqueue(100).fetch().record
    app.start(work=True)
    app.wait([captured.id], LIMIT)
    app.store.add_runs([captured])
    assert app.get(captured.id).status is Status.SUCCEEDED
    assert app.delete(captured.id)
    app.store.add_runs([captured])
    assert app.count() == 0
    app.store.shift_clock(3000)
    app.store.add_runs([captured])
    pay.enqueue(1).result(timeout=LIMIT)
    assert calls == [100, 1]


@LOCAL
def test_a_finished_run_is_not_claimed_whatever_its_lease_says(app: Mainspring) -> None:
    handle = app.task(same).enqueue(1)
    app.start(work=True)
    handle.result(timeout=LIMIT)
    app.stop()
    app.store.shift_clock(100_000)
    assert lapsed(app.store) == []
    assert app.store.claim([(["default"], 10)], node="n", token="t", lease=1.0).runs == []


def test_the_codec_of_a_worker_without_a_key_opens_no_signed_frame() -> None:
    frame = Codec(Keyring([KEY])).dumps([1], "run:default:x")
    with pytest.raises(ValueError, match="no key is set here"):
        Codec().loads(frame, "run:default:x")
