"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from mainspring.cli.common.reading import read_moment, read_past
from mainspring.core.instants import SECOND, to_us

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    "now",
    [
        datetime(2027, 3, 28, 0, 30, tzinfo=UTC),
        datetime(2027, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2027, 10, 31, 0, 30, tzinfo=UTC),
        datetime(2027, 10, 31, 1, 30, tzinfo=UTC),
    ],
    ids=["before it goes forward", "after it went forward", "before it goes back", "after it went back"],
)
def test_a_length_of_time_is_as_long_when_the_clock_changes(now: datetime) -> None:
    at = to_us(now)
    assert to_us(read_moment("1h", at, BERLIN)) == at + HOUR
    assert to_us(read_moment("in 5m", at, BERLIN)) == at + HOUR // 12
    assert to_us(read_past("1h ago", at, BERLIN)) == at - HOUR
    assert to_us(read_past("5m", at, BERLIN)) == at - HOUR // 12
