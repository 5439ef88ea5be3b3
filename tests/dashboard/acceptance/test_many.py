"""Checks 7 and 8: many runs. `tests/dashboard/test_speed.py` has the store that refuses scans."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from bench.dashboard import fill
from mainspring import Mainspring
from tests.dashboard.acceptance.conftest import served
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.shop import make_shop

RUNS = 10_400
MATCHING = 5000
HALT_AFTER = 200


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """A shop with many runs."""
    app = make_shop(f"sqlite:///{tmp_path_factory.mktemp('many')}/shop.db")
    fill(app, RUNS)
    yield app
    app.close()


@pytest.fixture(scope="module")
def address(app: Mainspring) -> Iterator[str]:
    """Where its dashboard is."""
    with served(app) as found:
        yield found


def test_check_7_facets_are_capped_and_pages_by_cursor_are_right_while_runs_arrive(page: Page, app: Mainspring) -> None:
    page.goto("/runs")
    expect(page.locator(".facets a", has_text="Succeeded")).to_contain_text("10,000+", timeout=LIMIT)
    seen: list[str] = []
    for _ in range(4):
        page.keyboard.press("p")  # what is on the page stays there, and so does the link to what comes after it
        keys = page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.key)")
        seen += keys
        app.as_task("shop.payments:capture").enqueue(order=1)  # it must not push a run onto the next page again
        with page.expect_navigation():
            page.locator("a[data-page=older]").click()
    expected = [run.id for run in app.find(limit=len(seen) + 4)]
    assert seen == [run_id for run_id in expected if run_id in set(seen)], "no run is left out, none comes twice"
    assert len(set(seen)) == len(seen) == 200
    page.goto("/runs?arg.order=9999999")
    expect(page.locator("main")).to_contain_text("Looked through the newest 1,000 runs")
    page.locator("main a", has_text="Look further back").click()
    page.wait_for_url("**after=**")
    expect(page.locator("h1")).to_have_text("Runs")


def test_check_8_an_act_on_all_that_match_changes_exactly_those(
    page: Page, app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = app.as_task("shop.exports:invoice").options(group="bulk")
    for start in range(0, MATCHING, 1000):
        app.enqueue_many(task.call(each) for each in range(start, start + 1000))
    for run in app.find(group="bulk", limit=5):
        app.cancel(run.id)
    gate, calls, cancel = threading.Event(), list[str](), app.cancel

    def halting(run_id: str) -> bool:
        calls.append(run_id)
        if len(calls) > HALT_AFTER:
            gate.wait(LIMIT / 1000)
        return cancel(run_id)

    with monkeypatch.context() as patch:
        patch.setattr(app, "cancel", halting)
        page.goto("/runs?group=bulk")
        _cancel_all_that_match(page)
        expect(page.locator(".explain")).to_contain_text("a node takes over")
        while len(calls) <= HALT_AFTER:
            page.wait_for_timeout(20)
        page.get_by_role("button", name="Stop").click()
        gate.set()
        expect(page.locator(".explain")).to_contain_text("it was stopped", timeout=LIMIT)
    stopped = app.count(group="bulk", status="cancelled")
    assert 5 + HALT_AFTER <= stopped < MATCHING

    page.goto("/runs?group=bulk")
    _cancel_all_that_match(page)
    app.enqueue_many(task.call(each) for each in range(100))
    expect(page.locator(".explain")).to_contain_text("that was all", timeout=4 * LIMIT)
    changed = MATCHING - stopped
    expect(page.locator(".explain")).to_contain_text(f"{changed:,} cancelled, {stopped:,} left as they are")
    expect(page.locator(".kv")).to_contain_text(f"{stopped:,}: it is cancelled")
    assert app.count(group="bulk", status="cancelled") == MATCHING
    assert app.count(group="bulk", status="pending") == 100, "what came meanwhile is not touched"
    act = next(each for each in app.audit(limit=5) if each.verb == "cancel_all")
    assert act.details["runs"] == changed
    assert sum(act.details["left"].values()) + changed == MATCHING


def _cancel_all_that_match(page: Page) -> None:
    page.locator("tbody input[type=checkbox]").first.check()
    page.locator("[data-all]").check()
    page.locator(".bulk button", has_text="Cancel").click()
    expect(page.locator("#dialog")).to_contain_text("can be cancelled", timeout=LIMIT)
    with page.expect_response(lambda answer: answer.request.method == "POST"):  # now it has begun
        page.locator("#dialog form.ask .row button").click()
    page.wait_for_url("**/bulk/*")
