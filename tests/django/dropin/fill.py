"""With the real django-q2: make its tables, and put into them what a project may have."""

from __future__ import annotations

import base64
import os
import pickle
import uuid
from collections import Counter, OrderedDict
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Task
from django_q.tasks import async_task, schedule

from tests.django.dropin.work.tasks import add

WORK = "tests.django.dropin.work.tasks"


class Hostile:
    def __reduce__(self) -> Any:
        return Path.touch, (Path(os.environ["HOSTILE"]),)


def main() -> None:
    call_command("migrate", verbosity=0)
    ann = User.objects.create_user("ann")
    async_task(f"{WORK}.add", 1, other=2, task_name="plain", group="g", hook=f"{WORK}.after")
    async_task(add, date(2026, 1, 2).isoformat(), "!", task_name="by function")
    async_task(f"{WORK}.add", (Decimal("1.5"),), (uuid.UUID(int=5), date(2026, 1, 2)), task_name="typed")
    async_task(f"{WORK}.name_of", ann, task_name="instance")
    async_task(f"{WORK}.sleep", 60, timeout=1, task_name="slow")
    async_task(f"{WORK}.add", OrderedDict(a=1), task_name="ordered")
    async_task(f"{WORK}.add", Hostile(), task_name="hostile")
    async_task(f"{WORK}.missing", task_name="missing")
    OrmQ.objects.create(key="work", payload="not signed", lock=timezone.now())
    schedule(f"{WORK}.add", 1, 2, name="by hand", schedule_type="D", repeats=3)
    common: Any = {"func": f"{WORK}.add", "started": timezone.now(), "stopped": timezone.now(), "attempt_count": 1}
    Task.objects.create(id="a" * 32, name="done", args=(1,), kwargs={"other": 2}, result=3, group="g", **common)
    Task.objects.create(id="b" * 32, name="bad", args=(), kwargs={}, result="1 : Traceback", success=False, **common)
    Task.objects.create(id="c" * 32, name="counter", args=(), kwargs={}, result=Counter("aab"), **common)
    Task.objects.create(id="d" * 32, name="hostile", args=(), kwargs={}, result=None, **common)
    with connection.cursor() as cursor:  # past the field, which would unpickle it at once
        text = base64.b64encode(pickle.dumps(Hostile())).decode()
        cursor.execute("UPDATE django_q_task SET result = %s WHERE id = %s", [text, "d" * 32])


main()
