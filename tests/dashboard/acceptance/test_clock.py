"""Check 5: the nights in which clocks change, as a person sees them. test_clock_changes.py says more."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import Browser, Page, expect

from mainspring import Mainspring
from mainspring.core.instants import to_us
from mainspring.testing.clock import VirtualClock
from tests.dashboard.acceptance.conftest import served
from tests.dashboard.browser.conftest import LIMIT

AXIS = "[data-live=ahead] svg text.mid"
TRACK_AXIS = ".track.axis svg text"


def _app(moment: datetime, zone: str) -> Mainspring:
    app = Mainspring("memory://", timezone=zone, clock=VirtualClock(to_us(moment)))

    @app.task(name="shop:backup")
    def backup() -> None: ...

    app.add_job(backup, "cron", hour=2, minute=30, id="nightly")
    app.add_job(backup, "cron", minute="*/30", id="often")
    return app


def _labels(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_check_5_the_clock_goes_back_in_berlin(chromium: Browser) -> None:
    with served(_app(datetime(2026, 10, 24, 20, 32, tzinfo=UTC), "Europe/Berlin")) as address:
        page = chromium.new_page(base_url=address)
        page.set_default_timeout(LIMIT)
        page.goto("/")
        expect(page.locator("[data-live=ahead]")).to_contain_text("02:00 to 03:00 comes twice")
        assert _labels(page, AXIS).count("02") == 2
        page.goto("/timeline")
        expect(page.locator(".explain")).to_contain_text("Clocks go back")
        assert sum(label.startswith("02") for label in _labels(page, TRACK_AXIS)) == 2
        expect(page.locator('.track[data-key="nightly"]')).to_contain_text("comes twice, fires once")
        page.goto("/jobs/nightly")
        assert page.locator("#fires .nm", has_text="Sun 25 Oct, 02:30").count() == 1
        page.goto("/jobs/often?fires=more")
        assert page.locator("#fires .nm", has_text="Sun 25 Oct, 02:30").count() == 2
        page.goto("/jobs/new?kind=cron&when=30+2+*+*+*&timezone=Europe/Berlin")
        expect(page.locator(".preview")).to_contain_text("comes twice")
        page.close()


def test_check_5_the_clock_goes_forward_in_berlin_and_by_half_an_hour_on_lord_howe(chromium: Browser) -> None:
    with served(_app(datetime(2027, 3, 27, 20, 32, tzinfo=UTC), "Europe/Berlin")) as address:
        page = chromium.new_page(base_url=address)
        page.set_default_timeout(LIMIT)
        page.goto("/")
        expect(page.locator("[data-live=ahead]")).to_contain_text("clocks go forward")
        assert "02" not in _labels(page, AXIS)
        page.goto("/jobs/nightly")
        expect(page.locator("#fires")).to_contain_text("does not exist that day")
        page.close()
    with served(_app(datetime(2027, 4, 3, 6, 0, tzinfo=UTC), "Australia/Lord_Howe")) as address:
        page = chromium.new_page(base_url=address)
        page.set_default_timeout(LIMIT)
        page.goto("/")
        expect(page.locator("[data-live=ahead]")).to_contain_text("01:30 to 02:00 comes twice")
        page.close()
