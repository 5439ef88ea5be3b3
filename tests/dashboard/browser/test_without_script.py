"""Links and forms do everything that scripts do; a phone needs two taps."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from mainspring import Mainspring
from tests.dashboard.browser.conftest import LIMIT


def test_check_12_without_scripts_one_filters_opens_pauses_and_retries(
    chromium: Browser, address: str, shop: Mainspring
) -> None:
    context = chromium.new_context(base_url=address, java_script_enabled=False)
    context.set_default_timeout(LIMIT)
    page = context.new_page()

    page.goto("/jobs")
    page.locator("input[name=q]").fill("nightly")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=nightly*")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody a.name").click()
    page.wait_for_url("**/jobs/nightly-backup")

    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("nightly-backup is paused")
    assert shop.get_job("nightly-backup").next_run_time is None
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#toasts")).to_contain_text("fires again")

    run = shop.find(status="failed", job="reconcile-stripe", limit=1)[0]
    page.goto(f"/runs/{run.id}")
    page.get_by_role("button", name="Retry").first.click()
    page.wait_for_load_state()
    assert shop.get(run.id).status == "pending"
    context.close()


def test_without_scripts_a_purge_is_asked_on_a_page_of_its_own(
    chromium: Browser, address: str, shop: Mainspring
) -> None:
    context = chromium.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto("/queues/media/purge")
    page.locator("input[name=typed]").fill("wrong")
    page.locator("main .row button").click()
    expect(page.locator("#toasts")).to_contain_text("Nothing was done")
    assert shop.count(queue="media", status="pending") > 0
    context.close()


def test_check_12_a_phone_pauses_a_job_in_two_taps(chromium: Browser, address: str, shop: Mainspring) -> None:
    context = chromium.new_context(
        base_url=address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    page.goto("/jobs")
    page.locator("tr[data-key=fx-rates] a.name").tap()
    page.wait_for_url("**/jobs/fx-rates")
    page.get_by_role("button", name="Pause").tap()
    expect(page.locator("#toasts .toast")).to_contain_text("fx-rates is paused")
    assert shop.get_job("fx-rates").next_run_time is None
    shop.resume_job("fx-rates")
    context.close()
