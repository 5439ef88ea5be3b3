"""Checks 2, 4 and 9: what happens in other processes shows on the page, and so does their death."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from mainspring import Mainspring
from mainspring.core.instants import SECOND, to_us
from mainspring.core.run import Call, Error, Run, Status
from tests.dashboard.acceptance.conftest import served
from tests.dashboard.acceptance.worker import LEASE_SECONDS, make_app, worker
from tests.dashboard.browser.conftest import LIMIT


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """An app of which this process serves the default queue; one job is down, and nobody serves the exports."""
    app = make_app(f"sqlite:///{tmp_path_factory.mktemp('processes')}/shop.db")
    job = app.add_job("shop:export", "cron", month=1, day=1, hour=3, id="reconcile")
    now = app.now()
    error = Error("shop.APIConnectionError", "stripe did not answer", "", now - SECOND, 1)
    failed = Run(
        id=f"reconcile@{job.incarnation}@1", call=Call("shop:export", (), {}, "export"), queue="default",
        job_id="reconcile", status=Status.FAILED, attempt=1, failures=1, errors=(error,), created_at=now - 9 * SECOND,
        fire_time=now - 9 * SECOND, run_at=now - 9 * SECOND, started_at=now - 8 * SECOND, finished_at=now - SECOND,
    )  # fmt: skip
    app.store.add_runs([app.store.pack_run(failed)])
    app.start(work=True, queues=["default"], threads=1)
    yield app
    app.close()


@pytest.fixture(scope="module")
def address(app: Mainspring) -> Iterator[str]:
    """Where its dashboard is."""
    with served(app) as found:
        yield found


def test_check_2_overview_names_what_needs_somebody_and_a_worker_comes_and_goes(page: Page, app: Mainspring) -> None:
    assert isinstance(app.url, str)
    app.enqueue_many(app.as_task("shop:export").call(600.0) for _ in range(3))
    page.goto("/")
    rows = page.locator(".todo > ul > li")
    unserved = page.locator('.todo li[data-key="queue exports"]')
    expect(unserved).to_contain_text("no living node serves queue 'exports', and it holds 3 runs", timeout=LIMIT)
    expect(rows).to_have_count(2)
    expect(page.locator(".todo .explain")).to_contain_text("Two things need you.")
    expect(page.locator('.todo li[data-key="job reconcile"]')).to_contain_text("APIConnectionError")
    expect(page).to_have_title(re.compile(r"^\(2\) Overview"))
    with worker(app.url, "exports") as first:
        expect(unserved).to_have_count(0, timeout=LIMIT)
        expect(page).to_have_title(re.compile(r"^\(1\) Overview"), timeout=LIMIT)
        expect(rows).to_have_count(1)
        os.kill(first.pid, signal.SIGKILL)
        expect(unserved).to_contain_text("no living node serves queue 'exports'", timeout=LIMIT)
    expect(page.locator('.todo li[data-key="job reconcile"]')).to_have_count(1)
    app.purge("exports")


def test_checks_4_and_9_a_killed_run_shows_its_lost_start_and_a_success_elsewhere_appears(
    page: Page, app: Mainspring
) -> None:
    assert isinstance(app.url, str)
    run = app.as_task("shop:long").enqueue()
    with worker(app.url, "long") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "started\n"
        held = app.get(run.id).record
        assert held.started_at is not None
        assert held.lease_until is not None
        assert held.lease_until - held.started_at >= LEASE_SECONDS * SECOND
        os.kill(first.pid, signal.SIGKILL)
    page.goto(f"/runs/{run.id}")
    with worker(app.url, "long"):  # the page is not touched: it hears of what that process does
        expect(page.locator(".sub b")).to_have_text("succeeded", timeout=LIMIT)
    expect(page.locator(".rb-int").first).to_be_attached(timeout=LIMIT)
    expect(page.locator("main")).to_contain_text("its node fell silent")
    found = app.get(run.id)
    assert (found.interruptions, found.failures) == (1, 0), "a lost start spends no retry"
    lost = found.starts[0]
    assert lost.started_at is not None
    assert lost.ended_at is not None
    # It may have been renewed once more before the process died, and a busy machine may look later than it ends.
    assert to_us(lost.ended_at) >= held.lease_until, "nobody takes it before the lease is over"
    assert found.starts[1].started_at is not None
    assert found.starts[1].started_at >= lost.ended_at
    page.goto(f"/runs?id={run.id}")
    expect(page.locator("tbody tr")).to_contain_text("1+1 / 2")
