"""A store that Django's transactions cannot reach gets the runs when the transaction has committed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from django.db import transaction

from mainspring.django.application import DjangoApp
from mainspring.django.conf import Conf
from mainspring.errors import RunNotFound
from tests.servers import Redis


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
            enqueue_and_fail(app)
        kept = app.enqueue(double, 2)
    assert [run.id for run in app.find()] == [kept.id]


def enqueue_and_fail(app: DjangoApp) -> None:
    with transaction.atomic():
        app.enqueue(double, 1)
        raise ZeroDivisionError
