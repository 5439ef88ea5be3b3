"""Collect the reports of executors about runs, from any thread, for the worker tick to settle."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.core.run import Report, Result, Run
from mainspring.executors.current_run import CURRENT, RunNotes
from mainspring.executors.forks import leave_if_forked
from mainspring.node.inputs import read_inputs

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["ReportBox", "SettlingReportBox"]

_BUSY = Result.BUSY


class ReportBox:
    """Takes a report from any thread, and wakes `settles`, unless an earlier report has woken it already."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._worker = link.worker
        self._append = link.worker.outbox.append
        self._wake: Callable[[], None] = partial(link.monitor.wake, link.worker.settles)

    def __call__(self, report: Report) -> None:
        if report.result is not _BUSY:  # BUSY: an earlier claim of that run is still being executed
            self._link.reported.add(report.run.id)
        self._append(report)
        # `settles` clears `woken` before it empties the outbox. So it either sees this report or is woken for it.
        if not self._worker.woken:
            self._worker.woken = True
            self._wake()

    def inputs(self, run: Run) -> list[Any]:
        """Return the results of the runs that a run came after."""
        return read_inputs(self._link.store, run)

    def notes_of(self, run: Run) -> RunNotes:
        """Return the notes of a run; notes made after the run's end are dropped."""
        known = self._link.notes
        found = known.get(run.id)
        if found is None or found.run.token != run.token:
            found = RunNotes(run)
            if self._holds(run):
                known[run.id] = found
                if not self._holds(run):  # another thread has settled it since the first check
                    known.pop(run.id, None)
        return found

    def _holds(self, run: Run) -> bool:
        held = self._link.claims.get(run.id)
        return held is not None and held.token == run.token

    def notes_changed(self, notes: RunNotes) -> None:
        """Store the notes soon."""
        self._link.heartbeat.hurry()


class SettlingReportBox(ReportBox):
    """Settles on the thread that reports, unless another thread calls the ticks of the loop now: see decision 094."""

    def __init__(self, link: StoreLink) -> None:
        super().__init__(link)
        self._wake = self._settle

    def _settle(self) -> None:
        CURRENT.set(None)  # listeners and log lines do not belong to the run that has just ended
        home = os.getpid()
        self._link.work.call_now(self._worker.settles)
        if os.getpid() != home:
            leave_if_forked(home)  # a user's listener or back-off function may have forked
