"""Everybody can use it: axe finds nothing, colours may be forced, motion stops, charts can be walked by keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mainspring import Mainspring
from tests.dashboard.browser.test_looks import PAGES

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


LOOKS = [*((name, "light") for name in PAGES), *((name, "dark") for name in ("overview", "jobs", "run"))]


@pytest.mark.parametrize(("name", "theme"), LOOKS)
def test_axe_finds_nothing(name: str, theme: Any, context: BrowserContext, shop: Mainspring) -> None:
    failed = shop.find(status="failed", job="reconcile-stripe", limit=1)[0].id
    page = context.new_page()
    page.emulate_media(color_scheme=theme)
    page.goto(PAGES[name].format(failed=failed))
    page.keyboard.press("p")  # updates would make it begin anew
    page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'] })", RULES)
    wrong = [f"{each['id']} at {each['nodes'][0]['html'][:160]}" for each in found["violations"]]
    assert not wrong, "\n".join(wrong)


def test_a_chart_is_walked_by_arrow_keys_and_read_as_a_table(page: Page) -> None:
    page.goto("/")
    page.locator("[data-live=throughput] svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tip")).to_contain_text("succeeded")
    first = page.locator("#announce").text_content()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#announce")).not_to_have_text(first or "")
    page.locator("[data-live=throughput] .as-table a").click()
    expect(page.locator("[data-live=throughput] th").nth(1)).to_have_text("Succeeded")


def test_each_mark_has_a_shape_of_its_own(page: Page) -> None:
    page.goto("/")
    symbols = "[...document.querySelectorAll('symbol[id^=m-]')]"
    shapes = page.evaluate(f"Object.fromEntries({symbols}.map(each => [each.id, each.innerHTML]))")
    running = ("waiting", "delayed", "running", "retrying", "succeeded", "failed", "cancelled", "missed", "broken")
    states = [*running, "late", "paused", "new"]
    assert len({shapes[f"m-{state}"] for state in states}) == len(states)


def test_motion_stops_for_those_who_want_none(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto("/runs")
    moving = page.evaluate("document.getAnimations().filter(each => each.playState === 'running').length")
    assert moving == 0


def test_every_time_says_the_moment_in_full(page: Page) -> None:
    page.goto("/jobs")
    times = "[...document.querySelectorAll('main time')]"
    bare = page.evaluate(f"{times}.filter(each => !each.dateTime && !('clock' in each.dataset)).length")
    assert bare == 0
