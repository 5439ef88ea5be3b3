"""Carry out an action on many runs. The action itself is a run, in a queue that no worker serves.

So it has a lease, and its holder notes how far it has come. If that process ends, a node takes over the action's run
and continues after the last note. It meets again the runs that were changed after that note, and counts them as left.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.core.run import BULK_QUEUE, BY_HAND_PREFIX, Beat, Call, Error, Report, Result, Run, Status
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import filter_for, matching
from mainspring.core.transitions import conclude
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import Hold, RunQuery
from mainspring.node.settling import Settler, give_back_lapsed

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring
    from mainspring.app.insight.bulk import Bulk

__all__ = ["BulkClaims", "LostBulk", "bulk_run", "change_all", "place_of"]

BULK_TASK: Final = "mainspring:bulk"
NOTE_SECONDS: Final = 1.0
"""Note this often how far the action has come."""
MOST_SINGLE_ACTS: Final = 1000
"""Record single acts for this many runs at most: the audit keeps 10,000 acts, and one action must not fill it."""

log = logging.getLogger("mainspring.app")


class LostBulk(Exception):
    """Another process has the action by now."""


def bulk_run(bulk: Bulk, boundary: int, options: dict[str, Any], by: str, why: str, now: int) -> Run:
    """Return the run that stands for an action."""
    wanted = {"verb": bulk.verb, "filter": bulk.filter, "before": boundary, "options": options, "by": by, "why": why}
    call = Call(BULK_TASK, (), wanted, f"{bulk.verb} all: {bulk.filter}"[:200])
    return Run(id=bulk.id, call=call, queue=BULK_QUEUE, created_at=now, run_at=now)


def change_all(
    app: Mainspring,
    bulk: Bulk,
    able: Collection[str],
    boundary: int,
    asked_at: int,
    act: Callable[[str], Any],
    note: Callable[[RunView], object] = lambda run: None,
    after: RunView | None = None,
) -> None:
    """Change all matching runs, or count them for a trial; call `note` after each run, which may raise."""
    for run in matching(app.runs, filter_for(app.runs, bulk.filter), boundary, after):
        if bulk.stopping:
            return
        if run.record.queue == BULK_QUEUE:  # an action must not change other actions
            continue
        bulk.looked_at += 1
        if str(run.status) not in able:
            bulk.left[f"it is {run.status}"] += 1
        elif bulk.verb == "retry" and (run.record.finished_at or 0) > asked_at:  # it may be one that was sent back
            bulk.left["it ended meanwhile"] += 1
        elif bulk.trial:
            bulk.changed += 1
        else:
            with app.acts.silent(bulk.changed >= MOST_SINGLE_ACTS):
                _change(bulk, run, act)
        note(run)


def _change(bulk: Bulk, run: RunView, act: Callable[[str], Any]) -> None:
    try:
        if act(run.id) is False:
            bulk.left["it changed meanwhile"] += 1
        else:
            bulk.changed += 1
    except RunNotFound:
        bulk.left["it is gone"] += 1
    except ValueError:  # it is no longer in a status that allows this
        bulk.left["it changed meanwhile"] += 1


class BulkClaims:
    """Claims actions for this process, renews their leases and settles them."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._holder = f"{BY_HAND_PREFIX}{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"

    def claim(self) -> Run | None:
        """Take an action that nobody carries out."""
        app = self._app
        self._give_back()
        claimed = app.store.claim([((BULK_QUEUE,), 1)], node=self._holder, token=secrets.token_hex(12), lease=app.lease)
        return claimed.runs[0] if claimed.runs else None

    def waits(self) -> bool:
        """Return True if there is an action that nobody carries out; janitors free those of dead processes."""
        query = RunQuery(status=(Status.PENDING,), queue=BULK_QUEUE)
        return bool(self._app.store.find_runs(query, limit=1))

    def _give_back(self) -> None:
        """Free the actions of processes that are dead."""
        give_back_lapsed(self._app.store, lambda run: run.queue == BULK_QUEUE)

    def keep(self, bulk: Bulk, run: Run) -> Callable[[RunView], None]:
        """Return a function that notes, now and then, how far an action has come; it raises LostBulk."""
        store, lease, noted_at = self._app.store, self._app.lease, time.monotonic()

        def note(last: RunView) -> None:
            nonlocal noted_at
            if time.monotonic() < noted_at + NOTE_SECONDS:
                return
            noted_at = time.monotonic()
            place = {"after": [last.record.created_at, last.id]}
            [hold] = store.extend([Beat(run.id, str(run.token), data={**bulk.notes(), **place})], lease)
            if hold is Hold.LOST:
                raise LostBulk
            if hold is Hold.CANCEL:
                bulk.stopping = True

        return note

    def settle(self, bulk: Bulk, run: Run, state: str) -> None:
        """Write the end of an action; raise LostBulk if its lease was over by then and another process has it."""
        now = self._app.now()
        report = Report(run, Result.RETURNED, started_at=run.started_at or now, finished_at=now)
        if state == "failed":
            report.result = Result.RAISED
            report.error = Error(type="BulkFailed", message=bulk.problem, traceback="", at=now, attempt=run.attempt)
        report.run = replace(run, data=bulk.notes())
        report.value = {**bulk.notes(), "state": state}
        settler = Settler(self._app.store)
        settler.add(report, conclude(report, now, 0.0, retry=False), now)
        if not all(each.accepted for each in settler.settle(now)):
            raise LostBulk


def place_of(run: Run) -> RunView | None:
    """Return the run after which an action continues, with only the fields that stores need."""
    noted = (run.data or {}).get("after")
    return None if noted is None else RunView(Run(id=noted[1], call=Call(""), created_at=noted[0]), None)
