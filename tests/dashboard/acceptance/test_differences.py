"""Checks 6 and 11: what differs from the code; and that those who may only look change nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mainspring import Mainspring
from mainspring.dashboard import Accounts, DashboardApp, hash_password
from mainspring.dashboard.api.endpoints import ENDPOINTS, ROOT
from mainspring.dashboard.pages import PAGES
from tests.dashboard.acceptance.conftest import served
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.shop import make_shop, seed

LINKS_FOLLOWED = 22
ALL_LINKS = "[...document.querySelectorAll('a[href]')].map(each => each.getAttribute('href'))"
FREE_OR_SILENT = """() => [...document.querySelectorAll(
    'main button[form=acts], main form[data-act] button, main a[data-ask], main button[disabled]')]
  .filter(each => !each.disabled || !/needs the role “(operate|admin)”/.test(each.title))
  .map(each => each.outerHTML.slice(0, 200))"""
"""Which buttons act, or are disabled without the reason."""
POST = """async (paths) => {
  const answers = paths.map(path => fetch(path, { method: 'POST', body: new URLSearchParams({ typed: 'x' }) }));
  return (await Promise.all(answers)).map(answer => answer.status);
}"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """A shop with a past, from whose code one job has gone."""
    url = f"sqlite:///{tmp_path_factory.mktemp('differences')}/shop.db"
    before = make_shop(url)
    before.schedule("0 5 * * *", id="old-report")(before.as_task("shop.ops:backup"))
    seed(before)
    before.close()
    app = make_shop(url)
    yield app
    app.close()


@pytest.fixture(scope="module")
def address(shop: Mainspring) -> Iterator[str]:
    """Where its dashboard is."""
    with served(shop) as found:
        yield found


def test_check_6_a_change_by_hand_is_shown_and_taken_back(page: Page, shop: Mainspring) -> None:
    page.goto("/jobs?drift=yes")
    row = page.locator('tr[data-key="nightly-backup"]')
    expect(row.locator(".tag")).to_be_visible()
    expect(page.locator('tr[data-key="old-report"]')).to_contain_text("gone from the code")
    assert shop.get_job("old-report").id == "old-report", "it is listed, not removed"
    row.locator("a.name").click()
    page.wait_for_url("**/jobs/nightly-backup*")
    expect(page.locator("#diff tbody tr")).to_have_count(2)
    expect(page.locator("[data-live=differences]")).to_contain_text("Changed by admin")
    expect(page.locator("[data-live=differences]")).to_contain_text("slower since the media move")
    page.locator("[data-live=differences] .btn", has_text="Take the code").click()
    page.locator("#dialog .row button").click()
    expect(page.locator("#diff")).to_have_count(0, timeout=LIMIT)
    assert shop.get_job("nightly-backup").policy.timeout is None
    page.goto("/jobs?drift=yes")
    expect(page.locator('tr[data-key="nightly-backup"]')).to_have_count(0)


def _dump(app: Mainspring) -> list[str]:
    assert isinstance(app.url, str)
    connection = sqlite3.connect(Path(app.url.removeprefix("sqlite:///")))
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_check_11_who_may_only_look_changes_nothing_by_any_page_or_post(chromium: Browser, shop: Mainspring) -> None:
    accounts = Accounts({"vic": ("view", hash_password("secret of vic"))})
    with served(shop, DashboardApp(shop, accounts=accounts)) as address:
        page = chromium.new_page(base_url=address)
        page.set_default_timeout(LIMIT)
        page.goto("/jobs")
        page.locator("input[name=name]").fill("vic")
        page.locator("input[name=password]").fill("secret of vic")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs")
        before, left, seen = _dump(shop), ["/", "/jobs", "/runs", "/queues", "/errors", "/system", "/nodes"], set[str]()
        while left and len(seen) < LINKS_FOLLOWED:
            path = left.pop(0)
            shape = path.partition("?")[0].rpartition("/")[0] + str(path.count("/"))
            if path in seen or sum(each.startswith(shape[:-1]) for each in seen) > 8:
                continue
            seen.add(path)
            answer = page.goto(path)
            assert answer is not None
            assert answer.status in (200, 403, 404), path
            assert page.evaluate(FREE_OR_SILENT) == [], path
            left += [link for link in page.evaluate(ALL_LINKS) if link.startswith("/") and "static" not in link]
        names = {action.path for each in PAGES for action in each.actions}
        names |= {ROOT + each.path for each in ENDPOINTS if each.method == "POST"}
        assert set(page.evaluate(POST, [re.sub(r"\{\w+(:path)?\}", "x", path) for path in names])) == {403}
        assert _dump(shop) == before
        page.close()
