"""What happens elsewhere appears by itself, and nothing that a person holds is taken away."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mainspring import Mainspring
from mainspring.errors import StoreUnavailable
from tests.dashboard.browser.conftest import LIMIT

NOTE_PAUSED = """
  new MutationObserver(() => {
    if (document.querySelector('tr[data-key=mail]')?.textContent.includes('paused')) window.wasPaused = true;
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""


def test_a_queue_that_is_paused_elsewhere_shows_it_by_itself(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    row = page.locator("tr[data-key=mail]")
    expect(row).to_contain_text("flowing")

    shop.pause_queue("mail")

    expect(row).to_contain_text("paused", timeout=LIMIT)
    shop.resume_queue("mail")
    expect(row).to_contain_text("flowing", timeout=LIMIT)


def test_the_focus_stays_in_its_row_while_the_table_changes(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    row = page.locator("tr[data-key=mail]")
    row.focus()
    for number in range(3):
        (shop.pause_queue if number % 2 == 0 else shop.resume_queue)("mail")
        expect(row).to_contain_text("paused" if number % 2 == 0 else "flowing", timeout=LIMIT)
        assert page.evaluate("document.activeElement.dataset.key") == "mail"
    shop.resume_queue("mail")


def test_check_9_a_hundred_updates_of_a_region_keep_focus_and_rows(page: Page) -> None:
    page.goto("/queues")
    page.locator("tr[data-key=media]").focus()
    kept = page.evaluate(
        """async () => {
          const row = document.activeElement;
          const source = document.querySelector('[data-live=table]');
          const { patchForTests } = await import(document.querySelector('script[type=module]').src);
          const changed = (n) => source.innerHTML.replace(/>(\\d+)</g, `>${n}<`);
          for (let n = 0; n < 100; n++) patchForTests('table', changed(n), `h${n}`);
          return [document.activeElement === row, row.isConnected];
        }"""
    )
    assert kept == [True, True]


def test_check_9_selected_text_is_not_taken_away(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    name = page.locator("tr[data-key=mail] a.name")
    name.evaluate("node => getSelection().selectAllChildren(node)")
    shop.pause_queue("mail")
    page.wait_for_selector("[data-live=table][data-stale]", state="attached")
    assert page.evaluate("getSelection().toString()") == "mail"
    expect(page.locator("tr[data-key=mail]")).to_contain_text("flowing")

    page.evaluate("getSelection().removeAllRanges()")

    expect(page.locator("tr[data-key=mail]")).to_contain_text("paused", timeout=LIMIT)
    shop.resume_queue("mail")


def test_check_9_a_page_does_not_go_back_to_what_was_read_before_it(context: BrowserContext, shop: Mainspring) -> None:
    other, page = context.new_page(), context.new_page()
    shop.pause_queue("mail")
    other.goto("/queues")
    expect(other.locator("tr[data-key=mail]")).to_contain_text("paused")
    shop.resume_queue("mail")
    page.add_init_script(NOTE_PAUSED)
    page.goto("/queues")
    expect(other.locator("tr[data-key=mail]")).to_contain_text("flowing", timeout=LIMIT)
    expect(page.locator("tr[data-key=mail]")).to_contain_text("flowing")
    assert not page.evaluate("window.wasPaused")


def test_updates_can_be_held(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    page.keyboard.press("p")
    expect(page.locator(".head .live")).to_contain_text("Held")
    shop.pause_queue("mail")
    page.wait_for_selector("[data-live=table][data-stale]", state="attached")
    expect(page.locator("tr[data-key=mail]")).to_contain_text("flowing")
    page.keyboard.press("p")
    expect(page.locator("tr[data-key=mail]")).to_contain_text("paused", timeout=LIMIT)
    shop.resume_queue("mail")


def test_check_9_a_hidden_tab_opens_no_connection(context: BrowserContext) -> None:
    page = context.new_page()
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/queues")
    page.wait_for_load_state("load")
    page.wait_for_timeout(300)
    assert not [url for url in asked if "/live?" in url or "/live/" in url]


def test_check_9_a_store_that_goes_and_comes_back_says_so_by_itself(
    page: Page, shop: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto("/queues")
    page.wait_for_selector(".head .live")

    def gone(*args: object, **kwargs: object) -> int:
        raise StoreUnavailable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store, "beat", gone)
        expect(page.locator("#banner")).to_contain_text("does not answer", timeout=LIMIT)
        expect(page.locator("tr[data-key=mail]")).to_be_visible()  # the last that is known stays
        expect(page.locator(".head .live")).to_contain_text("Not live", timeout=LIMIT)
        answer = page.request.get("/queues")
        assert answer.status == 503
        assert page.request.get("/healthz").status == 503
    expect(page.locator("#banner")).to_be_empty(timeout=LIMIT)
    expect(page.locator(".head .live")).not_to_contain_text("Not live", timeout=LIMIT)
    shop.pause_queue("mail")
    expect(page.locator("tr[data-key=mail]")).to_contain_text("paused", timeout=LIMIT)
    shop.resume_queue("mail")


def test_the_title_of_the_tab_counts_what_needs_somebody(page: Page) -> None:
    page.goto("/")
    needs = page.locator(".todo .count text").text_content()
    assert page.title().startswith(f"({needs}) Overview")
