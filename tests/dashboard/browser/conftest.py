"""A real Chromium, and a dashboard that it looks at: one of each for a module."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from mainspring import Mainspring
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.shop import make_shop, seed, seed_flow

LIMIT = 90_000
"""Milliseconds to wait for something on a busy machine."""
REPORT_VIOLATIONS = (
    "addEventListener('securitypolicyviolation', e => console.error('policy', e.violatedDirective, e.blockedURI))"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    program = shutil.which("chromium")
    if program is None:
        message = "Chromium is missing. Install it: apt-get install chromium"
        if os.environ.get("MAINSPRING_STRICT") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    # For a module only: while it runs, this thread has an event loop, and other tests start their own.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mainspring]:
    """A shop with a past; nobody works in it, so nothing happens but what a test does."""
    app = make_shop(f"sqlite:///{tmp_path_factory.mktemp('shop')}/shop.db")
    seed(app)
    seed_flow(app)
    yield app
    app.close()


@pytest.fixture(scope="module")
def address(shop: Mainspring) -> Iterator[str]:
    """Where the dashboard of the shop is."""
    server = DashboardServer(DashboardApp(shop, env="staging"), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser wrote to its console."""
    return []


@pytest.fixture
def context(chromium: Browser, address: str) -> Iterator[BrowserContext]:
    """A fresh visitor."""
    context = chromium.new_context(base_url=address, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(LIMIT)
    context.add_init_script(REPORT_VIOLATIONS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, complaints: list[str]) -> Page:
    """A tab of that visitor."""
    return watched(context.new_page(), complaints)


def watched(page: Page, complaints: list[str]) -> Page:
    """Note what a page writes to its console, and its errors."""

    def note(message: ConsoleMessage) -> None:
        complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page


def shots() -> Path | None:
    """Return the folder that pictures go to, if somebody wants them."""
    folder = os.environ.get("MAINSPRING_SHOTS")
    if not folder:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)
