"""Tasks in three ways: Django's own, mainspring's, and plain functions that django-q's verbs name."""

try:
    from django.tasks import task
except ImportError:  # before Django 6: the package django-tasks
    from django_tasks import task

from mainspring.django.app import app
from shop.models import Order


@task(retries=3, timeout=30)
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.receipt = f"sent for {order.text}"
    order.save()
    return order.receipt


@app.task(queue="reports", retries=5)
def count_orders() -> int:
    return int(Order.objects.count())


@app.schedule("0 3 * * *")
def forget_old_orders() -> int:
    deleted: int = Order.objects.filter(receipt="").delete()[0]
    return deleted


def price(item: str, pieces: int = 1) -> int:
    return len(item) * pieces
