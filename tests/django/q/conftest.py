"""The project's default database, migrated once; each test is rolled back, as in a TestCase."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import transaction

from mainspring.django.app import app


@pytest.fixture(scope="session")
def migrated() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture
def project(migrated: None) -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    app.follow_settings()  # open the store anew: a test may have moved its clock
