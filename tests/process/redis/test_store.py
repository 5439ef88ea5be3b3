"""The Redis store as one process sees its server: names, errors, restarts, scripts that are gone."""

from __future__ import annotations

import logging
import pickle
import socket
import socketserver
import threading
from collections.abc import Callable

import pytest
import redis
from msgspec.structs import replace

from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Status
from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.redis import RedisJobStore
from mainspring.testing.conformance.helpers import (
    CALL,
    LEASE,
    add_job,
    add_run,
    claim,
    current,
    due_one,
    fire,
    make_run,
    settle,
    start,
    stored,
    succeed,
)
from mainspring.triggers.interval import IntervalTrigger
from tests.servers import Redis, Server

StartServer = Callable[[type[Server]], Server]
ODD_NAMES = ("a", "a:0", "a}", "{a", "{a:0}:", "a*", "a\nb", "ä日本", "a%7D", " ")


MakeStore = Callable[..., RedisJobStore]

# -- names -----------------------------------------------------------------------------------------------------------


def test_stores_of_different_names_do_not_see_each_other(make_store: MakeStore) -> None:
    stores = [make_store(name, shards=2) for name in ODD_NAMES]
    for number, store in enumerate(stores):
        add_job(store, max_instances=number + 1)
        add_run(store, "run", priority=number)
    assert [stored(store).max_instances for store in stores] == [number + 1 for number in range(len(stores))]
    for number, store in enumerate(stores):
        [run] = claim(store)
        assert run.priority == number
        store.remove_all_jobs()
    assert [store.stats(RunQuery()).matching for store in stores] == [1] * len(stores)


def test_every_key_of_a_shard_has_its_hash_tag_and_no_other_key_is_touched(
    make_store: MakeStore, client: redis.Redis
) -> None:
    foreign = {b"apscheduler.jobs": b"x", b"{a:0}": b"x", b"jobs": b"x"}
    for key, value in foreign.items():
        client.set(key, value)
    store = make_store("a", shards=2)
    for number in range(8):
        odd = f"{{b:{number}}}:*\n}}{{"
        add_job(store, odd)
        assert fire(store, due_one(store, odd)) is not None
        add_run(store, f"{odd}@x", queue=odd, group=odd, unique=odd)
        [run] = claim(store, odd, token=odd)
        assert settle(store, succeed(store, run))
        store.set_gate(f"queue:{odd}", 0)
    written = set(client.keys()) - set(foreign)
    assert written
    assert {key[:6] for key in written} == {b"{a:0}:", b"{a:1}:"}
    assert {key: client.get(key) for key in foreign} == foreign


