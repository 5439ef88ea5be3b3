"""The schedules of the demo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mainspring.cli.demo.shop import add_late_job, add_schedules, make_shop
from mainspring.triggers.date import DateTrigger
from tests.cli.kit import KEY

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "now",
    [datetime(2027, 3, 28, 1, 30, tzinfo=UTC), datetime(2027, 10, 31, 1, 30, tzinfo=UTC)],
    ids=["forward", "back"],
)
def test_a_job_of_the_demo_is_late_and_another_is_due_soon_when_the_clock_was_changed(now: datetime) -> None:
    app = make_shop("memory://", KEY)
    add_schedules(app, now.astimezone(BERLIN))
    add_late_job(app, now.astimezone(BERLIN))
    app.reconcile()
    late, soon = (app.get_job(job_id).trigger for job_id in ("too late", "date"))
    assert isinstance(late, DateTrigger)
    assert isinstance(soon, DateTrigger)
    assert late.run_date.astimezone(UTC) == now - timedelta(hours=1)
    assert soon.run_date.astimezone(UTC) == now + timedelta(seconds=1)
