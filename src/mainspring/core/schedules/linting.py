"""Find likely mistakes in a schedule before they do harm. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import Final, NamedTuple

from mainspring.core.insight.wording import took
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.schedules.clock_changes import notes_between
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.excluding import ExcludingTrigger, plain_trigger

__all__ = ["CROWD", "LINT_LOGGER", "ScheduleIssue", "check_possible", "issues_of", "issues_together"]

LINT_LOGGER: Final = "mainspring.schedules"
"""The logger for the issues of declared schedules; commands that only read silence it."""
YEAR_US: Final = 366 * 86_400 * SECOND
FIRES_LINTED: Final = 40
"""Look at this many fires around a change of the clock: enough for a job that does not fire every few minutes."""
CROWD: Final = 10
"""Warn if at least this many jobs fire at the same instant."""


_OVERLAPPING: Final = {
    "skip": "are missed, since max_instances is 1",
    "queue": "wait ever longer, since overlap is queue",
    "cancel_other": "cancel the runs before them, since overlap is cancel_other",
}
"""The effect of fires that come faster than their runs end."""


class ScheduleIssue(NamedTuple):
    """A likely mistake, and the remedy; `kind` is `over`, `gap`, `twice`, `stale`, `short` or `crowd`."""

    kind: str
    text: str
    advice: str


def check_possible(trigger: BaseTrigger) -> None:
    """Raise ValueError if no date can ever match a schedule, such as the 30th of February."""
    plain = plain_trigger(trigger)
    if isinstance(plain, CronTrigger) and plain.impossible:
        raise ValueError(f"this schedule can never fire: {plain.describe()}; no date matches it")


def issues_of(job: Job, now: int, usual_seconds: float | None = None) -> list[ScheduleIssue]:
    """Return the likely mistakes in one schedule for the year ahead; none if a trigger of the user's fails."""
    try:
        return list(_issues(job, now, usual_seconds))
    except Exception:  # firing the job reports it
        return []


def _issues(job: Job, now: int, usual_seconds: float | None) -> Iterator[ScheduleIssue]:
    trigger = job.trigger
    first = trigger.first_fire(now)
    if first is None:
        if isinstance(plain_trigger(trigger), CronTrigger):
            yield ScheduleIssue(
                "over", f"it never fires again: {trigger.describe()}", "correct its dates, or remove it"
            )
        return
    yield from _clock_issues(trigger, now)
    yield from _exclusion_issues(trigger, now)
    following = trigger.next_fire(first, first)
    if usual_seconds is not None and following is not None and following - first < usual_seconds * SECOND:
        missed = _OVERLAPPING[job.overlap] if job.max_instances == 1 else "overlap"
        yield ScheduleIssue(
            "short",
            f"it fires every {took(following - first)}, and its runs usually take {took(int(usual_seconds * SECOND))}: "
            f"fires {missed}",
            "let it fire less often, or raise max_instances",
        )


def _exclusion_issues(trigger: BaseTrigger, now: int) -> Iterator[ScheduleIssue]:
    """Yield an issue if all excluded dates are over: a list of this year's holidays needs those of the next year."""
    if not isinstance(trigger, ExcludingTrigger):
        return
    last = trigger.exclude.last_date()
    if last is not None and last < from_us(now, trigger.timezone).date():
        text = f"the dates that it excludes are over: the last was {last}"
        yield ScheduleIssue("stale", text, "list those of the coming years, or leave them out")


def _clock_issues(trigger: BaseTrigger, now: int) -> Iterator[ScheduleIssue]:
    """Yield an issue for the first fire that a change of the clock skips, and for the first that it would repeat."""
    told: set[str] = set()
    for at, note in notes_between(trigger, now, now + YEAR_US, FIRES_LINTED):
        kind = {"gap": "gap", "once": "twice"}.get(note.kind)
        if kind is not None and kind not in told:
            told.add(kind)
            day = from_us(at).astimezone(trigger.timezone)
            advice = "choose a time that every day has once, or timezone='UTC'"
            yield ScheduleIssue(kind, f"on {day:%Y-%m-%d} ({trigger.timezone}) {note.text}", advice)


def issues_together(jobs: Iterable[Job], now: int, zone: tzinfo) -> Iterator[ScheduleIssue]:
    """Yield the coming instants at which many jobs fire together; jobs with jitter spread by themselves."""
    together: defaultdict[int, list[str]] = defaultdict(list)
    for job in jobs:
        if job.at is not None and job.at >= now and not job.trigger.jitter:
            together[job.at].append(job.id)
    for at, names in sorted(together.items()):
        if len(names) >= CROWD:
            shown = ", ".join(repr(name) for name in sorted(names)[:3])
            text = f"{len(names)} jobs fire at the same instant, {from_us(at, zone):%a %H:%M:%S %Z}: {shown}, ..."
            yield ScheduleIssue("crowd", text, "spread them, or give them jitter=60")
