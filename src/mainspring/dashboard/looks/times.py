"""Times and durations for pages: each is a `<time>` with the exact moment in its title."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from markupsafe import Markup

from mainspring.core.insight.wording import took
from mainspring.core.instants import SECOND, from_us, to_us

__all__ = ["Times", "brief_length", "zone_of"]

_DAY_US: Final = 86_400 * SECOND
NO_TIME: Final = "\u2013"


def brief_length(us: float) -> str:
    """Return a duration in few words: `0.4 s`, `15 min`, `6 min 12 s`, `1 d 4 h`."""
    return took(int(us)).removesuffix(" 0 s").removesuffix(" 0 min").removesuffix(" 0 h")


class Times:
    """A writer of instants (microseconds) in one zone. The browser updates ticking ones by `data-at`."""

    def __init__(self, zone: tzinfo, now: int) -> None:
        self.zone, self.now = zone, now

    def local(self, us: int) -> datetime:
        """Return an instant in the zone of the page."""
        return from_us(us).astimezone(self.zone)

    def exact(self, us: int) -> str:
        """Return an instant in full, for titles."""
        return f"{self.local(us):%a %-d %b %Y, %H:%M:%S %Z}"

    def text(self, us: int) -> str:
        """Return an instant in short: the clock for today, the weekday for a near day, else the date."""
        moment, today = self.local(us), self.local(self.now)
        if moment.date() == today.date():
            return f"{moment:%H:%M:%S}"
        if abs(us - self.now) < 6 * _DAY_US:
            return f"{moment:%a %H:%M}"
        return f"{moment:%-d %b %H:%M}" if moment.year == today.year else f"{moment:%-d %b %Y}"

    def clock(self, us: int | None) -> Markup | str:
        """Show a moment without its seconds."""
        if us is None:
            return NO_TIME
        today = self.local(us).date() == self.local(self.now).date()
        return self._time(us, f"{self.local(us):%H:%M}" if today else self.text(us))

    def day(self, us: int) -> Markup:
        """Show a moment with its day, so that all cells of a column look alike."""
        moment = self.local(us)
        year = "" if moment.year == self.local(self.now).year else " %Y"
        return self._time(
            us, moment.strftime(f"%a %-d %b{year}, %H:%M:%S" if moment.second else f"%a %-d %b{year}, %H:%M")
        )

    def at(self, us: int | None) -> Markup | str:
        """Show a moment."""
        return NO_TIME if us is None else self._time(us, self.text(us))

    def ago(self, us: int | None) -> Markup | str:
        """Show the age of a moment; it ticks."""
        return NO_TIME if us is None else self._time(us, f"{brief_length(max(0, self.now - us))} ago", "ago")

    def age(self, us: int | None) -> Markup | str:
        """Show the time that has passed since a moment; it ticks."""
        return NO_TIME if us is None else self._time(us, brief_length(max(0, self.now - us)), "age")

    def left(self, us: int | None) -> Markup | str:
        """Show the time until a moment: `in 7 min 53 s`; it ticks."""
        if us is None:
            return NO_TIME
        late = self.now - us
        return self._time(us, f"in {brief_length(-late)}" if late < 0 else "due", "left")

    def countdown(self, us: int | None) -> Markup | str:
        """Show the time until a moment, without `in`; it ticks."""
        return (
            NO_TIME if us is None else self._time(us, brief_length(us - self.now) if us > self.now else "due", "down")
        )

    def span(self, us: float | None) -> str:
        """Show a duration in microseconds."""
        return NO_TIME if us is None else brief_length(us)

    def seconds(self, seconds: float | None) -> str:
        """Show a duration in seconds."""
        return NO_TIME if seconds is None else brief_length(seconds * SECOND)

    def moment(self, moment: datetime | None) -> Markup | str:
        """Show a datetime."""
        return self.at(None if moment is None else to_us(moment))

    def _time(self, us: int, text: str, tick: str = "") -> Markup:
        ticking = Markup(' data-at="{}" data-tick="{}"').format(us, tick) if tick else ""
        iso = self.local(us).isoformat()
        return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(iso, self.exact(us), ticking, text)


@lru_cache(maxsize=64)
def _named(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        return None


def zone_of(name: str, default: tzinfo) -> tzinfo:
    """Return the zone of this name, or the default for an empty or unknown one."""
    if name.lower() == "utc":
        return UTC
    return (_named(name) if 0 < len(name) < 64 else None) or default
