"""The jobs of an app for pages: their health, their schedules in words, their last runs and their coming fires.

Viewing a page must change nothing, so unreadable jobs are only counted here (`app.jobs()` would set them aside).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.insight.health import JobHealth
from mainspring.core.job import Job
from mainspring.core.run import Status
from mainspring.core.schedules.clock_changes import changes_between
from mainspring.core.schedules.declaration import Difference
from mainspring.core.schedules.upcoming import LoadStep, expected_load
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.looks.charts import HeatBand
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.excluding import plain_trigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import zone_of

if TYPE_CHECKING:
    from mainspring.dashboard.page import View

__all__ = ["JobBoard", "Strip", "clock_band", "differences_of", "expression_of", "job_board", "load_ahead", "strip_of"]
__all__ += ["words_of"]

STRIP_RUNS: Final = 20
"""The number of runs in the strip of a job."""
BOARD_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 30.0
"""The seconds for which viewers share the result."""
_LETTERS: Final = {"succeeded": "s", "failed": "f", "broken": "f", "missed": "m", "cancelled": "c", "running": "r"}


class JobBoard(NamedTuple):
    """All readable jobs, the health of each, and the reasons why others are unreadable."""

    jobs: dict[str, Job]
    healths: dict[str, JobHealth]
    unreadable: dict[str, str]


class Strip(NamedTuple):
    """The last runs of a job, oldest first, as letters and heights, and in words."""

    letters: str
    shares: list[float]
    label: str
    last: RunView | None


def job_board(view: View) -> JobBoard:
    """Read all jobs and judge their health."""
    return view.cached("job board", BOARD_SECONDS, lambda: _read_board(view))


def _read_board(view: View) -> JobBoard:
    jobs, unreadable = view.app.store.examine_jobs()
    return JobBoard({job.id: job for job in jobs}, view.app.healths(jobs), unreadable)


def differences_of(view: View) -> dict[str, list[Difference]]:
    """Return the differences between code and store by job; empty if some jobs are unreadable here."""
    board = job_board(view)
    if board.unreadable:  # comparing would set them aside
        return {}
    found: dict[str, list[Difference]] = {}
    for each in view.cached("differences", LOAD_SECONDS / 10, view.app.differences):
        found.setdefault(each.job, []).append(each)
    return found


def words_of(trigger: BaseTrigger) -> str:
    """Return in words when a trigger fires, without the zone, which pages show beside it."""
    text, zone = trigger.describe(), trigger.timezone
    return text.replace(f", {zone}", "") if zone is not None else text


def expression_of(trigger: BaseTrigger) -> str:
    """Return the notation of a trigger, a crontab line if it is one; pages show its exclusions beside it in words."""
    trigger = plain_trigger(trigger)
    if isinstance(trigger, CronTrigger):
        fields = {field.name: str(field) for field in trigger.fields}
        if fields["year"] == fields["week"] == "*" and fields["second"] == "0":
            return " ".join(fields[name] for name in ("minute", "hour", "day", "month", "day_of_week"))
    if isinstance(trigger, IntervalTrigger):
        return f"interval {trigger.interval}"
    return str(trigger)


def strip_of(runs: Sequence[RunView]) -> Strip:
    """Make the strip from a job's newest runs, given newest first."""
    oldest_first = list(reversed(runs[:STRIP_RUNS]))
    longest = max((run.duration or 0.0 for run in oldest_first), default=0.0) or 1.0
    letters = "".join(_LETTERS.get(str(run.status), "-") for run in oldest_first)
    bad = sum(letter in "fm" for letter in letters)
    label = f"Last {len(letters)} runs: {len(letters) - bad} fine, {bad} failed or missed" if letters else "No run yet"
    shares = [0.0] * (STRIP_RUNS - len(letters)) + [(run.duration or 0.0) / longest for run in oldest_first]
    return Strip(letters.rjust(STRIP_RUNS, "-"), shares, label, runs[0] if runs else None)


def load_ahead(view: View, since: int, until: int, step: int) -> list[LoadStep]:
    """Return the slots that coming fires keep busy, if each run takes the median of its job's last successes."""

    def read() -> list[LoadStep]:
        jobs = list(job_board(view).jobs.values())
        usual = view.cached("usual durations", LOAD_SECONDS, lambda: _usual(view, jobs))
        return expected_load(jobs, usual, since, until, step, view.times.zone)

    return view.cached(f"load {since} {until} {step} {view.times.zone}", LOAD_SECONDS, read)


def _usual(view: View, jobs: Sequence[Job]) -> dict[str, float]:
    recent = view.app.recent([job.id for job in jobs], STRIP_RUNS)
    lengths = {
        job_id: [run.duration for run in runs if run.status is Status.SUCCEEDED and run.duration is not None]
        for job_id, runs in recent.items()
    }
    return {job_id: median(took) for job_id, took in lengths.items() if took}


def clock_band(view: View, since: int, until: int) -> HeatBand | None:
    """Return where the clock of the page's zone changes between two instants, as shares of the range."""
    change = next(changes_between(view.times.zone, since, until), None)
    if change is None:
        return None
    zone = zone_of(view.times.zone)
    by = zone.segment(change).offset - zone.segment(change - 1).offset
    length = until - since
    if by < 0:  # these clock times occur twice
        first, last = f"{view.times.local(change):%H:%M}", f"{view.times.local(change - by):%H:%M}"
        text = f"clocks go back: {first} to {last} comes twice"
        return HeatBand((change + by - since) / length, (change - by - since) / length, (change - since) / length, text)
    first = f"{view.times.local(change - 1):%H:%M}"
    text = f"clocks go forward at {view.times.local(change):%H:%M}: {first[:2]} is left out"
    return HeatBand((change - since) / length, (change + by // 4 - since) / length, (change - since) / length, text)
