"""What a project tests: in a TestCase, with a worker in the test's own thread and transaction."""

from django.test import TestCase

from mainspring.django.models import Schedule, Success
from mainspring.django.tasks import async_task, result, schedule
from mainspring.django.testing import enqueued, run_queue
from shop.models import Order
from shop.tasks import count_orders


class ShopTests(TestCase):
    def test_an_order_sends_its_receipt(self) -> None:
        made = self.client.post("/orders/?text=tea").json()
        assert Order.objects.get().receipt == ""
        assert run_queue() == 1
        assert self.client.get(f"/orders/{made['order']}/").json() == {"text": "tea", "receipt": "sent for tea"}
        assert Success.objects.get(pk=made["task"]).result == "sent for tea"

    def test_the_verbs_of_django_q(self) -> None:
        task_id = async_task("shop.tasks.price", "bread", pieces=2)
        assert run_queue() == 1
        assert result(task_id) == 10

    def test_a_task_of_the_app(self) -> None:
        count_orders.enqueue()
        assert [run.queue for run in enqueued(count_orders)] == ["reports"]

    def test_a_schedule_is_a_row(self) -> None:
        schedule("shop.tasks.price", "tea", name="tea", schedule_type=Schedule.DAILY)
        assert Schedule.objects.get(name="tea").job is not None
