"""Wait until certain runs have ended: ask for their statuses, and read each record once, when its run has ended."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mainspring.app.waiting.base import BaseWaiter, RunQuestion
from mainspring.core.run import FINAL, Run, Status, is_local
from mainspring.core.waiting.flows import SIGNAL_QUEUE
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import FIND_PAGE_RUNS

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.joining.outbox import RunOutbox

__all__ = ["Waiter", "warn"]

FIRST_PAGE_RUNS: Final = 50
"""Look at this many runs first, and at the rest when these have ended."""
WARN_AFTER_SECONDS: Final = 5.0
"""After this many seconds, warn if no living worker could execute the run."""
MOST_STEPS_BACK: Final = 100
"""Go back from a blocked run by this many steps to find the one that has to run first."""
FULL_LOOK_FACTOR: Final = 20
"""Wait this many times the duration of the last look at all runs before the next such look."""

log = logging.getLogger("mainspring.app")


class Waiter(BaseWaiter):
    """A caller that waits for certain runs: it keeps the records of those that have ended."""

    def __init__(
        self,
        run_ids: Sequence[str],
        timeout: float | None = None,
        outbox: RunOutbox | None = None,
        complaint: Callable[[], str] = str,
    ) -> None:
        super().__init__(timeout)
        self._wanted = list(run_ids)
        self._outbox = outbox
        self.complaint = complaint
        """Returns what is wrong with the caller's own process, or an empty text."""
        self.warns_at = time.monotonic() + WARN_AFTER_SECONDS
        self._left = list(dict.fromkeys(run_ids))
        self._done: dict[str, Run] = {}
        self._all_at = 0.0
        """The time at which to look at all unfinished runs, even if the first ones have not ended."""

    def _go_on(self, store: JobStore, began: float) -> None:
        store.check_wait(self._left)
        if self.warns_at <= began:
            warn(store, [self])

    def questions(self, store: JobStore) -> Generator[RunQuestion, Sequence[Any], bool]:
        left: list[str] = []
        began, start, size = time.monotonic(), 0, FIRST_PAGE_RUNS
        while start < len(self._left):
            if left and began < min(self._all_at, self._deadline):
                left += self._left[start:]  # some of the first runs have not ended, so do not look at the rest
                break
            part = self._left[start : start + size]
            start, size = start + size, FIND_PAGE_RUNS
            over: list[str] = []
            for run_id, standing in zip(part, (yield RunQuestion(part, False)), strict=True):
                if standing is None and not self._underway(run_id, store):
                    raise RunNotFound(run_id)
                (over if standing is not None and standing.status in FINAL else left).append(run_id)
            if over:
                left += self._keep(over, (yield RunQuestion(over, True)))
        else:
            now = time.monotonic()
            self._all_at = now + FULL_LOOK_FACTOR * (now - began)
        self._left, self._answered, self.away = left, True, False
        return not left

    def _underway(self, run_id: str, store: JobStore) -> bool:
        """Return True if a run that was not in the store waits in the outbox, or has just left it for the store."""
        if self._outbox is None:
            return False
        return self._outbox.holds(run_id) or store.standings([run_id])[0] is not None

    def _keep(self, run_ids: list[str], runs: Sequence[Run | None]) -> list[str]:
        """Keep the records of ended runs; return the ids of runs that were sent back meanwhile."""
        again = []
        for run_id, run in zip(run_ids, runs, strict=True):
            if run is None:
                raise RunNotFound(run_id)
            if run.status in FINAL:
                self._done[run_id] = run
            else:
                again.append(run_id)
        return again

    @property
    def first(self) -> str:
        """The first run that has not ended, as far as known."""
        return self._left[0]

    def _describe(self, store: JobStore) -> str:
        """Return a text: which runs have not ended, the status of the first, and whether a worker could execute it."""
        first, *others = self._left
        run = _front(store.get_runs([first])[0], store)
        status = "gone" if run is None else run.status if run.id == first else f"waits for {run.id}, {run.status}"
        text = f"{self._unended()}: "
        text += ", ".join([f"{first} ({status})", *others[:2]]) + (", ..." if len(self._left) > 3 else "")
        return text if run is None else text + (_unserved(run, QueueService(store)) or self.complaint())

    def _unended(self) -> str:
        left, wanted = len(self._left), len(self._wanted)
        runs, have = "run" if wanted == 1 else "runs", "has" if left == 1 else "have"
        return f"{left} of {wanted} {runs} {have} not ended in {self._timeout:g} s"

    def ended(self) -> list[Run]:
        """Return the runs in the order in which the caller named them."""
        return list(map(self._done.__getitem__, self._wanted))


