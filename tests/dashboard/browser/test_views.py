"""Updates that a person holds say so until they go on."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from mainspring import Mainspring
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.browser.test_looks import sticking_out, too_small


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
