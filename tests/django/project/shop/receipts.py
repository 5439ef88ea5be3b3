"""Tasks that are declared with Django's own decorator."""

from __future__ import annotations

from typing import Any

from tests.django.project.shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


__all__ = ["count_attempts", "refresh", "send", "task", "urgent", "wait_for"]


@task
def send(order_id: int) -> str:
    return f"sent {Order.objects.get(pk=order_id).text}"


@task(priority=5, queue_name="mail")
def urgent() -> None:
    pass


@task
async def wait_for(number: int) -> int:
    return number + 1


@task(takes_context=True, retries=1)
def count_attempts(context: Any, limit: int) -> int:
    if context.attempt < limit:
        raise ValueError(f"attempt {context.attempt}")
    return int(context.attempt)


@task(unique="only one", timeout=30)
def refresh() -> None:
    pass