def test_keys_of_the_users_choice_are_used(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("own", jobs_key="my.jobs", run_times_key="my.times")
    job = add_job(store)
    assert client.hkeys("my.jobs") == [b"job"]
    assert client.zrange("my.times", 0, -1, withscores=True) == [(b"job", job.at)]
    assert stored(store).at == job.at


def test_stores_kept_apart_by_their_keys_alone_share_nothing(make_store: MakeStore, client: redis.Redis) -> None:
    chosen = [("a.jobs", "a.times"), ("b.jobs", "b.times"), ("c.jobs", None), (None, "d.times"), (None, None)]
    chosen += [("e:f", "g"), ("e", "f:g"), ("e/f", "h"), ("{e}", "%7Be%7D")]
    stores = [make_store("one", jobs_key=jobs, run_times_key=times) for jobs, times in chosen]
    for number, store in enumerate(stores):
        add_job(store, max_instances=number + 1)
        add_run(store, "run", priority=number)
    assert [[job.max_instances for job in store.get_all_jobs()] for store in stores] == [
        [number + 1] for number in range(len(stores))
    ]
    assert [store.get_jobs(broken=True).broken for store in stores] == [[]] * len(stores)
    for number, store in enumerate(stores):
        [run] = claim(store)
        assert run.priority == number
        store.remove_all_jobs()
        assert store.stats(RunQuery()).matching == 1


def test_keys_that_are_named_as_they_are_by_default_are_those_of_the_store_itself(make_store: MakeStore) -> None:
    plain = make_store("one")
    add_job(plain)
    named = make_store("one", jobs_key=plain.jobs_key, run_times_key=plain.run_times_key)
    assert stored(named).id == "job"
    half = make_store("one", jobs_key=plain.jobs_key)
    assert stored(half).id == "job"


@pytest.mark.parametrize(
    ("jobs_key", "run_times_key", "taken"), [("a.jobs", "b.times", "a.jobs"), ("b.jobs", "a.times", "a.times")]
)
def test_a_key_of_another_store_is_refused(
    make_store: MakeStore, client: redis.Redis, jobs_key: str, run_times_key: str, taken: str
) -> None:
    first = make_store("one", jobs_key="a.jobs", run_times_key="a.times")
    first.get_all_jobs()
    second = make_store("one", jobs_key=jobs_key, run_times_key=run_times_key)
    with pytest.raises(ConfigurationError, match=f"the key '{taken}' .* belongs to another store"):
        second.get_all_jobs()
    add_job(first)
    client.delete("a.jobs:owner", "a.times:owner", "a.jobs", "a.times")
    add_job(second)


def test_data_that_mainspring_did_not_write_is_not_opened(make_store: MakeStore, client: redis.Redis) -> None:
    client.hset("apscheduler.jobs", "job", b"\x80\x04pickle")
    store = make_store(jobs_key="apscheduler.jobs", run_times_key="apscheduler.run_times")
    with pytest.raises(ConfigurationError, match=r"apscheduler\.jobs.*did not write"):
        store.get_all_jobs()
    assert client.hgetall("apscheduler.jobs") == {b"job": b"\x80\x04pickle"}


def test_data_of_apscheduler_is_left_alone_and_reported(
    make_store: MakeStore, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.hset("apscheduler.jobs", "job", b"\x80\x04pickle")
    with caplog.at_level(logging.WARNING):
        make_store().start(None, "default")
    assert "mainspring import" in caplog.text
    assert client.hgetall("apscheduler.jobs") == {b"job": b"\x80\x04pickle"}


# -- settings --------------------------------------------------------------------------------------------------------


def test_the_number_of_shards_cannot_be_changed(make_store: MakeStore) -> None:
    add_job(make_store("fixed", shards=2))
    with pytest.raises(ConfigurationError, match="shards=2, not shards=3"):
        make_store("fixed", shards=3).get_all_jobs()
    assert [job.id for job in make_store("fixed", shards=2).get_all_jobs()] == ["job"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"shards": 2, "jobs_key": "jobs"}, "hash tag"),
        ({"jobs_key": "same", "run_times_key": "same"}, "both 'same'"),
        ({"shards": 0}, "shards must be a whole number of at least 1"),
        ({"name": ""}, "name is empty"),
        ({"url": "http://localhost"}, "not a Redis URL"),
        ({"client": redis.Redis(decode_responses=True)}, "decode_responses=False"),
        ({"client": redis.Redis(), "host": "other"}, "'host' would not be used"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        RedisJobStore(**options)  # type: ignore[arg-type]


def test_making_a_store_opens_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        RedisJobStore(host="127.0.0.1", port=listener.getsockname()[1])
        open_store(f"redis://127.0.0.1:{listener.getsockname()[1]}/0")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_client_of_the_users_is_used(redis_server: Redis, client: redis.Redis) -> None:
    store = RedisJobStore(client=client, name="mine")
    add_job(store)
    assert [job.id for job in store.get_all_jobs()] == ["job"]


def test_the_newest_finished_runs_are_kept_up_to_a_number(make_store: MakeStore) -> None:
    store = make_store(keep_runs=3)
    runs = [start(store, policy=Policy()) for _ in range(5)]
    for run in runs:
        assert settle(store, succeed(store, run))
    assert store.prune() == 2
    assert [run and run.id for run in store.get_runs([run.id for run in runs])] == [
        None,
        None,
        *(run.id for run in runs[2:]),
    ]


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x91\x01", b"\x90" * 40])
@pytest.mark.parametrize("field", ["s", "m"])
def test_a_damaged_record_stops_nobody_else(
    make_store: MakeStore, client: redis.Redis, field: str, damage: bytes
) -> None:
    store = make_store("hurt")
    for number in range(3):
        add_job(store, f"job-{number}", due_in=-10 + number)
        add_run(store, f"run-{number}", due_in=-10 + number)
    client.hset("{hurt:0}:r:run-0", field, damage)
    client.hset("{hurt:0}:job_states", "job-0", damage)
    assert [due.job.id for due in store.due(10, 0).jobs] == ["job-1", "job-2"]
    assert [job.id for job in store.get_all_jobs()] == ["job-1", "job-2"]
    assert [run.id for run in claim(store)] == ["run-1", "run-2"]
    assert store.add_runs([make_run(store, "run-0")]) == ["run-0"]
    assert claim(store) == []
    assert store.stats(RunQuery(status=(Status.RUNNING,))).matching == 2
    [run] = store.get_runs(["run-0"])
    assert run is not None
    assert (run.status, "was altered" in str(run.reason)) == (Status.BROKEN, True)
    assert damage in bytes(client.hget("{hurt:0}:states", "run-0") or b"")  # type: ignore[arg-type]
    [job] = store.get_jobs(broken=True).broken
    assert (job.id, "was altered" in job.reason) == ("job-0", True)
    assert client.hvals("{hurt:0}:broken_states") == [damage]


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_a_password_is_never_shown(redis_server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cr3t"
    urls = [
        f"redis://:{secret}@127.0.0.1:{redis_server.port}/0",  # a password where none is wanted
        f"redis://user:{secret}@127.0.0.1:1/0",
    ]
    for url in urls:
        store = RedisJobStore(url=url)
        assert secret not in repr(store)
        with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnavailable) as caught:
            store.get_all_jobs()
        assert secret not in str(caught.value)
        assert secret not in repr(pickle.loads(pickle.dumps(caught.value)))
    with pytest.raises(ConfigurationError) as refused:
        RedisJobStore(url=f"redis://:{secret}/x@host/0")
    assert secret not in str(refused.value)
    assert refused.value.__suppress_context__
    assert secret not in caplog.text


# -- outages ---------------------------------------------------------------------------------------------------------


def test_scripts_that_were_flushed_are_loaded_again(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store()
    add_job(store)
    client.script_flush()
    assert fire(store, due_one(store)) is not None
    client.script_flush()
    [run] = claim(store)
    client.script_flush()
    assert settle(store, succeed(store, run))
    assert current(store, run).status is Status.SUCCEEDED


def test_a_server_that_is_away_is_unavailable_and_the_first_call_after_it_is_back_works(
    start_server: StartServer,
) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    add_job(store)
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        store.add_job(_paused_job("other"))
    assert not isinstance(caught.value, OutcomeUnknown)
    server.restart()
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    store.shutdown()


def test_a_restart_between_two_calls_is_not_noticed(start_server: StartServer) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    add_job(store)
    server.restart()
    add_job(store, "other")
    assert sorted(job.id for job in store.get_all_jobs()) == ["job", "other"]
    store.shutdown()


def test_a_sleeper_survives_a_restart(start_server: StartServer) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    cursor = store.wait(0, 0.01)
    server.restart()
    add_run(store)
    seen = store.wait(cursor, 60)
    assert seen != cursor
    cursor = seen
    woken: list[int] = []
    sleeper = threading.Thread(target=lambda: woken.append(store.wait(cursor, 60)))
    sleeper.start()
    add_run(store)
    sleeper.join(60)
    assert woken
    assert woken != [cursor]
    store.shutdown()


def test_a_lost_reply_is_an_unknown_outcome_for_a_write_and_an_outage_for_a_read() -> None:
    with _Deaf() as port:
        store = RedisJobStore(host="127.0.0.1", port=port, socket_timeout=2.0)  # enough for a slow machine to connect
        with pytest.raises(StoreUnavailable) as read:
            store.beat()
        assert not isinstance(read.value, OutcomeUnknown)
        store._opened = True
        with pytest.raises(OutcomeUnknown, match="repeating it is safe"):
            store.set_gate("queue:default", 0)
        store.shutdown()


def test_a_read_only_replica_is_named_as_such(start_server: StartServer) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    add_job(store)
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match=r"read-only replica|lost its primary"):
            store.add_job(_paused_job("other"))
        client.replicaof("NO", "ONE")
    add_job(store, "other")
    store.shutdown()


def test_a_full_server_is_named_as_such(start_server: StartServer) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    add_job(store)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.add_job(_paused_job("other"))
        client.config_set("maxmemory", "0")
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    assert store.add_runs([make_run(store, "run")]) == ["run"]
    assert [run.id for run in claim(store, lease=LEASE)] == ["run"]
    store.shutdown()


def test_a_follow_up_for_another_shard_arrives_though_its_sender_fails(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(shards=2)
    followers = [make_run(store, f"follower-{n}", queue="other") for n in range(8)]
    parent = start(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_add_run_rows", _unavailable)
        assert settle(store, replace(succeed(store, parent), then=tuple(followers)))
    arrived = [run.id for run in claim(store, "other")]
    assert 0 < len(arrived) < 8
    store.prune()
    assert claim(store, "other") == []  # it may still be on its way
    store.shift_clock(6)
    store.prune()
    arrived += [run.id for run in claim(store, "other")]
    assert sorted(arrived) == [run.id for run in followers]
    store.shift_clock(6)
    store.prune()
    assert claim(store, "other") == []


# -- the server's settings ---------------------------------------------------------------------------------------------


def test_what_the_servers_settings_put_at_stake_is_said_once(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(Redis)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
    with caplog.at_level(logging.WARNING, "mainspring.jobstores.redis"):
        for _ in range(2):
            store = RedisJobStore(url=server.url)
            store.start(None, "default")
            store.shutdown()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "allkeys-lru" in said[0]
    assert "a restart loses" in said[1]


def test_a_server_that_keeps_what_it_acknowledges_gives_no_reason_to_warn(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(Redis)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("appendonly", "yes")
    with caplog.at_level(logging.WARNING, "mainspring.jobstores.redis"):
        store = RedisJobStore(url=server.url)
        store.start(None, "default")
        store.shutdown()
    assert caplog.records == []


def test_a_server_that_is_too_old_is_refused(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store()
    monkeypatch.setattr(store._link, "info", lambda: {"here": {"redis_version": "6.0.16"}})
    with pytest.raises(ConfigurationError, match=r"6\.0\.16.*needs Valkey, or Redis 6\.2 or newer"):
        store.start(None, "default")


def test_a_user_who_may_not_ask_for_settings_can_start(start_server: StartServer) -> None:
    server = start_server(Redis)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-info", "-config")
    store = RedisJobStore(url=server.url.replace("redis://", "redis://plain:secret@"))
    store.start(None, "default")
    add_job(store)
    assert stored(store).id == "job"
    store.shutdown()


def _unavailable(rows: object) -> list[str]:
    raise StoreUnavailable("gone")


def _paused_job(job_id: str) -> Job:
    return Job(job_id, CALL, IntervalTrigger(seconds=60, timezone="UTC"), at=None)


class _DeafHandler(socketserver.BaseRequestHandler):
    """Takes what a client says while it connects, and never answers after that."""

    def handle(self) -> None:
        while said := self.request.recv(65536):
            self.request.sendall(b"+OK\r\n" * said.count(b"SETINFO"))


class _Deaf:
    def __enter__(self) -> int:
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _DeafHandler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return int(self.server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
