"""Convert between instants (whole microseconds since 1970, UTC) and datetimes. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.triggers.zones import Zone

__all__ = ["EPOCH", "SECOND", "from_us", "to_us"]

SECOND: Final = 1_000_000
"""One second as a difference between two instants."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(moment: datetime, zone: Zone | None = None) -> int:
    """Turn a datetime into an instant; read a naive datetime as wall clock time in `zone`.

    Raise ValueError for a naive datetime without a `zone`.
    """
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{moment!r} has no time zone")
        wall = to_us(moment.replace(tzinfo=UTC))
        return zone.second_pass(wall) if moment.fold else zone.instant(wall)
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_us(us: int, tz: tzinfo = UTC) -> datetime:
    """Turn an instant into a datetime in `tz`."""
    if us < 0 or us % 1_000_000:
        return (EPOCH + timedelta(0, 0, us)).astimezone(tz)
    return datetime.fromtimestamp(us // 1_000_000, tz)
