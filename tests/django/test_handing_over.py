"""A store that Django's transactions cannot reach gets the runs when the transaction has committed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from mainspring.django.application import DjangoApp
from mainspring.django.conf import Conf
from mainspring.django.models import OutboxRecord
from mainspring.errors import RunNotFound, StoreUnavailable, TransactionOpen
from tests.django.conftest import added_database
from tests.servers import Redis

RELAY_AFTER = "mainspring.jobstores.sqlalchemy.joining.outbox.RELAY_AFTER_US"


def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def app(redis_server: Redis) -> Iterator[DjangoApp]:
    with DjangoApp(Conf(url=redis_server.url, name=f"django{secrets.token_hex(4)}")) as app:
        app.task(double)
        yield app


def test_runs_are_handed_over_at_the_commit(app: DjangoApp) -> None:
    with transaction.atomic():
        handle = app.enqueue(double, 1)
        app.enqueue_many(app.as_task(double).call(number) for number in range(3))
        with pytest.raises(RunNotFound):
            handle.status()
    assert handle.status() == "pending"
    assert app.count() == 4
    assert app.enqueue(double, 2).status() == "pending"


def test_runs_of_a_transaction_that_is_rolled_back_are_never_handed_over(app: DjangoApp) -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError):
            enqueue_and_fail(lambda: app.enqueue_many(app.as_task(double).call(number) for number in range(1_001)))
        kept = app.enqueue(double, 2)
    assert [run.id for run in app.find()] == [kept.id]


def enqueue_and_fail(enqueue: Callable[[], object], using: str = "default") -> None:
    with transaction.atomic(using=using):
        enqueue()
        raise ZeroDivisionError


def chain_behind(app: DjangoApp, first: Any) -> list[Any]:
    task = app.as_task(double).options(after=first)
    return app.chain([task.call(1), app.as_task(double).call(2)])


def test_a_flow_that_needs_several_writes_is_stored_after_the_commit(app: DjangoApp) -> None:
    with transaction.atomic():
        first = app.enqueue(double, 1)
        others = chain_behind(app, first)
        with pytest.raises(RunNotFound):
            first.status()
    assert [handle.status() for handle in (first, *others)] == ["pending", "blocked", "blocked"]


# -- the outbox ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    with added_database("shop", f"sqlite:///{tmp_path}/shop.sqlite3", tables=False) as alias:
        with connections[alias].schema_editor() as editor:
            editor.create_model(OutboxRecord)
        yield alias


@pytest.fixture
def relayed(redis_server: Redis, shop: str) -> Iterator[DjangoApp]:
    name = f"django{secrets.token_hex(4)}"
    with DjangoApp(Conf(url=redis_server.url, name=name, outbox=shop)) as app:
        app.task(double)
        yield app


def left_in_outbox(alias: str) -> int:
    return int(OutboxRecord.objects.using(alias).count())


def test_an_outbox_has_the_runs_until_they_are_handed_over(relayed: DjangoApp, shop: str) -> None:
    with transaction.atomic(using=shop):
        first = relayed.enqueue(double, 1)
        chain_behind(relayed, first)
        assert left_in_outbox(shop) == 3
        with pytest.raises(TransactionOpen):
            first.result()
    assert left_in_outbox(shop) == 0
    assert sorted(run.status for run in relayed.find()) == ["blocked", "blocked", "pending"]
    with pytest.raises(ZeroDivisionError):
        enqueue_and_fail(lambda: relayed.enqueue(double, 1), shop)
    assert (left_in_outbox(shop), relayed.count()) == (0, 3)


def enqueue_and_die(handles: list[Any], app: DjangoApp, alias: str) -> None:
    """Commit, and do nothing of what should follow the commit."""

    def die() -> None:
        raise SystemExit

    with transaction.atomic(using=alias):
        transaction.on_commit(die, using=alias)
        handles.append(app.enqueue(double, 4))


def test_a_node_relays_the_runs_of_a_process_that_died_after_its_commit(
    relayed: DjangoApp, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RELAY_AFTER, 0)
    handles: list[Any] = []
    with pytest.raises(SystemExit):
        enqueue_and_die(handles, relayed, shop)
    assert (left_in_outbox(shop), relayed.count()) == (1, 0)
    relayed.start(work=True)
    assert handles[0].result(timeout=60) == 8
    assert left_in_outbox(shop) == 0


def test_a_store_that_is_away_leaves_the_runs_in_the_outbox(
    relayed: DjangoApp, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with transaction.atomic(using=shop):
        relayed.enqueue(double, 4)
        monkeypatch.setattr(relayed.store, "add_runs", away)
    assert left_in_outbox(shop) == 1
    monkeypatch.undo()
    assert relayed._app_store.outbox is not None
    assert relayed._app_store.outbox.relay(relayed.store, relayed.now() + 6_000_000) == 1
    assert relayed.count() == 1


# -- another database ------------------------------------------------------------------------------------------------


def test_runs_wait_for_the_commit_of_another_database_if_asked(on_sqlite: str, shop: str) -> None:
    with DjangoApp(Conf(url=f"django://{on_sqlite}")) as app:
        app.task(double)
        with transaction.atomic(using=shop):
            at_once = app.enqueue(double, 0)
            with app.using(shop):
                held = app.enqueue(double, 1)
            assert (at_once.status(), app.count()) == ("pending", 1)
        assert (held.status(), app.count()) == ("pending", 2)
        with pytest.raises(ZeroDivisionError), app.using(shop):
            enqueue_and_fail(lambda: app.enqueue(double, 2), shop)
        with app.using(shop):
            assert app.enqueue(double, 3).status() == "pending"  # no transaction to wait for
        assert app.count() == 3
        with pytest.raises(ValueError, match="no database 'shpo'"), app.using("shpo"):
            pass
