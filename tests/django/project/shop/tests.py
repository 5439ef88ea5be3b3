"""The shop's own tests, as a project writes them: `manage.py test` runs them on each database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, ClassVar
from unittest import skipIf

from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from mainspring.django.app import app
from mainspring.django.models import Failure, Job, OrmQ, QueueRecord, Run, Success, Task
from mainspring.django.testing import enqueued, run_queue
from mainspring.errors import RunFailed, TransactionOpen
from mainspring.tasks import async_task, get_app, result
from tests.django.project.shop.models import Order
from tests.django.project.shop.tasks import FAILURES, count_orders, double, fail, price, shout


class InATestCase(TestCase):
    seen: ClassVar[list[str]] = []

    def test_1_what_is_enqueued_is_executed_inside_the_test(self) -> None:
        handle = double.enqueue(21)
        self.seen.append(handle.id)
        self.assertEqual([run.id for run in enqueued(double)], [handle.id])
        self.assertEqual(run_queue(), 1)
        self.assertEqual(handle.result(timeout=0), 42)

    def test_2_nothing_is_left_of_the_test_before(self) -> None:
        self.assertTrue(self.seen)
        self.assertEqual(Run.objects.count(), 0)
        self.assertEqual(enqueued(), [])

    def test_tasks_see_the_rows_of_the_test(self) -> None:
        Order.objects.create(text="a")
        handle = count_orders.enqueue()
        run_queue()
        self.assertEqual(handle.result(timeout=0), 1)

    def test_waiting_without_run_queue_is_refused_at_once(self) -> None:
        with self.assertRaises(TransactionOpen):
            double.enqueue(1).result()

    def test_only_the_wake_up_waits_for_the_commit(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            double.enqueue(1)
            double.enqueue(2)
        # Besides, counters of calls are handed over from time to time.
        self.assertEqual([call.__name__ for call in callbacks].count("committed"), 1)

    def test_a_failure_leaves_the_transaction_usable(self) -> None:
        handle = fail.enqueue()
        run_queue()
        with self.assertRaises(RunFailed):
            handle.result(timeout=0)
        self.assertIn("the shop is closed", Failure.objects.get().result)

    def test_a_model_instance_is_read_again_when_the_run_starts(self) -> None:
        order = Order.objects.create(text="a")
        handle = price.enqueue(order, amount=7)
        Order.objects.update(text="changed meanwhile")
        run_queue()
        self.assertEqual(handle.result(timeout=0), order.pk)
        order.refresh_from_db()
        self.assertEqual((order.text, order.total), ("changed meanwhile", 7))

    def test_a_run_whose_instance_is_gone_fails_and_says_so(self) -> None:
        order = Order.objects.create(text="a")
        handle = price.enqueue(order, amount=7)
        order.delete()
        run_queue()
        with self.assertRaisesMessage(RunFailed, "was deleted before the run started"):
            handle.result(timeout=0)

    def test_lazy_values_are_resolved_when_they_are_enqueued(self) -> None:
        order = Order.objects.create(text="a")
        lazy = price.enqueue(SimpleLazyObject(lambda: order), 8)
        text = shout.enqueue(gettext_lazy("hello"))
        run_queue()
        self.assertEqual(lazy.result(timeout=0), order.pk)
        self.assertEqual(text.result(timeout=0), "HELLO!")

    def test_an_instance_that_is_not_saved_is_refused(self) -> None:
        with self.assertRaisesMessage(TypeError, "it is not saved yet"):
            price.enqueue(Order(text="a"), 1)

    def test_runs_are_filtered_by_their_columns(self) -> None:
        double.options(group="g", queue="mail").enqueue(1)
        async_task(double, 2, task_name="second")
        fail.enqueue()
        run_queue("default")
        self.assertEqual([run.group for run in OrmQ.objects.all()], ["g"])
        self.assertEqual(OrmQ.objects.get(cluster="mail").func, "tests.django.project.shop.tasks:double")
        done = Success.objects.get(name="second")
        self.assertEqual((done.result, done.args, done.success), (4, (2,), True))
        self.assertEqual(Task.objects.filter(success=False, stopped__isnull=False).count(), 1)
        hour = timedelta(hours=1)
        now = timezone.now()
        self.assertEqual(Task.objects.filter(created__range=(now - hour, now + hour)).count(), 3)
        self.assertEqual(Task.objects.filter(created__gt=now + hour).count(), 0)
        self.assertEqual(Success.objects.order_by("-stopped").values_list("stopped", flat=True)[0].tzinfo, now.tzinfo)

    def test_runs_are_deleted_through_the_store_and_not_written(self) -> None:
        handle = double.enqueue(1)
        double.enqueue(2)
        run_queue()
        Task.objects.get(pk=handle.id).delete()
        self.assertEqual(Task.objects.all().delete()[0], 1)
        self.assertIsNone(app.store.get_runs([handle.id])[0])
        with self.assertRaisesMessage(TypeError, "would pass the store by"):
            Run().save()
        with self.assertRaisesMessage(TypeError, "would pass the store by"):
            Task.objects.update(status="pending")
        double.enqueue(3)
        self.assertEqual(OrmQ.objects.all().delete()[0], 1)
        self.assertEqual(OrmQ.objects.count(), 0)

    def test_django_qs_verbs_act_on_the_projects_app(self) -> None:
        self.assertIs(get_app(), app)
        run_id = async_task("tests.django.project.shop.tasks.double", 4)
        run_queue()
        self.assertEqual(result(run_id), 8)

    def test_async_code_uses_the_tests_connection(self) -> None:
        async def plainly() -> None:
            double.enqueue(1)

        async def rightly() -> Any:
            handle = await app.aio.enqueue(double, 1)
            return handle, await app.aio.get(handle.id)

        with self.assertRaises(SynchronousOnlyOperation):
            asyncio.run(plainly())
        handle, seen = async_to_sync(rightly)()
        self.assertEqual(seen.status, "pending")
        self.assertEqual(Run.objects.get().pk, handle.id)

    def test_an_async_view_enqueues_in_its_own_transaction(self) -> None:
        answer = async_to_sync(self.async_client.post)("/order/", {"text": "from a view"})
        self.assertEqual(answer.status_code, 200)
        self.assertEqual(run_queue(), 1)
        self.assertEqual(Order.objects.get(text="from a view").total, 5)
        self.assertEqual(Success.objects.get().pk, answer.content.decode())

    def test_failures_are_given_to_the_reporters_of_the_settings(self) -> None:
        with override_settings(MAINSPRING={"reporters": ["tests.django.project.shop.tasks.note_failure"]}):
            handle = fail.enqueue()
            run_queue()
        self.assertEqual(FAILURES, [(handle.id, "the shop is closed")])

    def test_settings_can_be_changed_for_a_test(self) -> None:
        with override_settings(MAINSPRING={"inline": True}):
            self.assertEqual(double.enqueue(5).result(timeout=0), 10)
            self.assertEqual(Run.objects.count(), 0)
        double.enqueue(5)
        self.assertEqual(Run.objects.count(), 1)

    def test_a_new_secret_key_verifies_what_the_old_one_signed(self) -> None:
        from django.conf import settings

        handle = double.enqueue(6)
        old = settings.SECRET_KEY
        with override_settings(SECRET_KEY="another key, which is long enough", SECRET_KEY_FALLBACKS=[old]):
            self.assertEqual(run_queue(), 1)
            self.assertEqual(handle.result(timeout=0), 12)


class InATransactionTestCase(TransactionTestCase):
    def test_1_the_tables_are_used_for_good(self) -> None:
        app.add_job(double, "interval", minutes=5, args=[1], id="every")
        app.pause_queue("mail")
        handle = double.enqueue(1)
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            double.enqueue(2)
            raise ZeroDivisionError
        self.assertEqual([run.id for run in enqueued()], [handle.id])
        self.assertEqual((Job.objects.count(), QueueRecord.objects.count()), (1, 1))

    def test_2_they_are_empty_in_the_next_test(self) -> None:
        self.assertEqual((Run.objects.count(), Job.objects.count(), QueueRecord.objects.count()), (0, 0, 0))
        self.assertGreater(app.store.beat(), 0)
        handle = double.enqueue(3)
        self.assertEqual(run_queue(), 1)
        self.assertEqual(handle.result(timeout=0), 6)

    @skipIf(connection.vendor == "sqlite", "a database in memory cannot be shared by threads that write")
    def test_a_node_in_threads_works(self) -> None:
        app.start(work=True)
        try:
            self.assertEqual(double.enqueue(8).result(timeout=30), 16)
        finally:
            app.stop()

    def test_the_migrations_are_complete(self) -> None:
        call_command("makemigrations", "mainspring", check=True, dry_run=True, verbosity=0)
