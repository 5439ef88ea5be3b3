"""What people set from pages: limits of queues and keys, overlap and exclusions of jobs; what a filter excludes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.instants import to_us
from mainspring.dashboard import DashboardApp
from mainspring.testing.clock import VirtualClock
from tests.dashboard.client import Client

LIMIT = 90.0


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    """An empty app."""
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32, timezone="UTC", queues=["mail"])
    yield app
    app.close()


def test_a_queue_is_limited_and_says_so(app: Mainspring) -> None:
    client = Client(DashboardApp(app))
    assert client.post("/queues/mail/limit", {"limit": "3"}).status == 303
    assert next(queue.limit for queue in app.queues() if queue.name == "mail") == 3
    assert "limit 3" in client.get("/queues").words
    app.pause_queue("mail")
    assert "limit 3" in client.get("/queues").words, "a paused queue keeps its limit"
    client.post("/queues/mail/limit", {"limit": ""})
    app.resume_queue("mail")
    assert next(queue.limit for queue in app.queues() if queue.name == "mail") is None
    assert "no whole number" in client.post("/queues/mail/limit", {"limit": "0"}, x_part="1").words


def test_a_queue_at_its_limit_explains_itself(app: Mainspring) -> None:
    gate, begun = threading.Event(), threading.Event()

    @app.task(name="shop:send", queue="mail")
    def send() -> None:
        begun.set()
        gate.wait(LIMIT)

    app.limit_queue("mail", 1)
    app.start(work=True, queues=["mail"], threads=4)
    try:
        send.enqueue()
        assert begun.wait(LIMIT)
        second = send.enqueue()
        client = Client(DashboardApp(app))
        assert "Its limit lets 1 run go at once, and 1 do." in client.get("/queues").words
        assert "the limit of its queue is 1" in client.get("/runs?status=waiting").words
        assert "1 of it run, and its limit is 1" in client.get(f"/runs/{second.id}").words
        assert "as many as its limit of 1 allows" in client.get("/queues/mail").words
    finally:
        gate.set()


def test_a_parked_run_names_the_key_and_the_key_is_limited(app: Mainspring) -> None:
    gate, begun = threading.Event(), threading.Event()

    @app.task(name="shop:sync", queue="mail", limit=1, limit_key="tenant-{tenant}")
    def sync(tenant: int) -> None:
        begun.set()
        gate.wait(LIMIT)

    app.start(work=True, queues=["mail"], threads=4)
    try:
        sync.enqueue(7)
        assert begun.wait(LIMIT)
        parked = sync.enqueue(7)
        deadline = time.monotonic() + LIMIT
        while parked.status() != "blocked" and time.monotonic() < deadline:
            time.sleep(0.01)
        client = Client(DashboardApp(app))
        assert "waits for a slot of tenant-7" in client.get("/runs?status=blocked").words
        assert "tenant-7 1 at once 1 1" in client.get("/queues/mail").words  # one runs, one is parked
        assert "1 blocked" in client.get("/queues").words
        assert "1 more blocked" in client.get("/").words
        assert client.post("/limits/tenant-7/set", {"limit": "2"}).status == 303
        while parked.status() == "blocked" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert parked.status() != "blocked"
        assert app.audit(kind="limit", target="tenant-7", limit=1)[0].details == {"limit": 2}
    finally:
        gate.set()


def test_a_job_is_added_and_changed_with_overlap_and_exclusions(app: Mainspring) -> None:
    app.task(name="shop:report")(lambda: None)
    client = Client(DashboardApp(app))
    given = {"id": "daily", "task": "shop:report", "kind": "cron", "when": "0 9 * * *"}
    client.post("/jobs/new", {**given, "overlap": "queue", "exclude": "weekends\n12-25"})
    job = app.get_job("daily")
    assert job.overlap == "queue"
    assert "weekends" in job.trigger.describe() or "Saturday" in job.trigger.describe()
    shown = client.get("/jobs/daily/edit").text
    assert '<option value="queue" selected>' in shown
    client.post("/jobs/daily/edit", {"overlap": "skip", "exclude": "none"})
    job = app.get_job("daily")
    assert (job.overlap, job.trigger.describe()) == ("skip", "every day at 09:00, UTC")


def test_a_form_opens_no_file_of_the_server(app: Mainspring, tmp_path: Path) -> None:
    secret = tmp_path / "secret.ics"
    secret.write_text("BEGIN:VCALENDAR\nEND:VCALENDAR\n", encoding="utf-8")
    shown = Client(DashboardApp(app)).get(f"/jobs/preview?kind=cron&when=0+9+*+*+*&exclude={secret}")
    assert "files can be named in code only" in shown.words


def test_a_preview_leaves_out_what_is_excluded() -> None:
    wednesday = datetime(2026, 5, 6, 12, tzinfo=UTC)
    app = Mainspring("memory://", timezone="UTC", clock=VirtualClock(to_us(wednesday)))
    shown = Client(DashboardApp(app)).get("/jobs/preview?kind=cron&when=0+9+*+*+*&exclude=weekends").words
    assert "2 fires from Sat" in shown
    assert "are excluded" in shown


def test_nothing_matches_names_the_condition_that_excludes_most(app: Mainspring) -> None:
    task = app.task(name="shop:send", queue="mail")(lambda: None)
    other = app.task(name="shop:other", queue="default")(lambda: None)
    app.enqueue_many([*(task.call() for _ in range(5)), *(other.call() for _ in range(2))])
    client = Client(DashboardApp(app))
    words = client.get("/runs?queue=default&status=pending&task=shop:send").words
    assert "queue:default excludes most: without it 5 runs match." in words
    assert "whichever one condition you drop" in client.get("/runs?queue=nobody&status=failed").words
