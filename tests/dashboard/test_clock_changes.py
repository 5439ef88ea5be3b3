"""The night in which the clock goes back, and the one in which it goes forward, as pages show them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from mainspring import Mainspring
from mainspring.core.instants import to_us
from mainspring.dashboard import DashboardApp
from mainspring.testing.clock import VirtualClock
from tests.dashboard.client import Client


def client_at(moment: datetime, zone: str) -> Client:
    app = Mainspring("memory://", timezone=zone, clock=VirtualClock(to_us(moment)))

    @app.task(name="shop:backup")
    def backup() -> None: ...

    app.add_job(backup, "cron", hour=2, minute=30, id="nightly")
    app.add_job(backup, "cron", minute="*/30", id="often")
    return Client(DashboardApp(app))


def axis(text: str) -> list[str]:
    """Return the labels below the strip of the next day."""
    region = text[text.index('data-live="ahead"') :]
    return re.findall(r'<text class="mid[^"]*" x="[^"]*" y="81">([^<]*)</text>', region)


def test_when_the_clock_goes_back_two_comes_twice() -> None:
    client = client_at(datetime(2026, 10, 24, 12, 32, tzinfo=UTC), "Europe/Berlin")

    text = client.get("/").text

    assert "clocks go back: 02:00 to 03:00 comes twice" in text
    assert axis(text).count("02") == 2
    once = client.get("/jobs/nightly").words
    assert once.count("Sun 25 Oct, 02:30") == 1
    assert "comes twice" in once
    often = client_at(datetime(2026, 10, 24, 23, 40, tzinfo=UTC), "Europe/Berlin").get("/jobs/often").words
    assert [often.count(f"Sun 25 Oct, {time}") for time in ("02:00", "02:30", "03:00")] == [2, 2, 1]


def test_when_the_clock_goes_forward_an_hour_is_left_out() -> None:
    client = client_at(datetime(2027, 3, 27, 12, 32, tzinfo=UTC), "Europe/Berlin")

    text = client.get("/").text

    assert "clocks go forward" in text
    assert "02" not in axis(text)
    assert "does not exist that day" in client.get("/jobs/nightly").words


def test_lord_howe_moves_by_half_an_hour() -> None:
    client = client_at(datetime(2027, 4, 3, 6, 0, tzinfo=UTC), "Australia/Lord_Howe")
    assert "clocks go back: 01:30 to 02:00 comes twice" in client.get("/").text


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_where_no_clock_changes_nothing_is_said(zone: str) -> None:
    text = client_at(datetime(2026, 10, 24, 12, 32, tzinfo=UTC), zone).get("/").text
    assert "clocks go" not in text
