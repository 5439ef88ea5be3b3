"""The tasks of the shop, which Django finds by the name of this module."""

from __future__ import annotations

import time
from typing import Any

from mainspring.django.app import app
from tests.django.project.shop.models import Order


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task
def count_orders() -> int:
    found: int = Order.objects.count()
    return found


@app.task
def price(order: Any, amount: int) -> int:
    """Write a total to an order, which is read again when the run starts."""
    order.total = amount
    order.save()
    return int(order.pk)


@app.task
def fail() -> None:
    raise ValueError("the shop is closed")


@app.task
def shout(text: str) -> str:
    assert type(text) is str
    return f"{text.upper()}!"


@app.task
def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


FAILURES: list[tuple[str, str]] = []


def note_failure(error: Exception, run: Any) -> None:
    FAILURES.append((run.id, str(error)))
