"""The keys of every list: what they select, what they open, and where the focus goes afterwards."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, expect

from mainspring import Mainspring

FOCUS = "document.activeElement.dataset.key || document.activeElement.tagName"


def test_a_star_and_a_choose_all_that_match_and_escape_chooses_none(page: Page) -> None:
    page.goto("/runs?status=failed")
    for key in ("j", "*", "a"):
        page.keyboard.press(key)
    expect(page.locator("[data-chosen]")).to_have_text("All that match")
    expect(page.locator("[data-all]")).to_be_checked()
    expect(page.get_by_text("on this page", exact=True)).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator(".bulk")).to_be_hidden()
    assert page.locator("tbody input:checked").count() == 0


def test_each_button_of_the_bulk_bar_says_how_many_it_can_change(page: Page, shop: Mainspring) -> None:
    page.goto("/runs?status=failed&status=waiting&since=1h")
    failed = page.locator("tbody tr", has_text="failed").locator("input").first
    waiting = page.locator("tbody tr", has_text="waiting").locator("input")
    failed.check()
    waiting.nth(0).check()
    waiting.nth(1).check()
    expect(page.locator(".bulk [data-verb]")).to_have_text(["Retry 1", "Cancel 2", "Move 2", "Delete 1"])
    failed.uncheck()
    expect(page.locator(".bulk [data-verb=retry]")).to_be_disabled()
    expect(page.locator(".bulk [data-verb=cancel]")).to_have_text("Cancel 2")


def test_a_selected_row_is_marked_as_selected(page: Page) -> None:
    page.goto("/runs")
    page.keyboard.press("j")
    before = page.evaluate("getComputedStyle(document.activeElement).backgroundColor")
    page.keyboard.press("x")
    page.mouse.move(0, 0)
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert page.evaluate("getComputedStyle(document.activeElement).backgroundColor") != before
    page.keyboard.press("x")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") is None


def test_a_dot_goes_to_the_actions_of_a_row_and_escape_comes_back(page: Page) -> None:
    page.goto("/runs?status=failed")
    page.keyboard.press("j")
    row = page.evaluate(FOCUS)
    page.keyboard.press(".")
    assert page.evaluate("document.activeElement.closest('.row-keys') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUS) == row
    page.goto("/jobs")
    page.keyboard.press("j")
    page.keyboard.press(".")
    expect(page.locator("details.menu[open]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("details.menu[open]")).to_have_count(0)
    assert page.evaluate(FOCUS) == "SUMMARY"


def test_what_needs_somebody_is_walked_and_opened(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("j")
    assert page.evaluate(FOCUS) == "job reconcile-stripe"
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/reconcile-stripe")


def test_groups_of_errors_are_walked_and_opened(page: Page) -> None:
    page.goto("/errors")
    page.keyboard.press("j")
    page.keyboard.press("j")
    key = page.evaluate(FOCUS)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/errors/{key}?**")


@pytest.mark.parametrize("mine", ["UTC", "Europe/Berlin", "Asia/Tokyo"])
def test_each_press_of_z_shows_another_zone(mine: str, chromium: Browser, address: str) -> None:
    context = chromium.new_context(base_url=address, timezone_id=mine)
    page = context.new_page()
    page.goto("/")
    seen = [page.evaluate("document.body.dataset.zone")]
    for _ in range(len({seen[0], mine, "UTC"})):
        page.keyboard.press("z")
        page.wait_for_function("before => (document.body?.dataset.zone ?? before) !== before", arg=seen[-1])
        page.wait_for_load_state()  # the keys work from then on
        seen.append(page.evaluate("document.body.dataset.zone"))
    assert seen[0] == seen[-1]
    assert all(one != other for one, other in pairwise(seen))
    context.close()


def test_a_busy_page_does_not_empty_itself_while_the_pointer_moves(page: Page) -> None:
    page.goto("/runs")
    kept = page.evaluate(
        """async () => {
          const { patchForTests } = await import(document.querySelector('script[type=module]').src)
          document.dispatchEvent(new Event('pointermove'))
          const region = document.querySelector('[data-live=table]')
          const before = region.querySelectorAll('tbody tr').length
          const page = new DOMParser().parseFromString(region.innerHTML, 'text/html')
          const rows = [...page.querySelectorAll('tbody tr')]
          rows.forEach((row, at) => { row.dataset.key = `new ${at}` })  // as many new runs as a page holds
          patchForTests('table', page.body.innerHTML, 'later')
          const said = document.querySelector('.newer').textContent.trim()
          return [before, region.querySelectorAll('tbody tr').length, said] }"""
    )
    assert kept[0] == kept[1]
    assert kept[2].startswith(f"{kept[0]}+ newer runs")
