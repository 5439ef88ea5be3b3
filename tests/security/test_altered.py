"""One value altered behind the store's back: its record is set aside or put right, and nobody else comes to harm."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from mainspring.core.run import Status
from mainspring.core.transitions import recover
from mainspring.core.waiting.gates import Limit
from mainspring.jobstores.base import RunStanding
from mainspring.testing.conformance.helpers import LEASE, add_run, claim, lapsed, succeed
from tests.security import altered_redis
from tests.security.altered import Seen, fill, live_through
from tests.security.altered_sql import Alteration, Database, alterations, fill_flows
from tests.servers import MariaDB, PostgreSQL, Redis

Change = TypeVar("Change")

SEED = 20261116
SLICE = 40
"""Alterations of a SQLite file that are tried, of some 2,300; of a server, where each takes longer, a fourth."""


def check(change: Alteration, seen: Seen) -> None:
    """Raise if somebody came to harm."""
    seen.check_neighbours()
    assert {seen.runs[name].status for name in ("blocked-good", "gated-good")} == {Status.SUCCEEDED}
    renamed = change.column in ("id", "name")
    for name in ("waits-victim", "runs-victim", "ended-victim", "blocked-victim", "gated-victim"):
        if change.table == "runs" and change.row == f"id = '{name}'":
            if not renamed:
                seen.check_run(
                    name,
                    may_wait=change.column in ("queue", "run_at", "waits", "gate_spec"),
                    may_end=change.column in ("status", "cancelling"),
                )
        else:  # without an edge or a slot, a run waits for ever
            waits = {"edges": "blocked-victim", "limits": "gated-victim"}.get(change.table)
            seen.check_run(name, may_wait=name == waits, may_end=False)
    for name in ("job-victim", "job-late"):
        if not (renamed and change.table == "jobs"):
            seen.check_job(name, may_wait=change.table == "jobs" and change.column in ("at", "nominal"))


def some(changes: Iterable[Change], number: int) -> list[Change]:
    """Return a slice of all alterations."""
    return random.Random(SEED).sample(list(changes), number)


def test_any_value_of_a_sqlite_file_may_be_altered_and_nobody_else_comes_to_harm(tmp_path: Path) -> None:
    template = Database(f"sqlite:///{tmp_path}/template.db")
    store = template.open()
    fill(store)
    fill_flows(store)
    store.shutdown()
    changes = some(alterations(template, random.Random(SEED)), SLICE)
    template.close()
    for number, change in enumerate(changes):
        shutil.copy(tmp_path / "template.db", tmp_path / f"{number}.db")
        live(Database(f"sqlite:///{tmp_path}/{number}.db"), change)


def live(database: Database, change: Alteration) -> None:
    """Alter a value of a store and live through a day with it."""
    try:
        if database.alter(change):
            store = database.open()
            try:
                check(change, live_through(store))
            except BaseException as error:
                error.add_note(str(change))
                raise
            finally:
                store.shutdown()
    finally:
        database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_any_value_of_a_database_may_be_altered_and_nobody_else_comes_to_harm(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: PostgreSQL | MariaDB = request.getfixturevalue(f"{kind}_server")
    template = Database(server.url, "altered")
    store = template.open()
    fill(store)
    fill_flows(store)
    store.shutdown()
    for change in some(alterations(template, random.Random(SEED)), SLICE // 4):
        template.clear()
        store = template.open()
        fill(store)
        fill_flows(store)
        store.shutdown()
        live(Database(server.url, "altered"), change)
    template.close()


def test_any_value_member_or_score_in_redis_may_be_altered_and_nobody_else_comes_to_harm(redis_server: Redis) -> None:
    keys = altered_redis.Keys(redis_server.url)
    keys.client.flushdb()
    store = keys.open()
    fill(store)
    store.shutdown()
    keys.save()
    for change in some(altered_redis.alterations(keys, random.Random(SEED)), SLICE):
        keys.put_back()
        keys.alter(change)
        store = keys.open()
        try:
            seen = live_through(store)
            seen.check_neighbours()
            for name in ("waits-victim", "runs-victim", "ended-victim"):
                inside = change.key.endswith(f":r:{name}".encode())
                seen.check_run(name, may_wait=inside, may_end=inside)
            for name in ("job-victim", "job-late"):
                seen.check_job(name, may_wait=change.field == name.encode())
        except BaseException as error:
            error.add_note(str(change))
            raise
        finally:
            store.shutdown()
    keys.client.flushdb()
    keys.close()


def test_no_script_loops_for_ever_though_an_entry_of_a_queue_a_gate_or_an_edge_is_altered(redis_server: Redis) -> None:
    keys = altered_redis.Keys(redis_server.url)
    keys.client.flushdb()
    store = keys.open()
    fill(store)
    fill_flows(store)
    for number in range(3):  # of which one is parked and one stays in its queue
        add_run(store, f"crowd{number}", gate="crowd", gate_spec=Limit(1).to_text(), queue="crowd")
    claim(store, "crowd", limit=2)
    store.shutdown()
    keys.save()
    found = altered_redis.alterations(keys, random.Random(SEED))
    parts = tuple(b":" + letter + b":" for letter in (b"w", b"d", b"b", b"B", b"f", b"l", b"m", b"y"))
    for change in some([each for each in found if any(part in each.key for part in parts)], SLICE):
        keys.put_back()
        keys.alter(change)
        store = keys.open()
        try:
            for _ in range(3):
                store.settle([succeed(store, run) for run in claim(store, "default", "crowd", "next")])
                store.settle([recover(run, store.beat()) for run in lapsed(store)])
                store.shift_clock(LEASE + 10)
                store.mend(thorough=True)
                store.prune()
                store.stats()
            assert store.standings(["waits-good"]) == [RunStanding(Status.SUCCEEDED)]
        except BaseException as error:
            error.add_note(str(change))
            raise
        finally:
            store.shutdown()
    keys.client.flushdb()
    keys.close()
