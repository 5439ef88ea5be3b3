"""The names that django-q's users import, and the models where they write to them."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.core.cache import cache
from django.core.signing import BadSignature
from django.test import override_settings
from django.utils import timezone

from mainspring.django.app import app
from mainspring.django.models import Failure, OrmQ, Success, Task
from mainspring.django.testing import run_queue
from mainspring.django_q.brokers import Broker, get_broker
from mainspring.django_q.brokers.orm import ORM
from mainspring.django_q.conf import Conf
from mainspring.django_q.monitor_terminal import get_ids, info, memory, monitor
from mainspring.django_q.signing import SignedPackage
from mainspring.django_q.status import Stat
from mainspring.django_q.tasks import async_task, fetch, queue_size

DOUBLE = "tests.django.project.shop.tasks.double"

pytestmark = pytest.mark.usefixtures("project")


def test_conf_has_the_settings_in_use() -> None:
    assert (Conf.CLUSTER_NAME, Conf.SYNC, Conf.TIME_ZONE, Conf.PREFIX) == ("default", False, "Europe/Berlin", "default")
    with override_settings(Q_CLUSTER={"name": "shop", "workers": 3, "max_rss": 7, "timeout": 9, "save_limit": 5}):
        assert (Conf.CLUSTER_NAME, Conf.WORKERS, Conf.MAX_RSS, Conf.TIMEOUT) == ("shop", 3, 7, 9)
        assert (Conf.PREFIX, Conf.SAVE_LIMIT, Conf.RETRY, Conf.ORM) == ("shop", 5, 60, None)
    with pytest.raises(AttributeError, match="workers are woken by changes"):
        _ = Conf.POLL
    with pytest.raises(AttributeError, match="did you mean 'WORKERS'"):
        _ = Conf.WORKRES


def test_what_a_test_sets_on_conf_holds_until_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(Conf, "SYNC", True)
        patches.setattr(Conf, "TIMEOUT", 7)
        assert (Conf.SYNC, Conf.TIMEOUT, app.inline, app.conf.timeout) == (True, 7, True, 7.0)
        run_id = async_task(DOUBLE, 4)
        assert fetch(run_id).result == 8
    assert (Conf.SYNC, Conf.TIMEOUT, app.inline) == (False, None, False)
    with patch.object(Conf, "SAVE_LIMIT", 5):
        assert (Conf.SAVE_LIMIT, app.conf.keep_runs) == (5, 5)
    assert app.conf.keep_runs == 100_000
    with pytest.raises(AttributeError, match="override_settings"):
        Conf.SECRET_KEY = "another"
    with pytest.raises(AttributeError, match="workers are woken by changes"):
        Conf.POLL = 3


def test_a_broker_takes_the_names_and_packages_of_django_q() -> None:
    broker = get_broker("mail:q")
    broker.enqueue(SignedPackage.dumps({"func": DOUBLE, "args": (4,), "name": "packed"}))
    broker.enqueue(DOUBLE, 5)
    assert (broker.list_key, broker.queue_size()) == ("mail_q", 2)
    run_queue("mail_q")
    assert sorted(task.result for task in Success.objects.all()) == [8, 10]
    broker.list_key = "other:q"
    assert (broker.list_key, broker.queue_size(), broker.cache) == ("other_q", 0, cache)
    with pytest.raises(ValueError, match="signature"):
        broker.enqueue("no package, no function")


def test_the_broker_is_that_of_the_queue_that_calls_go_to() -> None:
    assert ORM is Broker
    with override_settings(Q_CLUSTER={"name": "shop"}):
        async_task("math.sqrt", 4)
        assert (get_broker().list_key, queue_size(), get_broker("other").queue_size()) == ("shop", 1, 0)


@pytest.mark.parametrize("name", ["aws_sqs", "ironmq"])
def test_a_broker_without_a_counterpart_names_the_others(name: str) -> None:
    with pytest.raises(ImportError, match="use the database"):
        importlib.import_module(f"mainspring.django_q.brokers.{name}")


def test_packages_are_signed_text_of_plain_data() -> None:
    text = SignedPackage.dumps({"func": DOUBLE, "args": (4,)})
    assert SignedPackage.loads(text) == {"func": DOUBLE, "args": (4,)}
    for wrong in (text[:-4] + "AAAA", "nonsense", ""):
        with pytest.raises(BadSignature):
            SignedPackage.loads(wrong)


def test_a_signed_package_that_is_put_into_the_queue_is_executed() -> None:
    package = {"func": DOUBLE, "args": (4,), "name": "by hand", "group": "g", "id": "a" * 32}
    row = OrmQ.objects.create(key="mail", payload=SignedPackage.dumps(package))
    assert (row.pk, row.name, row.cluster, OrmQ.objects.get(key="mail").group) == ("a" * 32, "by hand", "mail", "g")
    run_queue()
    assert Success.objects.get(pk=row.pk).result == 8
    with pytest.raises(ValueError, match="signature"):
        OrmQ.objects.create(key="mail", payload="nonsense")
    with pytest.raises(TypeError, match="use async_task"):
        OrmQ.objects.create(func=DOUBLE)


def test_a_task_is_written_as_one_that_has_ended() -> None:
    now = timezone.now()
    common: dict[str, Any] = {"func": DOUBLE, "started": now - timedelta(seconds=3), "stopped": now, "group": "g"}
    good = Task.objects.create(id="b" * 32, name="good", args=(2,), kwargs={}, result=4, **common)
    bad = Task.objects.create(name="bad", result="it broke", success=False, attempt_count=2, **common)
    assert (good.result, good.args, good.time_taken(), good.success) == (4, (2,), 3.0, True)
    assert Failure.objects.get(pk=bad.pk).result.startswith("it broke")
    assert (good.group_count(), good.group_count(failures=True), good.group_result()) == (2, 1, [4])
    assert (Task.get_result("good"), Task.get_task("bad").pk) == (4, bad.pk)
    assert [row.name for row in Task.get_task_group("g", failures=False)] == ["good"]
    assert good.group_delete(tasks=True) == 2
    assert Task.objects.count() == 0
    with pytest.raises(TypeError, match="did you mean 'stopped'"):
        Task.objects.create(stoped=now, **common)
    with pytest.raises(TypeError, match="needs 'started'"):
        Task.objects.create(func=DOUBLE)


def test_a_cluster_that_nobody_announces_has_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert (Stat.get(1, "nobody:1").status, Stat.get_all(), monitor(run_once=True)) == (Conf.STOPPED, [], [])
    info()
    memory(run_once=True)
    assert get_ids()
    assert "no cluster is running" in capsys.readouterr().out
