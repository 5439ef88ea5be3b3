"""Fires that wait until earlier runs of their jobs have ended, and the runs that such a fire cancels.

A fire that waits is not written anywhere: its job stays due, and a scheduler looks at it again when the store shows it
next, or at once if a run of it ends on this node. So whatever process dies in between, the fire is neither lost nor
made twice.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from mainspring.core.insight.acts import Act, act_id
from mainspring.core.plan import SUPERSEDED, DueJob, superseded
from mainspring.core.run import UNFINISHED, WAITING, Report, Result, Run, Status
from mainspring.core.transitions import cancel
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.finding import count_unfinished
from mainspring.node.settling import Settler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.node.store_link import StoreLink

__all__ = ["WaitingFires"]

MOST_CANCELLED: Final = 1000
"""Runs of a job that one look considers."""

log = logging.getLogger("mainspring.scheduler")


class WaitingFires:
    """The jobs that this node has read as due and whose fires wait."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._waiting: dict[str, DueJob] = {}
        self._ended: deque[str] = deque()
        """The jobs of which a run has ended meanwhile; other threads append to it."""

    def add(self, due: DueJob) -> None:
        """Remember a job whose fire waits."""
        self._waiting[due.job.id] = due

    def note_ended(self, reports: Iterable[Report]) -> None:
        """Look again soon at the jobs for whose runs a fire waits here; any thread may tell."""
        if not self._waiting:
            return
        ids = {report.run.job_id for report in reports}
        ended = {job_id for job_id in ids if job_id is not None and job_id in self._waiting}
        if ended:
            self._ended.extend(ended)
            self._link.work.wake(self._link.scheduler)

    def add_ended(self, page: list[DueJob]) -> list[DueJob]:
        """Return the due jobs, and those of which a run has ended since their fires wait, counted anew.

        The version that was read goes with each, so the store refuses the step if somebody else was first.
        """
        if not self._waiting:
            self._ended.clear()
            return page
        for due_again in page:  # that has been counted just now
            self._waiting.pop(due_again.job.id, None)
        found = []
        while self._ended:
            due = self._waiting.pop(self._ended.popleft(), None)
            if due is not None:
                found.append(due)
        if found:
            self._count(found)
        return page + found

    def _count(self, jobs: list[DueJob]) -> None:
        numbers = count_unfinished(self._link.store, [(due.job.id, due.incarnation) for due in jobs])
        for due, number in zip(jobs, numbers, strict=True):
            due.unfinished = number

    def cancel_others(self, due: DueJob, now: int) -> None:
        """Cancel the runs that keep a fire of the job waiting: those that wait end at once, the others are stopped."""
        link = self._link
        query = RunQuery(status=UNFINISHED, job_id=due.job.id)
        runs = superseded(due, link.store.find_runs(query, limit=MOST_CANCELLED))
        self._cancel_waiting([run for run in runs if run.status in WAITING], now)
        running = [run for run in runs if run.status is Status.RUNNING]
        if running:
            # The act comes first: whoever stops the run reads there why.
            link.store.acts([self._act(run, now) for run in running])
            for run, marked in zip(running, link.store.cancel([run.id for run in running]), strict=True):
                if marked:
                    log.info("stopping run %r: its job is due again, and its overlap is cancel_other", run.id)
                    held = link.claims.get(run.id)
                    if held is not None:
                        link.stop_run(held)
        self._count([due])

    def _cancel_waiting(self, runs: list[Run], now: int) -> None:
        if not runs:
            return
        settler = Settler(self._link.store)
        for run in runs:
            settler.add(Report(run, Result.CANCELLED), cancel(run, now, SUPERSEDED), now)
        for _, outcome, accepted in settler.settle(now):
            if accepted:
                self._link.node.events.settled(outcome, self._link.alias)

    def _act(self, run: Run, now: int) -> Act:
        return Act(
            id=act_id(now, self._link.node.new_token()[-12:]),
            at=now,
            verb="cancel",
            kind="run",
            target=run.id,
            by="its schedule",
            why="the job was due again, and its overlap is cancel_other",
            details={"reason": SUPERSEDED},
        )
