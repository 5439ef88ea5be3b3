"""What the Redis store does with many queues, many delayed runs, silent nodes, and records that would not fit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis
from redis.exceptions import ResponseError

from mainspring.core.run import Run, Status
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.base import NodeInfo, RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.redis.store import REDIS_SCHEMA
from mainspring.testing.conformance.helpers import (
    add_after,
    add_job,
    add_run,
    claim,
    current,
    make_run,
    new_token,
    settle,
    start,
    stored,
    succeed,
)

MakeStore = Callable[..., RedisJobStore]
YEAR = 365 * 86400


def _runs(store: RedisJobStore, number: int, **fields: Any) -> list[Run]:
    """Make many runs that differ by their ids and what is said of them."""
    first = make_run(store, **fields)
    return [msgspec.structs.replace(first, id=f"{first.id}.{index}") for index in range(number)]


def _calls(client: redis.Redis) -> int:
    """Count the commands that the server has executed, those of scripts too."""
    return sum(int(stats["calls"]) for stats in client.info("commandstats").values())


# -- queues -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
@pytest.mark.parametrize("shards", [1, 2])
def test_many_queues_give_the_most_urgent_runs_of_all(make_store: MakeStore, limit: int, shards: int) -> None:
    store = make_store(shards=shards)
    chance = random.Random(1)
    queues = [f"queue-{number}" for number in range(60)]
    first = make_run(store)
    runs = [
        msgspec.structs.replace(
            first, id=f"run-{index}", queue=chance.choice(queues[:40]), priority=chance.randrange(3), run_at=index + 1
        )
        for index in range(400)
    ]
    store.add_runs(chance.sample(runs, len(runs)))
    expected = [run.id for run in sorted(runs, key=lambda run: (-run.priority, run.run_at))]
    found = []
    while some := claim(store, *queues, limit=limit):
        found += [run.id for run in some]
        assert len(found) == len(expected) or len(some) == limit
    assert found == expected


def test_empty_queues_are_not_looked_into(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store()
    queues = [f"queue-{number}" for number in range(1000)]
    add_run(store, queue=queues[500])
    claim(store, "other")
    before = _calls(client)
    assert len(claim(store, *queues)) == 1
    assert _calls(client) - before < 50


def test_a_claim_says_that_more_is_due_in_any_of_its_queues(make_store: MakeStore) -> None:
    store = make_store()
    for queue in ("a", "b", "c"):
        add_run(store, queue=queue)
    told = [store.claim([("abc", 1)], node="node", token=new_token(), lease=60.0) for _ in range(4)]
    assert [page.next_at for page in told] == [told[0].now, told[1].now, None, None]


def _content(client: redis.Redis, prefix: str) -> dict[str, Any]:
    """Read all keys of a shard but the limits, without what differs between two stores: when a run was claimed."""
    found: dict[str, Any] = {}
    for key in sorted(client.scan_iter(f"{prefix}*")):
        name = key.decode().removeprefix(prefix)
        kind = client.type(key)
        if kind == b"hash":
            found[name] = client.hgetall(key)
        elif kind == b"zset":
            found[name] = client.zrange(key, 0, -1)
        elif kind == b"set":
            found[name] = client.smembers(key)
        if name == "r:run":
            found[name][b"a"] = found[name][b"a"].split()[0]
    for name in ("limits", "meta"):
        found.pop(name, None)
    return found


@pytest.mark.parametrize("fields", [{}, {"group": "g"}, {"priority": 5}, {"unique": ">key"}])
def test_a_lone_run_is_claimed_the_same_way_as_one_of_many(
    make_store: MakeStore, client: redis.Redis, fields: dict[str, Any]
) -> None:
    stores = [make_store("lone"), make_store("full")]
    stores[1].set_gate("queue:other", 5)  # so that a claim looks at limits, too
    run = make_run(stores[0], "run", **fields)
    claims = []
    for store in stores:
        store.add_runs([run])
        wants = [(["mail"], 3), (["default", "default:async"], 2)]
        claims.append(store.claim(wants, node="node", token="token", lease=60.0))
        assert store.claim(wants, node="node", token="next", lease=60.0).runs == []
    lone, full = [found.runs[0] for found in claims]
    assert None not in (lone.lease_until, full.lease_until)
    assert lone == msgspec.structs.replace(full, lease_until=lone.lease_until, started_at=lone.started_at)
    assert [found.next_at for found in claims] == [None, None]
    lone_keys, full_keys = (_content(client, store._shards.all[0].prefix) for store in stores)
    assert lone_keys == full_keys


def test_a_queue_that_is_done_leaves_no_count_behind(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("tidy")
    run = start(store)
    assert settle(store, succeed(store, run))
    assert client.hgetall("{tidy:0}:totals") == {b"succeeded:default": b"1"}
    assert store.delete_runs([run.id]) == 1
    assert client.hgetall("{tidy:0}:totals") == {}


def test_a_member_of_a_queue_that_was_altered_does_not_keep_the_server_busy(
    make_store: MakeStore, client: redis.Redis
) -> None:
    store = make_store("busy")
    add_run(store, "sound", priority=-5)
    for member in (b"500000\xb1017", b"500000\xff\xff", b"\xff", b"0x1f00"):
        client.zadd("{busy:0}:w:default", {member + b"1" * 60: 0})
    assert [queue.waiting for queue in store.stats().queues] == [5]
    assert [run.id for run in claim(store)] == ["sound"]


# -- delayed runs ----------------------------------------------------------------------------------------------------


def test_thousands_that_come_due_at_once_are_claimed_bit_by_bit_and_none_is_lost(make_store: MakeStore) -> None:
    store = make_store()
    store.add_runs(_runs(store, 4500, due_in=100))
    assert [(queue.waiting, queue.delayed) for queue in store.stats().queues] == [(0, 4500)]
    store.shift_clock(200)
    assert [(queue.waiting, queue.delayed) for queue in store.stats().queues] == [(4500, 0)]
    ids, page = [], None
    while page is None or page.runs:
        assert page is None or page.next_at == (page.now if len(ids) < 4500 else None)
        page = store.claim([(["default"], 1000)], node="node", token=new_token(), lease=60.0)
        ids += [run.id for run in page.runs]
    assert len(set(ids)) == len(ids) == 4500


def test_one_claim_moves_a_bounded_number_of_delayed_runs(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("much")
    store.add_runs([*_runs(store, 3000, due_in=100), *_runs(store, 3000, due_in=100, queue="other")])
    store.shift_clock(200)
    page = store.claim([(["default", "other"], 1)], node="node", token="token", lease=60.0)
    assert (len(page.runs), page.next_at) == (1, page.now)
    assert client.zcard("{much:0}:d:default") == client.zcard("{much:0}:d:other") == 2000
    assert {(queue.waiting, queue.delayed, queue.running) for queue in store.stats().queues} == {
        (2999, 0, 1),
        (3000, 0, 0),
    }


# -- nodes -----------------------------------------------------------------------------------------------------------


def test_nodes_that_fell_silent_are_forgotten_though_nobody_asks(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("quiet")
    for number in range(150):
        store.beat(NodeInfo(id=f"killed-{number}", host="host", pid=1, started_at=0), ttl=5)
    store.shift_clock(10)
    living = NodeInfo(id="living", host="host", pid=2, started_at=0)
    store.beat(living, ttl=5)
    assert client.hlen("{quiet:0}:nodes") == 51  # some at a time
    assert [node.id for node in store.nodes()] == ["living"]
    store.beat(living, ttl=5)
    assert client.hkeys("{quiet:0}:nodes") == [b"living"]
    for key in ("node_beats", "node_ends"):
        assert client.zrange(f"{{quiet:0}}:{key}", 0, -1) == [b"living"]


# -- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [10**18, -(10**17) - 1])
def test_a_time_beyond_all_years_is_refused_and_nothing_is_stored(make_store: MakeStore, at: int) -> None:
    store = make_store()
    with pytest.raises(ValueError, match="years 1 to 9999"):
        add_run(store, run_at=at)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        add_job(store, at=at)
    assert (store.stats(RunQuery()).matching, store.get_all_jobs()) == (0, [])


@pytest.mark.parametrize("wrong", ["created", "urgency"])
@pytest.mark.parametrize("script", ["add_run", "add_runs"])
def test_a_script_refuses_a_run_of_another_layout(make_store: MakeStore, script: str, wrong: str) -> None:
    store = make_store()
    add_run(store, "known")
    created = "1" * (17 if wrong == "created" else 18)
    urgency = "5" * (23 if wrong == "urgency" else 24)
    run: list[Any] = ["run", "call", "pending", "default", created, "0 0 0", urgency, 0]
    args = run if script == "add_run" else [[run]]
    with pytest.raises(ResponseError, match="width"):
        store._call(store._shards.all[0], script, args)
    assert [run.id for run in claim(store)] == ["known"]
    assert store.stats(RunQuery()).matching == 1


def test_a_script_refuses_an_outcome_of_another_layout(make_store: MakeStore) -> None:
    store = make_store()
    run = start(store)
    more = {"urgency": "5" * 23, "run_at": 0, "attempts": "1", "node": ""}
    outcome = [run.id, "held", run.token, "pending", "default", "0 0 0", 0, "", more]
    with pytest.raises(ResponseError, match="width"):
        store._call(store._shards.all[0], "settle", [[outcome]])
    assert current(store, run) == run


def test_scripts_refuse_times_of_another_layout(make_store: MakeStore) -> None:
    store = make_store()
    job = add_job(store)
    version, times, shard = f"{job.version:016d}", "1" * 34, store._shards.all[0]
    calls: dict[str, list[Any]] = {
        "add_jobs": [False, [["other", 1, times, "frame"]]],
        "update_job": ["job", version, 1, times, "frame"],
        "fire": [0, [["job", version, "1", times, [], [], "", False]]],
    }
    for script, args in calls.items():
        with pytest.raises(ResponseError, match="width"):
            store._call(shard, script, args)
    assert (stored(store).version, stored(store).at, len(store.get_all_jobs())) == (job.version, job.at, 1)


def test_a_server_whose_clock_is_too_far_ahead_for_its_numbers_is_refused(make_store: MakeStore) -> None:
    store = make_store()
    store.shift_clock(300 * YEAR)
    with pytest.raises(ResponseError, match="beyond the year 2255"):
        add_job(store)


@pytest.mark.parametrize(
    ("schema", "error", "complaint"),
    [
        (REDIS_SCHEMA - 1, ConfigurationError, f"has schema {REDIS_SCHEMA - 1}.*choose another name"),
        (REDIS_SCHEMA + 1, StoreUnavailable, f"has schema {REDIS_SCHEMA + 1}.*upgrade"),
    ],
)
def test_a_store_of_another_schema_is_not_opened(
    make_store: MakeStore, client: redis.Redis, schema: int, error: type[Exception], complaint: str
) -> None:
    client.hset("{old:0}:meta", mapping={"schema": schema, "shards": 1})
    with pytest.raises(error, match=complaint):
        add_run(make_store("old"))
    assert client.keys() == [b"{old:0}:meta"]


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, Status.BLOCKED, Status.MISSED])
def test_few_unfinished_runs_are_found_without_a_look_at_those_that_ended(
    make_store: MakeStore, client: redis.Redis, status: Status
) -> None:
    store = make_store()
    now = store.beat()
    held = start(store, created_at=now - 10_000)
    add_after(store, held, created_at=now - 9000)
    add_run(store, due_in=99.0, created_at=now - 8000)
    ended = _runs(store, 3000, status=Status.SUCCEEDED, started_at=now - 5, finished_at=now)
    store.add_runs(ended)
    before = _calls(client)
    found = store.find_runs(RunQuery(status=(status,)))
    assert _calls(client) - before < 60
    assert [run.status for run in found] == [status] * (status is not Status.MISSED)
