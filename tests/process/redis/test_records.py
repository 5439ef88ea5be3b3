"""What the Redis store keeps of runs, beyond the contract: leases, indexes, records that come and go, pinned ids."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec
import pytest
import redis

from mainspring.core.plan import Place, firing, plan
from mainspring.core.policy import Policy
from mainspring.core.run import Status
from mainspring.core.transitions import cancel, retry
from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import Hold, RunQuery
from mainspring.jobstores.redis import RedisJobStore, pin
from mainspring.testing.conformance.helpers import (
    CALL,
    LEASE,
    add_job,
    add_run,
    beat,
    cancel_all,
    claim,
    current,
    due_one,
    fail,
    fire,
    lapsed,
    make_run,
    settle,
    start,
    stop,
    stored,
    succeed,
)

MakeStore = Callable[..., RedisJobStore]
LONG = random.Random(1).randbytes(1500).hex()
"""Text that stays long when it is compressed."""


# -- leases and lists -------------------------------------------------------------------------------------------------


def test_runs_claimed_together_share_a_lease_until_one_is_extended_alone(make_store: MakeStore) -> None:
    store = make_store()
    for name in ("one", "two", "three"):
        add_run(store, name)
    one, two, three = sorted(claim(store, lease=60), key=lambda run: ["one", "two", "three"].index(run.id))
    store.shift_clock(40)
    assert store.extend([beat(one)], 60) == [Hold.HELD]
    store.shift_clock(30)
    assert {run.id for run in lapsed(store)} == {"two", "three"}
    assert len(lapsed(store, 1)) == 1
    assert store.extend([beat(one), beat(two), beat(three)], 60) == [Hold.HELD] * 3
    assert lapsed(store) == []
    assert len({run.lease_until for run in store.get_runs(["one", "two", "three"]) if run}) == 1
    store.shift_clock(40)
    assert store.extend([beat(run) for run in (one, two)], 60) == [Hold.HELD] * 2
    assert settle(store, succeed(store, three))
    store.shift_clock(30)
    assert lapsed(store) == []
    store.shift_clock(31)
    assert {run.id for run in lapsed(store)} == {"one", "two"}


def test_what_is_skipped_of_lost_runs_is_skipped_across_all_shards(make_store: MakeStore) -> None:
    store = make_store(shards=3)
    names = {add_run(store, f"run-{number}").id for number in range(30)}
    assert {run.id for _ in range(3) for run in claim(store, limit=30)} == names
    store.shift_clock(LEASE + 1)
    for _ in range(3):  # each time another shard is the first
        pages = [store._lapsed_rows(7, skip) for skip in range(0, 42, 7)]
        assert [len(page) for page in pages] == [7, 7, 7, 7, 2, 0]
        assert {row.id for page in pages for row in page} == names


def test_the_runs_of_two_fires_under_one_token_keep_their_own_leases(make_store: MakeStore) -> None:
    store = make_store()
    token = "the same"
    for name in ("first", "second"):
        add_job(store, name)
        due = due_one(store, name)
        now = store.beat()
        step = firing(due, plan(due, now), Place(".default", "node", token), now)
        assert store.fire([step], 60)[0] is not None
        store.shift_clock(40)
    assert [run.job_id for run in lapsed(store)] == ["first"]


def test_runs_are_found_among_thousands_of_others(make_store: MakeStore) -> None:
    store = make_store()
    now = store.beat()
    runs = [
        make_run(store, f"r{n:04}", created_at=now + n, queue="rare" if n % 500 == 7 else "default")
        for n in range(4500)
    ]
    store.add_runs(runs)
    claimed = {run.id: run for run in claim(store, limit=1500)}
    outcomes = []
    for n, run in enumerate(claimed.values()):
        if n % 3:
            outcomes.append(fail(store, run) if n % 300 == 1 else succeed(store, run))
    assert all(store.settle(outcomes))
    everything = {run.id: run for run in store.find_runs(RunQuery(), limit=10_000)}
    assert list(everything) == [run.id for run in reversed(runs)]
    for query in (
        *(RunQuery(status=(status,)) for status in Status),
        RunQuery(status=(Status.FAILED, Status.BROKEN)),
        RunQuery(status=(Status.PENDING, Status.FAILED)),
        RunQuery(queue="rare"),
        RunQuery(queue="default", status=(Status.RUNNING,)),
    ):
        expected = [
            run.id
            for run in everything.values()
            if (not query.status or run.status in query.status) and (query.queue in (None, run.queue))
        ]
        assert [run.id for run in store.find_runs(query, limit=10_000)] == expected
        assert store.stats(query).matching == len(expected)
        paged: list[str] = []
        last = None
        while page := store.find_runs(query, after=last, limit=max(1, len(expected) // 3)):
            paged += [run.id for run in page]
            last = page[-1]
        assert paged == expected


def test_the_runs_of_a_job_are_paged_though_the_last_of_a_page_is_deleted(make_store: MakeStore) -> None:
    store = make_store()
    now = store.beat()
    twins = ("job 24216302", "job 205989028")  # of the same checksum, by which the index is sorted
    assert crc32(twins[0].encode()) == crc32(twins[1].encode())
    for n in range(20):
        store.add_runs(
            [make_run(store, f"{job}@1@{n}", job_id=job, created_at=now + n // 3) for job in (*twins, "else")]
        )
    assert all(store.settle([succeed(store, run) for run in claim(store)]))
    for job in twins:
        expected = sorted(
            (f"{job}@1@{n}" for n in range(20)), key=lambda name: (int(name.rpartition("@")[2]) // 3, name)
        )
        found: list[str] = []
        last = None
        while page := store.find_runs(RunQuery(job_id=job), after=last, limit=3):
            found += [run.id for run in page]
            last = page[-1]
            assert store.delete_runs([last.id]) == 1
        assert found == expected[::-1]
        assert store.stats(RunQuery(job_id=job)).matching == 20 - 7


def test_more_runs_than_one_call_takes_are_claimed_in_the_order_in_which_they_were_added(make_store: MakeStore) -> None:
    store = make_store()
    now = store.beat()
    runs = [make_run(store, f"r{(n * 7919) % 2600:04}", created_at=now, run_at=now) for n in range(2600)]
    assert store.add_runs(runs) == [run.id for run in runs]
    found: list[str] = []
    while page := claim(store, limit=700):
        found += [run.id for run in page]
    assert found == [run.id for run in runs]
    assert len(store.find_runs(RunQuery(status=(Status.RUNNING,)), limit=5000)) == 2600


def test_a_bulk_that_is_refused_half_way_has_an_unknown_outcome_and_can_be_repeated(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    runs = [make_run(store, f"r{n:04}") for n in range(1000)]

    def refuse(*_: object) -> None:
        raise StoreUnavailable("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(store._link, "_streamed", refuse)
        with pytest.raises(OutcomeUnknown, match="a part was written"):
            store.add_runs(runs)
    assert 0 < store.stats(RunQuery()).matching < 1000
    assert store.add_runs(runs) == [run.id for run in runs]
    assert store.stats(RunQuery()).matching == 1000
    assert sorted(run.id for run in claim(store)) == [run.id for run in runs]


def test_a_bulk_is_added_though_the_scripts_are_flushed_meanwhile(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store()
    runs = [make_run(store, f"r{n:04}") for n in range(1000)]
    send = store._link._send_on

    def flush_and_send(connection: Any, command: bytes) -> None:
        client.script_flush()
        send(connection, command)

    store._link._send_on = flush_and_send  # type: ignore[method-assign]
    assert store.add_runs(runs) == [run.id for run in runs]
    assert store.stats(RunQuery()).matching == 1000


def test_all_pending_runs_of_a_queue_are_cancelled_whether_due_or_not(make_store: MakeStore) -> None:
    store = make_store()
    store.add_runs([make_run(store, unique=f"{n}", due_in=-10 if n < 1000 else 10) for n in range(2200)])
    assert cancel_all(store) == 2200
    assert store.stats().queues == []
    assert store.stats(RunQuery(status=(Status.CANCELLED,))).matching == 2200
    shown = store.find_runs(RunQuery(), limit=1)[0]
    assert (shown.status, shown.unique) == (Status.CANCELLED, None)
    assert shown.finished_at is not None
    assert shown.finished_at >= shown.created_at
    assert shown.args == CALL.args


def test_nothing_is_left_of_runs_that_are_deleted(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("tidy", keep_runs=0)
    add_job(store)
    assert fire(store, due_one(store)) is not None
    for n in range(4):
        add_run(store, group="group", unique=f"key-{n}", policy=Policy(retention=n * 10.0))
    later = add_run(store, due_in=100)
    runs = claim(store)
    assert store.extend([beat(run, progress=1, log=("line",)) for run in runs[:2]], LEASE) == [Hold.HELD] * 2
    assert settle(store, succeed(store, runs[0], LONG))
    assert settle(store, fail(store, runs[1], LONG))
    assert store.settle([succeed(store, run) for run in runs[2:-1]]) == [True] * (len(runs) - 3)
    assert settle(store, stop(store, runs[-1]))
    assert settle(store, cancel(current(store, later), store.beat()))
    assert store.delete_runs([runs[0].id]) == 1
    store.remove_job("job")
    store.shift_clock(31)
    assert store.prune() == len(runs)
    assert store.stats(RunQuery()).matching == 0
    left = {key.decode().partition(":0}:")[2] for key in client.keys("{tidy:0}:*")}  # type: ignore[union-attr]
    assert left <= {"meta", "versions", "sequence", "counters", "gone", "gone_since", "wake", "shift", "ends"}


def test_a_big_result_gives_way_to_a_small_one(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("big")
    run = start(store)
    assert settle(store, fail(store, run, LONG))
    assert current(store, run).errors[0].message == LONG
    assert client.hlen("{big:0}:states") == 1
    again = msgspec.structs.replace(current(store, run), errors=())
    back = retry(again, store.beat())
    assert settle(store, msgspec.structs.replace(back, run=msgspec.structs.replace(back.run, earlier_starts=())))
    assert client.hlen("{big:0}:states") == 0
    [run] = claim(store)
    assert settle(store, succeed(store, run, "yes"))
    assert current(store, run).result == "yes"


def test_a_job_that_is_restored_counts_only_the_runs_that_are_unfinished_by_then(make_store: MakeStore) -> None:
    store = make_store()
    job = add_job(store, due_in=-70, every=60, max_instances=5)
    assert fire(store, due_one(store)) is not None
    store.shift_clock(60)
    assert fire(store, due_one(store)) is not None
    [first, _] = claim(store)
    assert store.set_aside("job", stored(store).version, "a test")
    assert settle(store, succeed(store, first))
    assert store.set_aside("job", 0, None)
    store.shift_clock(60)
    assert due_one(store).unfinished == 1
    assert due_one(store).incarnation == job.incarnation


# -- pinned ids ------------------------------------------------------------------------------------------------------


def test_pinned_jobs_and_their_runs_share_a_shard(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("pins", shards=3)
    tenants = ("tenant-1", "tenant-2", "tenant-3", "tenant-4", "tenant-5")
    for tenant in tenants:
        for name in ("report", "mail", "bill"):
            add_job(store, pin(tenant, name))
            assert fire(store, due_one(store, pin(tenant, name))) is not None
            add_run(store, pin(tenant, f"direct {name}"))
            add_run(store, unique=pin(tenant, f"key {name}"))
    homes = [_ids(client, f"{{pins:{index}}}:") for index in range(3)]
    used = set()
    for tenant in tenants:
        [home] = [index for index, ids in enumerate(homes) if any(f"{{{tenant}}}" in name for name in ids)]
        assert sum(f"{{{tenant}}}" in name for name in homes[home]) == 12  # 3 jobs, 3 fired, 3 direct, 3 keys
        used.add(home)
    assert len(used) > 1
    assert len(claim(store)) == 45
    assert stored(store, "{tenant-1}mail").id == pin("tenant-1", "mail")


def _ids(client: redis.Redis, prefix: str) -> list[str]:
    """Return the ids of the jobs and runs of a shard, and its unique keys."""
    found: list[Any] = [client.hkeys(prefix + name) for name in ("jobs", "calls", "unique")]
    return [name.decode() for names in found for name in names]


def test_a_follow_up_lives_with_the_run_that_it_follows(make_store: MakeStore, client: redis.Redis) -> None:
    store = make_store("chains", shards=3)
    for number in range(8):
        parent = start(store, f"parent-{number}")
        followers = (
            make_run(store, f"{parent.id}~1", queue="next"),
            make_run(store, f"{parent.id}~hook", queue="next"),
        )
        assert settle(store, msgspec.structs.replace(succeed(store, parent), then=followers))
    homes = [_ids(client, f"{{chains:{index}}}:") for index in range(3)]
    for number in range(8):
        [ids] = [ids for ids in homes if f"parent-{number}" in ids]
        assert {f"parent-{number}~1", f"parent-{number}~hook"} <= set(ids)
    assert len(claim(store, "next")) == 16


@pytest.mark.parametrize("shard", ["", "a}b", "{"])
def test_a_shard_that_cannot_be_read_from_an_id_is_refused(shard: str) -> None:
    with pytest.raises(ConfigurationError, match="without braces"):
        pin(shard, "report")
