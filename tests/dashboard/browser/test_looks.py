"""Every page, light and dark, wide and on a phone: nothing complains, nothing sticks out, axe finds nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import BrowserContext, Page

from mainspring import Mainspring
from tests.dashboard.browser.conftest import shots, watched

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/nightly-backup",
    "job-new": "/jobs/new?kind=cron&when=30+2+*+*+*",
    "runs": "/runs",
    "run": "/runs/{failed}",
    "timeline": "/timeline",
    "timeline-chosen": "/timeline?from=-2h&to=%2B1h",
    "flows": "/flows",
    "flow": "/flows/import%207",
    "login": "/login",
    "run-new": "/runs/new?again={failed}",
    "bulk": "/runs/bulk/retry?match=status:failed",
    "queues": "/queues",
    "queue": "/queues/media",
    "errors": "/errors",
    "tasks": "/tasks",
    "task": "/tasks/shop.payments:capture",
    "nodes": "/nodes",
    "node": "/nodes/hel-media-1:412:cccc",
    "api": "/api",
    "broken": "/broken",
    "system": "/system",
    "audit": "/system/audit",
    "more": "/more",
    "search": "/search?q=re",
}


@pytest.mark.parametrize("name", PAGES)
def test_checks_1_and_10_a_page_fits_is_quiet_and_axe_finds_nothing(
    name: str, context: BrowserContext, complaints: list[str], shop: Mainspring
) -> None:
    failed = shop.find(status="failed", job="reconcile-stripe", limit=1)[0].id
    page = watched(context.new_page(), complaints)
    answer = page.goto(PAGES[name].format(failed=failed))
    assert answer is not None
    text = answer.text()
    assert answer.status == 200
    assert " style=" not in text
    assert "could not be shown" not in text
    assert len(gzip.compress(text.encode())) <= 20_000
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.querySelectorAll('*').length") <= 2500
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert not sticking_out(page), width
        assert not too_small(page, 38 if width < 800 else 24), width
        for theme in ("light", "dark"):
            picture(page, name, theme, width)
            page.emulate_media(color_scheme="light" if theme == "light" else "dark")
            assert not sticking_out(page), (width, theme)
    assert not complaints
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    assert not violations(page)


def test_a_short_page_does_not_scroll(page: Page) -> None:
    page.goto("/broken")
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight") == 0


@pytest.mark.parametrize("path", ["/", "/queues"])
def test_the_words_of_a_chart_stay_inside_its_card_on_a_phone(path: str, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(path)
    outside = page.evaluate(
        """() => [...document.querySelectorAll('main .card svg.chart text')].filter(text => text.checkVisibility()
          && text.getBoundingClientRect().right > text.closest('.card').getBoundingClientRect().right)
          .map(text => text.textContent)"""
    )
    assert not outside


def test_a_tag_stands_beside_the_name_it_belongs_to(page: Page) -> None:
    page.goto("/jobs")
    gap = page.evaluate(
        """() => { const tag = document.querySelector('.jobs .name > .tag')
          const words = document.createRange()
          words.selectNodeContents(tag.previousElementSibling)
          return tag.getBoundingClientRect().left - words.getBoundingClientRect().right }"""
    )
    assert 0 <= gap <= 12


def violations(page: Page) -> list[str]:
    """Return what axe finds wrong with a page."""
    page.keyboard.press("p")  # updates would make it begin anew
    page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'] })", RULES)
    return [f"{each['id']} at {each['nodes'][0]['html'][:160]}" for each in found["violations"]]


def sticking_out(page: Page) -> list[str]:
    """Return what makes a page scroll sideways."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('main *')]
          .filter(node => node.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)
          .map(node => node.outerHTML.slice(0, 120))"""
    )
    return found


def too_small(page: Page, least: int) -> list[str]:
    """Return the buttons and menus that a finger or a shaky hand would miss."""
    found: list[str] = page.evaluate(
        """least => [...document.querySelectorAll('main .btn, main summary, .bar .btn, .tabs a')]
          .map(node => [node, node.getBoundingClientRect()])
          .filter(([node, box]) => node.checkVisibility() && box.width && Math.min(box.width, box.height) < least - .5)
          .map(([node, box]) => `${box.width} x ${box.height} ${node.outerHTML.slice(0, 120)}`)""",
        least,
    )
    return found


def picture(page: Page, name: str, theme: str, width: int) -> None:
    """Keep a picture, if somebody wants them."""
    folder = shots()
    if folder is not None:
        page.emulate_media(color_scheme="light" if theme == "light" else "dark")
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"{name}-{theme}-{width}.png")
