"""One action on each page of the admin, and the dashboard, in a real Chromium on the example's own server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.browser.conftest import LIMIT, chromium
from tests.django.q.test_example import EXAMPLE, manage

__all__ = ["chromium"]

pytestmark = pytest.mark.timeout(300)  # processes of its own, which a loaded machine starts slowly

PAST = """
from django.core.management import call_command
call_command('migrate', verbosity=0)
from django.contrib.auth.models import User
User.objects.create_superuser('boss', password='boss')
from mainspring.django.tasks import async_task, schedule
from mainspring.django.testing import run_queue
async_task('math.sqrt', 4, task_name='root')
async_task('math.sqrt', -1, task_name='no root')
run_queue()
async_task('math.sqrt', 9, task_name='waiting')
schedule('math.sqrt', 16, name='nightly', schedule_type='C', cron='0 3 * * *')
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    database = tmp_path_factory.mktemp("browser") / "db.sqlite3"
    manage("shell", "-v", "0", "-c", PAST, database=database)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environ = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "manage.py", "runserver", "--noreload", "--skip-checks", f"127.0.0.1:{port}"]
    server = subprocess.Popen(
        command, cwd=EXAMPLE, env=environ | {"SHOP_DATABASE": str(database)}, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(30)


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    context = chromium.new_context(base_url=address)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    page.goto("/admin/login/?next=/admin/")
    page.fill("[name=username]", "boss")
    page.fill("[name=password]", "boss")
    page.click("[type=submit]")
    yield page
    context.close()


def act(page: Page, name: str, action: str) -> str:
    """Choose the only row of a page, take an action, and return what the page says."""
    page.goto(f"/admin/mainspring/{name}/")
    page.check("[name=_selected_action]")
    page.select_option("[name=action]", action)
    page.click("[name=index]")
    return page.inner_text("ul.messagelist")


def test_an_action_on_each_page(page: Page) -> None:
    assert "1 moved to the front" in act(page, "ormq", "move_to_front")
    assert "1 enqueued once more" in act(page, "success", "resubmit_task")
    assert "1 sent back" in act(page, "failure", "resubmit_task")
    assert "1 paused" in act(page, "schedule", "pause")
    page.goto("/admin/mainspring/ormq/")
    assert page.locator("[name=_selected_action]").count() == 3


def test_the_dashboard_knows_who_looks(page: Page) -> None:
    page.goto("/mainspring/")
    assert "boss" in page.inner_text("body")
    page.goto("/mainspring/runs")
    assert "waiting" in page.inner_text("main")
