"""The project's default database, migrated once; each test is rolled back, as in a TestCase."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test.utils import setup_test_environment, teardown_test_environment

from mainspring.django.app import app
from mainspring.tasks import set_app


@pytest.fixture(scope="session")
def migrated() -> Iterator[None]:
    call_command("migrate", run_syncdb=True, verbosity=0)
    setup_test_environment()  # answers of the test client tell what their templates were given
    yield
    teardown_test_environment()


@pytest.fixture
def project(migrated: None) -> Iterator[None]:
    set_app(app)
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    set_app(None)
    app.follow_settings()  # open the store anew: a test may have moved its clock
