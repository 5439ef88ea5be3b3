"""Check 7 without a browser: no page scans, each makes few round trips, however many runs there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.dashboard import PAGES, fill, first_byte
from mainspring import Mainspring
from mainspring.dashboard import DashboardApp, memo, summary
from mainspring.errors import StoreUnavailable
from tests.dashboard.shop import make_shop
from tests.dashboard.strict_store import StoreMeter, metered, multiply

RUNS = 2000
TIMES_MORE = 39
MOST_TRIPS = 6
"""Round trips of a page, besides what all viewers share for some seconds."""
MOST_INSTRUCTIONS = 350_000
"""What one trip may ask of SQLite: 1,000 runs, or a count among 15,000. One look at all 80,000 costs more."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    """A shop with 80,000 runs."""
    app = make_shop(f"sqlite:///{tmp_path}/shop.db")
    fill(app, RUNS)
    multiply(app, TIMES_MORE)
    yield app
    app.close()


def test_check_7_no_page_scans_and_each_makes_few_round_trips(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine, too, the second look finds what the first has left for it.
    for module in (memo, summary):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: 0.0))
    monkeypatch.setattr(memo.remembered_soon, "__defaults__", (60.0,))
    some = app.find(limit=200)
    names = {"run": some[100].id, "after": f"{some[150].record.created_at}.{some[150].id}"}
    dashboard, meter = DashboardApp(app), StoreMeter(MOST_INSTRUCTIONS)
    with metered(app, meter, monkeypatch):
        for path in PAGES:
            memo.forget(app)
            for _ in range(2):  # at first with all that viewers share, then alone
                meter.begin()
                _, status = asyncio.run(first_byte(dashboard, path.format(**names)))
                assert status == 200, path
            assert meter.trips <= MOST_TRIPS, (path, meter.trips)
        meter.begin()
        with pytest.raises(StoreUnavailable, match="interrupted"):  # it does refuse
            app.count(status="succeeded")
