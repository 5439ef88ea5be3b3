"""Filters that a person has named stay in the browser; updates that a person holds say so until they go on."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from mainspring import Mainspring
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.browser.test_looks import sticking_out, too_small, violations
from tests.dashboard.story import EVIL

FAILED = "/runs?queue=mail&status=failed"


def save(page: Page, name: str) -> None:
    """Save what a page shows as a view."""
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name").fill(name)
    page.keyboard.press("Enter")
    expect(page.locator("#dialog")).to_be_hidden()


def views(page: Page) -> Locator:
    """Return the links to the views."""
    return page.get_by_role("navigation", name="Saved views").get_by_role("link")


def test_a_view_is_saved_and_found_again_after_a_reload(page: Page, address: str) -> None:
    page.goto("/runs?q=status:failed+queue:mail")
    save(page, " mail that failed ")
    expect(page.locator("#toasts")).to_contain_text("View “mail that failed” saved")
    expect(page.get_by_role("button", name="Save view")).to_be_focused()
    page.reload()
    expect(views(page)).to_have_text(["mail that failed"])
    expect(views(page)).to_have_attribute("aria-current", "true")

    page.goto("/runs")
    expect(page.get_by_role("button", name="Save view")).to_have_count(0)  # nothing is filtered
    expect(views(page)).not_to_have_attribute("aria-current", "true")
    views(page).click()
    page.wait_for_url(f"{address}{FAILED}")
    expect(views(page)).to_have_attribute("aria-current", "true")


def test_a_view_of_the_same_name_is_replaced(page: Page) -> None:
    page.goto(FAILED)
    save(page, "mine")
    page.goto("/runs?status=succeeded")
    save(page, "mine")
    expect(views(page)).to_have_count(1)
    expect(views(page)).to_have_attribute("href", "/runs?status=succeeded")


def test_a_view_is_removed_and_the_message_brings_it_back(page: Page) -> None:
    page.goto(FAILED)
    for name in ("b", "c", "a"):
        save(page, name)
    expect(views(page)).to_have_text(["a", "b", "c"])
    page.get_by_role("button", name="Remove the view b").press("Enter")
    expect(views(page)).to_have_text(["a", "c"])
    expect(views(page).last).to_be_focused()
    page.reload()
    page.get_by_role("button", name="Remove the view c").press("Enter")
    expect(views(page)).to_be_focused()
    page.get_by_role("button", name="Remove the view a").press("Enter")
    expect(views(page)).to_have_count(0)
    expect(page.locator("#q")).to_be_focused()
    page.get_by_role("button", name="Undo").last.click()
    expect(views(page)).to_have_text(["a"])
    expect(views(page)).to_have_attribute("href", FAILED)


def test_a_hostile_name_is_shown_as_text(page: Page, complaints: list[str]) -> None:
    page.goto(FAILED)
    for name in (EVIL[:40], "__proto__"):
        save(page, name)
    page.reload()
    assert set(views(page).all_text_contents()) == {EVIL[:40], "__proto__"}
    assert page.locator("img, main script, main [onerror]").count() == 0
    assert not complaints


@pytest.mark.parametrize("kept", ["{", "7", "[[1, 2]]", '{"x": {"y": 1}}'])
def test_a_page_stands_whatever_the_storage_holds(kept: str, page: Page, complaints: list[str]) -> None:
    page.goto(FAILED)
    save(page, "mine")
    page.evaluate("kept => { for (const name of Object.keys(localStorage)) localStorage.setItem(name, kept) }", kept)
    page.reload()
    expect(page.get_by_role("button", name="Save view")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert not complaints


def test_a_view_needs_a_name_of_at_most_40_characters_and_there_are_at_most_20(page: Page) -> None:
    page.goto(FAILED)
    save(page, "x" * 50)
    expect(views(page)).to_have_text(["x" * 40])
    page.evaluate(
        """() => localStorage.setItem(Object.keys(localStorage)[0],
          JSON.stringify(Object.fromEntries([...Array(20).keys()].map(n => [`view ${n}`, '?status=failed']))))"""
    )
    page.reload()
    page.get_by_role("button", name="Save view").click()
    name = page.get_by_label("Name")
    for refused in ("  ", "one too many"):
        name.fill(refused)
        page.keyboard.press("Enter")
        expect(page.locator("#dialog")).to_be_visible()
    name.fill("view 7")
    page.keyboard.press("Enter")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(views(page)).to_have_count(20)
    expect(page.locator(".views [aria-current]")).to_have_text("view 7")


def test_the_link_of_a_page_is_copied_whole(page: Page, context: BrowserContext, address: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    path = f"{FAILED}&text={quote('né & co')}"
    page.goto(path)
    page.locator(".filters summary").click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("[data-do=copy-link]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"{address}{path}"


def test_views_fit_wide_and_on_a_phone_and_axe_finds_nothing(page: Page, complaints: list[str]) -> None:
    page.goto(FAILED)
    for name in ("mail that failed", "W" * 40, *(f"view {number}" for number in range(8))):
        save(page, name)
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        assert not sticking_out(page)
        assert not too_small(page, 38 if width < 800 else 24)
        assert not violations(page)
        page.get_by_role("button", name="Save view").click()
        assert not violations(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Save view")).to_be_focused()
    assert not complaints


@pytest.mark.parametrize(("width", "chip"), [(1440, ".head .live"), (390, ".bar .live"), (320, ".bar .live")])
def test_held_updates_say_so_in_sight_until_they_go_on(width: int, chip: str, page: Page, shop: Mainspring) -> None:
    page.set_viewport_size({"width": width, "height": 500})
    page.goto("/queues")
    note = page.locator("#held")
    expect(note).to_be_hidden()
    page.keyboard.press("p")
    expect(note).to_have_text("Updates are held since " + page.locator("#held b").inner_text() + "Resumep")
    expect(page.locator("#announce")).to_have_text("Updates are held")
    page.keyboard.press("End")
    expect(note).to_be_in_viewport(ratio=1)
    assert not sticking_out(page)
    assert not too_small(page, 38 if width < 800 else 24)
    shop.pause_queue("mail")
    page.wait_for_selector("[data-live=table][data-stale]", state="attached")

    note.get_by_role("button", name="Resume").press("Enter")

    expect(note).to_be_hidden()
    expect(page.locator(chip)).to_be_focused()
    expect(page.locator(chip)).to_contain_text("Live")
    expect(page.locator("tr[data-key=mail]")).to_contain_text("paused", timeout=LIMIT)
    shop.resume_queue("mail")


def test_the_clock_of_held_updates_stands_still(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    page.keyboard.press("p")
    page.locator(".head .live time").evaluate("node => { node.textContent = 'then' }")
    shop.pause_queue("exports")
    page.wait_for_selector("[data-live=table][data-stale]", state="attached")
    expect(page.locator(".head .live")).to_have_text("Heldthen")
    shop.resume_queue("exports")
