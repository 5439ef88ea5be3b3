"""Find the changes of a local clock (such as to summer time) and their effects on the fires around them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from itertools import islice
from typing import Final

from mainspring.core.instants import SECOND
from mainspring.core.schedules.upcoming import fires_from
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.clock_notes import ClockNote, clock_note
from mainspring.triggers.zones import zone_of

__all__ = ["changes_between", "notes_between"]

AROUND_US: Final = 3 * 3600 * SECOND
"""A change of the clock may affect fires that are this near to it."""
DAY_US: Final = 86_400 * SECOND
MOST_FIRES: Final = 200
"""Look at no more fires than this around one change."""


def changes_between(zone: tzinfo, since: int, until: int) -> Iterator[int]:
    """Yield the instants at which the clock of a zone changes."""
    spans, at = zone_of(zone), since
    offset = spans.segment(since).offset
    while (at := spans.segment(at).end) <= until:
        if spans.segment(at).offset != offset:
            offset = spans.segment(at).offset
            yield at


def notes_between(
    trigger: BaseTrigger, since: int, until: int, most: int = MOST_FIRES
) -> Iterator[tuple[int, ClockNote]]:
    """Yield the fires of a trigger that a change of the clock affects; look at up to `most` around each change."""
    if trigger.timezone is None:
        return
    for change in changes_between(trigger.timezone, since, until):
        # An interval of a day or a week shifts at its first fire after the change, however much later that is.
        first, end = trigger.first_fire(max(since, change - AROUND_US)), min(until, change + AROUND_US + DAY_US)
        previous = None
        for fire in islice(fires_from(trigger, first, end + 1), most):
            note = clock_note(trigger, fire, previous)
            if note is not None:
                yield fire, note
            previous = fire
