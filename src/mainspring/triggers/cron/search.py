"""Turn wall clock seconds into instants: find the next fire of a schedule in a zone, and count those between instants.

A schedule whose hour starts with `*` runs in real time: it fires at every instant whose wall clock matches. Any other
schedule runs by the wall clock: each matching wall time fires once, at the first instant at which the local clock shows
that time or a later one.
"""

from __future__ import annotations

from mainspring.core.instants import SECOND
from mainspring.triggers.cron.schedule import CronSchedule
from mainspring.triggers.zones import DAY, MAX_INSTANT, Zone

__all__ = ["count_fires", "latest_fires", "next_instant"]


def next_instant(schedule: CronSchedule, zone: Zone, after: int) -> int | None:
    """Return the first fire after an instant, or None."""
    if schedule.real_time:
        fire = _next_in_real_time(schedule, zone, after + 1)
    else:
        _, end, offset, high = zone.segment(after)
        wall = schedule.next_wall(max(after + offset, high) // SECOND + 1)
        if wall is None:
            return None
        wall *= SECOND
        fire = wall - offset if wall < end + offset else zone.instant(wall)
    return fire if fire is not None and fire <= MAX_INSTANT else None


def _next_in_real_time(schedule: CronSchedule, zone: Zone, instant: int) -> int | None:
    while instant <= MAX_INSTANT:
        _, end, offset, _ = zone.segment(instant)
        wall = schedule.next_wall(-(-(instant + offset) // SECOND))
        if wall is not None and wall * SECOND - offset < end:
            return wall * SECOND - offset
        if end < instant + 2 * DAY:
            instant = end  # the clock may be set back there, and show earlier times again
        elif wall is None:
            return None
        else:
            instant = max(end, wall * SECOND - DAY)
    return None


def count_fires(schedule: CronSchedule, zone: Zone, after: int, until: int) -> int:
    """Count the fires of `after < fire <= until`, with one step for each change of offset between them."""
    total = 0
    begin = after + 1
    while begin <= until:
        start, end, offset, high = zone.segment(begin)
        stop = min(end, until + 1)
        if schedule.real_time:
            total += schedule.count(-(-(begin + offset) // SECOND), -(-(stop + offset) // SECOND))
        else:
            low = begin - 1 + offset  # walls up to this one are counted already
            if low < high:
                low = high
            elif begin == start and high < start + offset:
                # A gap ends here: all walls that it skipped fire once, together with the wall at its end.
                total += schedule.count(high // SECOND + 1, (start + offset) // SECOND + 1) > 0
                low = start + offset
            total += schedule.count(low // SECOND + 1, (stop - 1 + offset) // SECOND + 1)
        begin = stop
    return total


def latest_fires(schedule: CronSchedule, zone: Zone, after: int, until: int, limit: int) -> list[int]:
    """List the latest `limit` fires of `after < fire <= until`, ascending, without walking through the others."""
    if not limit:
        return []
    many, few = after, until
    width = SECOND
    while few - many > 1:
        start = until - width if many < until - width < few else (many + few) // 2
        count = count_fires(schedule, zone, start, until)
        if count < limit:
            few, width = start, width * 4
        elif count > limit + 64:
            many = start
        else:
            many = start
            break
    fires: list[int] = []
    fire = next_instant(schedule, zone, many)
    while fire is not None and fire <= until:
        fires.append(fire)
        fire = next_instant(schedule, zone, fire)
    return fires[-limit:]
