"""Looking changes nothing, a viewer may change nothing, and a killed run tells its story."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mainspring import Mainspring
from mainspring.dashboard import Accounts, DashboardApp, hash_password
from mainspring.dashboard.pages import PAGES
from tests.dashboard.client import Client
from tests.dashboard.shop import make_shop, seed

LIMIT = 30.0
MOST_PAGES = 120


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mainspring, Path]]:
    """A shop with a past in which nobody works."""
    file = tmp_path_factory.mktemp("safety") / "shop.db"
    app = make_shop(f"sqlite:///{file}")
    seed(app)
    yield app, file
    app.close()


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_a_crawl_of_all_links_changes_nothing(shop: tuple[Mainspring, Path]) -> None:
    app, file = shop
    client = Client(DashboardApp(app))
    before = dump(file)
    waiting, seen, shapes = ["/"], set[str](), dict[str, int]()
    while waiting and len(seen) < MOST_PAGES:
        url = waiting.pop(0)
        shape = re.sub(r"[0-9a-f@%]{6,}", "#", urlsplit(url).path)
        shapes[shape] = shapes.get(shape, 0) + 1
        if url in seen or shapes[shape] > 6:
            continue
        seen.add(url)
        answer = client.get(url)
        assert answer.status in (200, 303, 400, 404), (url, answer.status)
        found = re.findall(r'(?:href|action|formaction)="(/[^"#]*)"', answer.text)
        waiting += [unescape(each) for each in found if "/static/" not in each]
    assert len(seen) > 60
    assert dump(file) == before


def test_a_viewer_sees_every_button_disabled_and_every_action_is_refused(shop: tuple[Mainspring, Path]) -> None:
    app, file = shop
    accounts = Accounts({"vic": ("view", hash_password("secret of vic"))})
    client = Client(DashboardApp(app, accounts=accounts))
    token = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
    assert token is not None
    client.post("/login", {"csrf": token[1], "name": "vic", "password": "secret of vic"}, csrf=False)
    before = dump(file)
    run = app.find(status="failed", limit=1)[0].id
    for path in ("/runs", f"/runs/{run}", "/queues", "/errors", "/system", "/jobs", "/jobs/nightly-backup"):
        text = client.get(path).text
        assert "You may look, not change." in text, path
        assert 'form="acts"' not in text, path
        assert 'id="acts"' not in text, path
        assert not re.search(r"<form[^>]* data-act(?![^§]*?disabled)", text), path
    for action in {each.name: each for page in PAGES for each in page.actions}.values():
        path = re.sub(r"\{(\w+)(:path)?\}", "x", action.path)
        answer = client.post(path, {"typed": "x"}, x_part="1")
        assert answer.status == 403, action.name
    assert dump(file) == before


WORKER = """
import sys, time
from mainspring import Mainspring
from mainspring.executors.current_run import current_run

app = Mainspring(sys.argv[1], secret_key="k" * 32, timezone="UTC", lease=3.0)

@app.task(name="shop:long", retries=1)
def long():
    if current_run().record.attempt == 1 and len(sys.argv) > 2:
        print("started", flush=True)
        time.sleep(600)
    return "done"

if __name__ == "__main__":
    app.run()
"""


def test_a_run_whose_worker_was_killed_shows_the_lost_start(tmp_path: Path) -> None:
    script, url = tmp_path / "worker.py", f"sqlite:///{tmp_path}/jobs.db"
    script.write_text(WORKER)
    app = Mainspring(url, secret_key="k" * 32, timezone="UTC", lease=3.0)
    run = app.task(name="shop:long", retries=1)(time.monotonic).enqueue().id
    command = [sys.executable, str(script), url, "sleeps"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "started\n"
        os.kill(worker.pid, signal.SIGKILL)
    app.start(work=True)
    app.wait([run], LIMIT)
    found = app.get(run)
    assert (found.interruptions, found.failures, found.attempt) == (1, 0, 2)
    answer = Client(DashboardApp(app)).get(f"/runs/{run}")
    assert 'class="rb-int"' in answer.text
    assert "its node fell silent" in answer.words
    assert "1+1 / 2" in Client(DashboardApp(app)).get("/runs").words
    lost = found.starts[0]
    assert lost.ended_at is not None
    assert lost.started_at is not None
    assert (lost.ended_at - lost.started_at).total_seconds() >= 3.0
    app.close()
