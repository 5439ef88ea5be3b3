"""Without a mouse: walk, open, act, search, and leave again."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from mainspring import Mainspring
from tests.dashboard.browser.conftest import LIMIT


def test_two_keys_lead_to_a_page(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_check_10_rows_are_walked_and_opened(page: Page) -> None:
    page.goto("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    first = page.evaluate("document.activeElement.dataset.key")
    assert first == "reconcile-stripe"
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/reconcile-stripe")


def test_the_palette_finds_a_job_and_goes_there(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("nightly")
    expect(page.locator("#palette .found li").first).to_contain_text("nightly-backup", timeout=LIMIT)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/nightly-backup")


def test_the_keys_are_told_and_can_be_switched_off(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.locator("[data-do=keys-off]").check()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()


def test_check_10_a_failed_run_is_selected_and_retried_without_a_mouse(page: Page, shop: Mainspring) -> None:
    run = shop.find(status="failed", job="expire-carts", limit=1)[0]
    page.goto(f"/runs?id={run.id}")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-chosen]")).to_have_text("1 selected")
    page.keyboard.press("x")
    page.keyboard.press("r")
    expect(page.locator("#toasts .toast")).to_be_visible(timeout=LIMIT)
    assert shop.get(run.id).status != "failed"


def test_a_dialog_takes_the_focus_and_gives_it_back(page: Page) -> None:
    page.goto("/queues")
    row = page.locator("tr[data-key=mail]")
    row.focus()
    purge = row.locator("a[data-ask]")
    purge.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible(timeout=LIMIT)
    assert dialog.evaluate("node => node.contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert purge.evaluate("node => node === document.activeElement")


def test_what_cannot_be_undone_has_to_be_typed(page: Page, shop: Mainspring) -> None:
    page.goto("/queues")
    page.locator("tr[data-key=exports] a[data-ask]").dispatch_event("click")
    button = page.locator("#dialog .row button")
    expect(button).to_be_disabled(timeout=LIMIT)
    page.locator("#dialog input[name=typed]").fill("export")
    expect(button).to_be_disabled()
    page.locator("#dialog input[name=typed]").fill("exports")
    page.locator("#dialog input[name=why]").fill("a test")
    button.click()
    expect(page.locator("#toasts .toast")).to_contain_text("12 runs of exports cancelled", timeout=LIMIT)
    act = shop.audit(kind="queue", target="exports", limit=1)[0]
    assert (act.verb, act.why) == ("purge", "a test")


def test_the_form_says_as_one_types_when_a_job_would_fire(page: Page) -> None:
    page.goto("/jobs/new")
    page.locator("input[name=when]").fill("30 2 * * mon-fri")
    expect(page.locator(".preview")).to_contain_text("every weekday at 02:30", timeout=LIMIT)
    page.locator("input[name=when]").fill("99 2 * * *")
    expect(page.locator(".preview .notice.bad")).to_be_visible(timeout=LIMIT)


def test_a_job_is_added_changed_paused_and_removed(page: Page, shop: Mainspring) -> None:
    page.goto("/jobs/new")
    page.locator("input[name=task]").fill("shop.ops:backup")
    page.locator("input[name=id]").fill("by-hand")
    page.locator("input[name=when]").fill("0 5 * * *")
    page.locator("textarea[name=arguments]").fill('bucket="cold"\nkeep=30')
    page.get_by_role("button", name="Add job").click()
    page.wait_for_url("**/jobs/by-hand")
    assert dict(shop.get_job("by-hand").kwargs) == {"bucket": "cold", "keep": 30}

    page.goto("/jobs/by-hand/edit")
    page.locator("input[name=when]").fill("0 6 * * *")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/jobs/by-hand")
    expect(page.locator("h1")).to_have_text("by-hand")
    expect(page.locator(".sub")).to_contain_text("every day at 06:00", timeout=LIMIT)

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=LIMIT)
    assert shop.get_job("by-hand").next_run_time is None

    page.goto("/jobs/by-hand/remove")
    page.locator("input[name=typed]").fill("by-hand")
    page.get_by_role("button", name="Remove it").click()
    page.wait_for_url("**/jobs")
    assert "by-hand" not in {job.id for job in shop.jobs()}
