"""Questions, menus, toasts, selections and long texts, as a person with a mouse and keys meets them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from mainspring import Mainspring
from mainspring.core.run import Call, Run
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.browser.conftest import LIMIT

LONG = "x" * 900


@pytest.fixture(scope="module")
def address(shop: Mainspring) -> Iterator[str]:
    """A dashboard without an environment: what can be undone is done at once."""
    server = DashboardServer(DashboardApp(shop), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()


def style(place: Locator, name: str, pseudo: str = "") -> str:
    found: str = place.evaluate("(node, [name, pseudo]) => getComputedStyle(node, pseudo)[name]", [name, pseudo])
    return found


def test_a_selected_row_is_tinted(page: Page) -> None:
    page.goto("/runs?status=failed")
    rows = page.locator("tbody tr")
    rows.first.locator("input").check()
    page.mouse.move(0, 0)
    assert style(rows.first, "backgroundColor") != style(rows.nth(1), "backgroundColor")


def test_selected_runs_are_asked_about_in_a_dialog_over_the_page(page: Page) -> None:
    page.goto("/runs?status=failed")
    page.locator("tbody tr input").first.check()
    page.locator(".bulk button", has_text="Retry").click()
    expect(page.locator("#dialog")).to_contain_text("1 run can be sent back.")
    page.locator("#dialog [data-close]").click()
    expect(page.locator("[data-chosen]")).to_have_text("1 selected")
    page.locator("[data-all]").check()
    expect(page.locator(".bulk .chosen")).to_be_hidden()


def test_runs_that_cannot_be_moved_are_not_offered_to_be(page: Page) -> None:
    page.goto("/runs?status=failed")
    move = page.locator(".bulk button", has_text="Move")
    page.locator("tbody tr input").first.check()
    expect(move).to_be_disabled()
    expect(move).to_have_attribute("title", "none of the selected runs allows it")
    page.locator("[data-all]").check()
    move.click()
    expect(page.locator("#dialog")).to_contain_text(
        re.compile(r"No run can be moved\. \d+ are failed and stay as they are\.")
    )
    expect(page.locator("#dialog .row button")).to_have_count(0)


def test_a_backfill_counts_anew_when_its_range_is_changed(page: Page) -> None:
    page.goto("/jobs/nightly-backup")
    page.keyboard.press(".")
    page.locator(".sheet .btn", has_text="Backfill").click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text("There is nothing to run: 1 fire had a run.")
    expect(dialog.locator(".row button")).to_have_count(0)
    dialog.locator("[name=since]").fill("90d ago")
    dialog.locator("[name=since]").blur()
    expect(dialog.locator(".row button")).to_contain_text("fires", timeout=LIMIT)


def test_a_menu_closes_when_one_of_its_actions_asks(page: Page) -> None:
    page.goto("/queues/media")
    page.locator(".head-tools summary").click()
    page.locator(".sheet .btn", has_text="Limit").click()
    expect(page.locator("#dialog")).to_be_visible()
    expect(page.locator(".head-tools .sheet")).to_be_hidden()


def test_escape_closes_a_menu_and_gives_the_focus_back(page: Page) -> None:
    page.goto("/queues/media")
    page.keyboard.press(".")
    expect(page.locator(".head-tools .sheet")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".head-tools .sheet")).to_be_hidden()
    expect(page.locator(".head-tools summary")).to_be_focused()


def test_a_toast_has_a_mark(page: Page) -> None:
    page.goto("/jobs/fx-rates")
    page.locator(".head-tools .btn", has_text="Pause").click()
    expect(page.locator(".toast .m")).to_be_visible(timeout=LIMIT)
    page.locator(".toast button", has_text="Undo").click()
    expect(page.locator(".head-tools .btn", has_text="Pause")).to_be_visible(timeout=LIMIT)


def test_a_copied_id_is_confirmed(chromium: Browser, address: str) -> None:
    context = chromium.new_context(base_url=address, permissions=["clipboard-write"])
    page = context.new_page()
    page.goto("/runs/export03")
    page.locator(".crumbs [data-copy]").click()
    expect(page.locator(".toast")).to_contain_text("Copied", timeout=LIMIT)
    context.close()


def test_what_the_browser_does_not_let_copy_is_shown_to_be_selected(page: Page) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as without https
    page.goto("/runs/export03")
    page.locator(".crumbs [data-copy]").click()
    expect(page.locator(".toast.bad")).to_contain_text("Select it here: export03", timeout=LIMIT)


def test_the_tag_of_an_error_is_level_with_its_name(page: Page) -> None:
    page.goto("/errors")
    apart = page.evaluate(
        """() => { const tag = document.querySelector('.eg .tag'), middle = (node) => {
            const box = node.getBoundingClientRect(); return box.top + box.height / 2 }
          return Math.abs(middle(tag) - middle(tag.previousElementSibling)) }"""
    )
    assert apart <= 1.5


def test_a_hint_in_a_field_can_be_read_in_the_dark(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/jobs/new")
    muted = style(page.locator(".form small, .ask small").first, "color")
    assert style(page.locator("[name=timezone]"), "color", "::placeholder") == muted
    assert "mono" in style(page.locator("[name=when]"), "fontFamily").lower()


def test_what_is_chosen_is_seen_in_forced_colours(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    page.goto("/runs")
    page.locator("tbody tr input").first.check()
    for chosen in (".side [aria-current]", "tbody tr:first-child", ".facets [aria-current]"):
        assert style(page.locator(chosen).first, "outlineStyle") == "solid"
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("/")
    expect(page.locator(".palette li[aria-selected=true]")).to_be_visible(timeout=LIMIT)
    assert style(page.locator(".palette li[aria-selected=true]"), "outlineStyle") == "solid"


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard of things with very long names."""
    folder: Path = tmp_path_factory.mktemp("long")
    app = Mainspring(f"sqlite:///{folder}/s.db", name="shop" * 20, secret_key="k" * 32, env="production-eu-central-1")
    now = app.now()
    call = Call("shop:" + "a_function_with_a_long_name_" * 4, (), {"rows": list(range(900))})
    run = Run(id="long", call=call, queue="q" * 120, created_at=now, run_at=now, log=(LONG,))
    app.store.add_runs([app.store.pack_run(run)])
    with app.acting("somebody-with-a-long-name@a-long-domain.example.org", "because " * 60):
        app.pause_queue("q" * 120)
    server = DashboardServer(DashboardApp(app), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()
    app.close()


def test_long_names_arguments_and_lines_stay_in_their_places(page: Page, long: str) -> None:
    page.goto(f"{long}/runs/long")
    mark, title = page.locator(".title > .m").bounding_box(), page.locator("h1").bounding_box()
    assert mark is not None
    assert title is not None
    assert mark["x"] + mark["width"] <= title["x"]
    arguments = page.locator("pre.code.box").bounding_box()
    assert arguments is not None
    assert arguments["height"] <= 421
    assert page.locator(".log").evaluate("node => node.scrollWidth <= node.clientWidth")
    scope = page.locator(".scope").bounding_box()
    assert scope is not None
    assert scope["height"] < 60


@pytest.mark.parametrize("path", ["/queues", "/system", "/system/audit"])
def test_a_table_of_long_names_needs_no_scrolling(path: str, page: Page, long: str) -> None:
    page.goto(long + path)
    wide = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
    )
    assert wide == 0
