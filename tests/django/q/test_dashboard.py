"""The dashboard inside a project: staff only, and each as far as their rights go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from mainspring.django.app import app
from tests.django.conftest import added_database

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def in_a_file(tmp_path: Path) -> Iterator[None]:
    """Let the store be a file, since the dashboard reads it in threads of its own."""
    with (
        added_database("dashboard", f"sqlite:///{tmp_path}/db.sqlite3"),
        override_settings(MAINSPRING={"database": "dashboard"}),
    ):
        yield
    app.store.shutdown()


def client_of(*rights: str, staff: bool = True) -> Client:
    user = User.objects.create_user("ann", is_staff=staff)
    user.user_permissions.add(*Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    return client


def test_only_staff_with_the_right_to_look_are_let_in() -> None:
    assert Client().get("/mainspring/").headers["Location"] == "/admin/login/?next=/mainspring/"
    assert client_of(staff=False).get("/mainspring/").status_code == 302
    User.objects.all().delete()
    assert client_of().get("/mainspring/").status_code == 403


@pytest.mark.usefixtures("in_a_file")
def test_rights_are_roles() -> None:
    client = client_of("view_task")
    page: Any = client.get("/mainspring/", headers={"X-Mainspring-Who": '["boss", "admin"]'})
    assert page.status_code == 200
    assert b'href="/mainspring/static/' in page.content
    assert b"ann" in page.content
    assert client.get("/mainspring/runs").status_code == 200
    assert client.get("/mainspring/nowhere").status_code == 404
    assert b"boss" not in page.content
