"""Flows and the timeline in a real browser: a graph that fills by itself, and a stretch that is dragged."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from mainspring import Mainspring
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.browser.test_looks import sticking_out


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """An app in which nobody works until a test says so."""
    app = Mainspring(f"sqlite:///{tmp_path_factory.mktemp('flows')}/jobs.db", secret_key="k" * 32, timezone="UTC")
    app.task(name="shop:fetch")(_fetch)
    app.task(name="shop:merge")(_merge)
    app.schedule("*/30 * * * *", id="often")(app.as_task("shop:fetch"))
    app.reconcile()
    yield app
    app.close()


def _fetch(number: int = 0) -> int:
    if number < 0:
        raise ValueError("no such page")
    return number


def _merge(parts: list[int]) -> int:
    return sum(parts)


@pytest.fixture(scope="module")
def address(app: Mainspring) -> Iterator[str]:
    """Where its dashboard is."""
    server = DashboardServer(DashboardApp(app), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()


def test_a_flow_is_drawn_fills_by_itself_and_waits_for_its_signal(page: Page, app: Mainspring) -> None:
    fetch, merge = app.as_task("shop:fetch"), app.as_task("shop:merge")
    with app.flow("import 7") as flow:
        parts = [flow.add(fetch.call(number)) for number in range(3)]
        whole = flow.add(merge.call([part.output for part in parts]))
        flow.add(fetch.call(9), after=[whole, flow.signal("approved")])
    with app.flow("import 8") as failing:
        bad = failing.add(fetch.call(-1))
        failing.add(merge.call([bad.output]))

    page.goto("/flows")
    page.locator("tr", has_text="import 7").locator("a.name").click()
    page.wait_for_url("**/flows/import%207")
    expect(page.locator(".explain")).to_contain_text("Waits for 6 of 6 steps")
    expect(page.locator("svg.flow g.n")).to_have_count(6)
    expect(page.locator("svg.flow g.n.blocked")).to_have_count(2)
    assert page.locator("tbody tr").count() == 6
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert not sticking_out(page), width

    page.set_viewport_size({"width": 1440, "height": 900})
    app.start(work=True)  # nobody touches the page from here on
    expect(page.locator("svg.flow g.n.succeeded")).to_have_count(4, timeout=LIMIT)
    expect(page.locator(".explain")).to_contain_text("waits for its signal", timeout=LIMIT)
    app.signal("import 7~approved", True)
    expect(page.locator(".explain")).to_contain_text("Done: all 6 steps succeeded.", timeout=LIMIT)

    page.goto("/flows/import%208")
    expect(page.locator(".explain")).to_contain_text("1 step after it will not run unless it is retried", timeout=LIMIT)
    page.locator(".head-tools a", has_text="Retry what failed").click()
    expect(page.locator("#dialog")).to_contain_text("can be sent back", timeout=LIMIT)
    page.locator("#dialog .row button").click()
    expect(page.locator("#toasts .toast")).to_contain_text("sent back", timeout=LIMIT)


def test_a_stretch_of_the_timeline_is_dragged_and_left_again(page: Page, app: Mainspring) -> None:
    page.goto("/timeline")
    axis = page.locator(".track.axis svg").bounding_box()
    lane = page.locator('.track[data-key="often"] svg.chart').bounding_box()
    assert axis is not None
    assert lane is not None
    y = lane["y"] + 4
    page.mouse.move(axis["x"] + axis["width"] * 0.4, y)
    page.mouse.down()
    app.add_job(app.as_task("shop:fetch"), "interval", hours=2, id="meanwhile")
    expect(page.locator("[data-stale]").first).to_be_attached(timeout=LIMIT)
    page.mouse.move(axis["x"] + axis["width"] * 0.6, y, steps=4)
    expect(page.locator(".brushed")).to_be_visible()
    page.mouse.up()
    page.wait_for_url(re.compile(r"/timeline\?.*from=.*to="))
    expect(page.locator("main")).not_to_contain_text("cannot be shown")
    area = page.locator("[data-brush]")
    since, until = (int(area.get_attribute(f"data-{name}") or 0) for name in ("since", "until"))
    assert abs((until - since) / 1000 - 24 * 3600 * 0.2) < 1200
    page.locator(".zoom a", has_text="Wider").click()
    page.locator(".zoom a", has_text="Back to now").click()
    page.wait_for_url(re.compile(r"/timeline$"))
