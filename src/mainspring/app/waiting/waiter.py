"""What one wait knows: ask for the statuses of its runs, and read each record once, when its run has ended.

`Waiter.look` asks the store for one waiter alone. The hub (`hub.py`) asks for all waiters of the process together: a
waiter yields its questions, so that both ways share every line.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.core.quantities import check_timeout
from mainspring.core.run import FINAL, Run, Status
from mainspring.core.waiting.flows import SIGNAL_QUEUE
from mainspring.core.waiting.results import result_of
from mainspring.errors import RunNotFound, StoreUnavailable
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import FIND_PAGE_RUNS

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.joining.outbox import RunOutbox

__all__ = ["RunQuestion", "Waiter", "result_of"]

FIRST_PAGE_RUNS: Final = 50
"""Look at this many runs first, and at the others when these have ended."""
WARN_AFTER_SECONDS: Final = 5.0
"""After this many seconds, warn if no living worker could execute the run."""
MOST_STEPS_BACK: Final = 100
"""Go back from a blocked run by this many steps to find the one that has to run first."""
FULL_LOOK_FACTOR: Final = 20
"""Look at all runs again after this many times the duration of the last such look."""

log = logging.getLogger("mainspring.app")


class RunQuestion(NamedTuple):
    """Runs of which a waiter wants the records, or only the statuses."""

    run_ids: list[str]
    records: bool


class Waiter:
    """The runs that somebody waits for, and which of them have ended."""

    def __init__(
        self,
        run_ids: Sequence[str],
        timeout: float | None = None,
        outbox: RunOutbox | None = None,
        complaint: Callable[[], str] = str,
    ) -> None:
        self._wanted = list(run_ids)
        self._outbox, self._complaint = outbox, complaint
        self._timeout = check_timeout(timeout)
        self._deadline = time.monotonic() + self._timeout
        self._warn_at = time.monotonic() + WARN_AFTER_SECONDS
        self._left = list(dict.fromkeys(run_ids))
        self._done: dict[str, Run] = {}
        self._all_at = 0.0
        """When to look at all unfinished runs, even if the first ones have not ended."""
        self._answered = False
        self.away = False
        """Whether the last look got no answer from the store."""

    def look(self, store: JobStore) -> bool:
        """Return True if all have ended; raise TimeoutError when it has taken too long.

        A look during an outage of the store counts as one that found nothing. If the store has never answered, its
        error ends the wait: at the time-out, or at once if there is none.
        """
        try:
            ended = self._look(store)
        except StoreUnavailable as error:
            over = time.monotonic() >= self._deadline
            if not self._answered and (over or self._timeout == math.inf):
                raise
            if over:
                raise TimeoutError(
                    f"{self._unended()}, as far as known: the store does not answer ({error})"
                ) from error
            if not self.away:
                log.warning("the store does not answer; the wait goes on: %s", error)
            self.away = True
            return False
        return ended

    def _look(self, store: JobStore) -> bool:
        began, questions = time.monotonic(), self.questions(store)
        try:
            question = next(questions)
            while True:
                ask = store.get_runs if question.records else store.standings
                question = questions.send(ask(question.run_ids))
        except StopIteration as stop:
            if stop.value:
                return True
        store.check_wait(self._left)
        if began >= self._deadline:
            raise TimeoutError(self._describe(store))
        if began >= self._warn_at:
            self._warn_at = math.inf
            self._warn(store)
        return False

    def questions(self, store: JobStore) -> Generator[RunQuestion, Sequence[Any], bool]:
        """Look once: yield questions, take what the store answers to each, and return True if all have ended."""
        left: list[str] = []
        began, start, size = time.monotonic(), 0, FIRST_PAGE_RUNS
        while start < len(self._left):
            if left and began < min(self._all_at, self._deadline):
                left += self._left[start:]  # not all have ended, whatever these did
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
        """Keep the records of ended runs; return the ids of those that somebody has sent back meanwhile."""
        again = []
        for run_id, run in zip(run_ids, runs, strict=True):
            if run is None:
                raise RunNotFound(run_id)
            if run.status in FINAL:
                self._done[run_id] = run
            else:
                again.append(run_id)
        return again

    def _warn(self, store: JobStore) -> None:
        """Warn if no worker can execute the run: the caller might wait for ever."""
        run = _front(self._left[0], store)
        if run is None or run.status is not Status.PENDING:
            return
        missing, held = _unserved(run, store), self._complaint()
        if missing or held:
            level = logging.ERROR if held else logging.WARNING
            log.log(level, "waiting for run %s, which has not started%s", self._left[0], missing or held)

    @property
    def looks_at(self) -> float:
        """When this waiter has to look alone, by the monotonic clock: to give up, or to warn that nothing happens."""
        return min(self._deadline, self._warn_at)

    def _describe(self, store: JobStore) -> str:
        """Say which runs have not ended, the status of the first, and whether a worker could execute it."""
        first, *others = self._left
        run = _front(first, store)
        status = "gone" if run is None else run.status if run.id == first else f"waits for {run.id}, {run.status}"
        text = f"{self._unended()}: "
        text += ", ".join([f"{first} ({status})", *others[:2]]) + (", ..." if len(self._left) > 3 else "")
        return text if run is None else text + (_unserved(run, store) or self._complaint())

    def _unended(self) -> str:
        left, wanted = len(self._left), len(self._wanted)
        runs, have = "run" if wanted == 1 else "runs", "has" if left == 1 else "have"
        return f"{left} of {wanted} {runs} {have} not ended in {self._timeout:g} s"

    def ended(self) -> list[Run]:
        """Return the runs in the order in which the caller named them."""
        return list(map(self._done.__getitem__, self._wanted))


def _front(run_id: str, store: JobStore) -> Run | None:
    """Return a run, or if it is blocked, the first unfinished run that it waits for; None if it is gone."""
    run = store.get_runs([run_id])[0]
    for _ in range(MOST_STEPS_BACK):
        if run is None or run.status is not Status.BLOCKED:
            break
        before = [found for found in store.get_runs([edge.id for edge in run.after]) if found is not None]
        waiting = next((found for found in before if found.status not in FINAL), None)
        if waiting is None:
            break
        run = waiting
    return run


def _unserved(run: Run, store: JobStore) -> str:
    """Return a hint if the queue of a run is paused or no worker serves it, with what to do; else nothing."""
    if run.status is not Status.PENDING or run.queue.startswith("."):  # no worker serves a scheduler's own queue
        return ""
    if run.queue == SIGNAL_QUEUE:
        return f"; it waits for a signal: app.signal({run.id!r}, value) gives it"
    try:
        served = any(run.queue in node.queues for node in store.nodes())
        paused = any(info.name == run.queue and info.paused for info in store.stats().queues)
    except Exception:  # the hint is optional; the time-out is raised in any case
        return ""
    if paused:
        return f"; the queue {run.queue!r} is paused: app.resume_queue({run.queue!r}) lets its runs start"
    how = "app.start(work=True)" if store.volatile else f"mainspring worker MODULE:APP -Q {run.queue}"
    return "" if served else f"; no living worker serves the queue {run.queue!r}: start one with {how}"
