"""Describe a start for the log: one line for an app, a block for the workers of a machine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mainspring import __version__
from mainspring.core.insight.wording import due, listed, moment, several
from mainspring.core.showing.redaction import without_password
from mainspring.core.waiting.flows import OWN_TASKS

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job

__all__ = ["hint_at_log", "one_line", "start_block"]

MOST_NAMED: Final = 20
"""Name at most this many tasks, queues or schedules."""


def one_line(app: Mainspring, queues: Iterable[str], node_id: str) -> str:
    """Return one line about a started app: version, store, queues, tasks, schedules, node."""
    served = f"queues {listed(list(queues), MOST_NAMED)}" if queues else "no queues (it only schedules)"
    schedules = several(app.jobs.declared, "declared schedule")
    with suppress(OSError):  # start even if the store has stopped answering
        jobs = [(job.at, job.id) for job in _schedules(app) if job.at is not None]
        if jobs:
            at, job_id = min(jobs)
            now = app.now()
            when = moment(at, app.timezone, now)
            schedules += f", next {job_id} at {when}" if at > now else f", {job_id} overdue since {when}"
    store, tasks = without_password(app.url), several(len(_tasks(app)), "task")
    return f"mainspring {__version__}: store {store}; {served}; {tasks}, {schedules}; node {node_id}"


def hint_at_log() -> None:
    """Print a hint about logging on a terminal if the program has not configured logging."""
    if sys.stderr is not None and sys.stderr.isatty() and not logging.getLogger("mainspring").hasHandlers():
        print(
            "mainspring runs until Ctrl-C. No log is set up, so only warnings are shown here; to see each run, call\n"
            '  logging.basicConfig(level="INFO")',
            file=sys.stderr,
        )


def start_block(app: Mainspring, *, queues: Sequence[str], fires: bool, processes: str) -> str:
    """Return a few lines about the workers of a machine."""
    lines = [("store", without_password(app.url)), ("queues", listed(queues, MOST_NAMED))]
    tasks = _tasks(app)
    lines.append(("tasks", f"{len(tasks)}: {listed(tasks, MOST_NAMED)}" if tasks else "none"))
    lines += _schedule_lines(app) if fires else [("schedules", "not fired here (--no-schedule)")]
    lines.append(("processes", processes))
    return "\n".join([f"mainspring {__version__}", *(f"  {name:<10} {text}".rstrip() for name, text in lines)])


def _schedule_lines(app: Mainspring) -> list[tuple[str, str]]:
    """Return when each declared schedule fires next, and how many other jobs the store has, if it answers."""
    try:
        now, jobs, stored = app.now(), _schedules(app), app.store.stats().jobs
    except OSError as error:  # the workers log this, too, and wait for the store
        return [("schedules", f"{several(app.jobs.declared, 'declared schedule')}; the store does not answer: {error}")]
    others = stored - len(jobs) if app.jobs.declared <= MOST_NAMED else 0
    wide = max((len(job.id) for job in jobs), default=0)
    lines = []
    for job in sorted(jobs, key=lambda job: (job.at is None, job.at or 0)):
        at = "paused" if job.at is None else due(job.at, app.timezone, now)
        lines.append(f"{job.id:<{wide}}  {job.trigger.describe()}; {at}")
    if app.jobs.declared > MOST_NAMED:
        lines.append(f"and {app.jobs.declared - MOST_NAMED} more")
    if others > 0:
        lines.append(f"{'and ' if lines else ''}{several(others, 'job')} added by hand")
    return [("schedules" if not number else "", line) for number, line in enumerate(lines or ["none"])]


def _schedules(app: Mainspring) -> list[Job]:
    """Return the first declared schedules as they are stored."""
    found = [app.store.lookup_job(job_id) for job_id in app.jobs.declared_ids[:MOST_NAMED]]
    return [job for job in found if job is not None]


def _tasks(app: Mainspring) -> list[str]:
    """Return the names of the user's tasks."""
    names = (task.name for task in app.tasks if task.name not in OWN_TASKS)
    return sorted(name for name in names if not name.startswith("mainspring."))
