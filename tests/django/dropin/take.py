"""With mainspring in the place of django-q2: migrate, look at the pages, import twice."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import django
import pytest

django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import setup_test_environment
from django.urls import reverse

from mainspring.django_q.models import Failure, OrmQ, Schedule, Success, Task
from mainspring.django_q.tasks import fetch, result


def imported(*words: str) -> list[str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit, match="1"):  # some tasks are refused
        call_command("mainspring_import_django_q", *words, stdout=out, stderr=err)
    return [*out.getvalue().splitlines(), *err.getvalue().splitlines()]


def main() -> None:
    setup_test_environment()
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    found: dict[str, Any] = {"tables": connection.introspection.table_names()}
    found["dry run"] = imported()
    found["before"] = Task.objects.count()
    found["written"] = imported("--write")
    found["again"] = imported("--write")
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    pages = ("schedule", "ormq", "success", "failure")
    found["pages"] = [client.get(reverse(f"admin:django_q_{page}_changelist")).status_code for page in pages]
    found["names"] = [sorted(str(row) for row in model.objects.all()) for model in (Schedule, OrmQ, Success, Failure)]
    found["results"] = [result("a" * 32), fetch("done").id, fetch("counter").result, fetch("bad").success]
    json.dump(found, sys.stdout)


main()