def warn(store: JobStore, waiters: Iterable[BaseWaiter]) -> None:
    """Warn if no worker can execute the runs that somebody waits for: the caller might wait for ever.

    Log each reason once, however many runs it keeps waiting, and look only at the first waiters if there are many.
    """
    first: list[Waiter] = []
    for waiter in waiters:
        waiter.warns_at = math.inf
        if isinstance(waiter, Waiter) and len(first) < FIRST_PAGE_RUNS:
            first.append(waiter)
    service, waiting = QueueService(store), dict[tuple[int, str], list[str]]()
    for waiter, run in zip(first, store.get_runs([waiter.first for waiter in first]), strict=True):
        front = _front(run, store)
        if front is None or front.status is not Status.PENDING:
            continue
        if missing := _unserved(front, service):
            waiting.setdefault((logging.WARNING, missing), []).append(waiter.first)
        elif held := waiter.complaint():
            waiting.setdefault((logging.ERROR, held), []).append(waiter.first)
    for (level, problem), run_ids in waiting.items():
        others = f" and {len(run_ids) - 1} others" if len(run_ids) > 1 else ""
        log.log(level, "waiting for run %s%s, which has not started%s", run_ids[0], others, problem)


class QueueService:
    """The queues that a living worker serves and the paused ones, read once, on first use."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self._served: set[str] | None = None
        self._paused: set[str] | None = None

    @property
    def served(self) -> set[str]:
        """The queues that a living worker serves."""
        if self._served is None:
            self._served = {queue for node in self.store.nodes() for queue in node.queues}
        return self._served

    @property
    def paused(self) -> set[str]:
        """The queues that are paused."""
        if self._paused is None:
            self._paused = {queue.name for queue in self.store.stats().queues if queue.paused}
        return self._paused


def _front(run: Run | None, store: JobStore) -> Run | None:
    """Return a run, or if it is blocked, the first unfinished run that it waits for; None if it is gone."""
    for _ in range(MOST_STEPS_BACK):
        if run is None or run.status is not Status.BLOCKED:
            break
        before = [found for found in store.get_runs([edge.id for edge in run.after]) if found is not None]
        waiting = next((found for found in before if found.status not in FINAL), None)
        if waiting is None:
            break
        run = waiting
    return run


def _unserved(run: Run, service: QueueService) -> str:
    """Return a hint if the queue of a run is paused or no worker serves it, with what to do; else nothing."""
    if run.status is not Status.PENDING or is_local(run.queue):  # no worker serves a scheduler's own queue
        return ""
    if run.queue == SIGNAL_QUEUE:
        return f"; it waits for a signal: app.signal({run.id!r}, value) gives it"
    try:
        served, paused = run.queue in service.served, run.queue in service.paused
    except Exception:  # the hint is optional; the time-out is raised in any case
        return ""
    if paused:
        return f"; the queue {run.queue!r} is paused: app.resume_queue({run.queue!r}) lets its runs start"
    how = "app.start(work=True)" if service.store.volatile else f"mainspring worker MODULE:APP -Q {run.queue}"
    return "" if served else f"; no living worker serves the queue {run.queue!r}: start one with {how}"
