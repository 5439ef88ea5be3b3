"""Fires that wait until earlier runs of their jobs have ended, and the runs that such a fire cancels.

A waiting fire is not written anywhere: its job stays due. A scheduler looks at the job again when the store next shows
it, or at once if one of its runs ends on this node. So no dying process can lose the fire or make it twice.
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
"""Consider at most this many unfinished runs of a job in one look."""

log = logging.getLogger("mainspring.scheduler")


class WaitingFires:
    """The due jobs that this node has read and whose fires wait."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._waiting: dict[str, DueJob] = {}
        self._ended: deque[str] = deque()
        """The ids of waiting jobs that had a run end meanwhile; other threads append to it."""

    def add(self, due: DueJob) -> None:
        """Remember a job whose fire waits."""
        self._waiting[due.job.id] = due

    def note_ended(self, reports: Iterable[Report]) -> None:
        """Look again soon at jobs whose fires wait here for one of these runs; any thread may call this."""
        if not self._waiting:
            return
        ids = {report.run.job_id for report in reports}
        ended = {job_id for job_id in ids if job_id is not None and job_id in self._waiting}
        if ended:
            self._ended.extend(ended)
            self._link.work.wake(self._link.scheduler)

    def add_ended(self, page: list[DueJob]) -> list[DueJob]:
        """Return the page, plus the waiting jobs that had a run end, with their unfinished runs counted again.

        Each job keeps the version that was read, so the store refuses the step if another process was first.
        """
        if not self._waiting:
            self._ended.clear()
            return page
        for due_again in page:  # the store has just counted its runs
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
        """Cancel the runs that keep a fire of the job waiting: end waiting runs at once, and stop running ones."""
        link = self._link
        query = RunQuery(status=UNFINISHED, job_id=due.job.id)
        runs = superseded(due, link.store.find_runs(query, limit=MOST_CANCELLED))
        self._cancel_waiting([run for run in runs if run.status in WAITING], now)
        running = [run for run in runs if run.status is Status.RUNNING]
        if running:
            # Store the act first: the node that stops the run reads the reason there.
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
