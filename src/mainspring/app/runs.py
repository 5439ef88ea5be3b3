"""The verbs about runs, over any store: look, count, wait, cancel, retry, delete."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from mainspring.app.coming import Coming
from mainspring.codec import EncodeError
from mainspring.core import transitions
from mainspring.core.followups import told_less
from mainspring.core.quantities import check_timeout
from mainspring.core.run import FINAL, Outcome, Run, Status
from mainspring.core.run_view import RunPage, RunView
from mainspring.errors import RunCancelled, RunFailed, RunNotFound, StoreUnavailable, UnverifiedOutcome
from mainspring.events import EVENT_RUN_RETRIED
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import PAGE, instant_of, make_query, newest, pages
from mainspring.node.run_events import RunEvents

__all__ = ["Runs", "result_of"]

ALIAS: Final = "default"
"""What an app calls its store."""
FIRST_LOOK: Final = 0.001
LONGEST_PAUSE: Final = 0.1
FIRST_PAGE: Final = 50
"""Runs that are looked at again and again while others wait behind them."""
WARN_AFTER_SECONDS: Final = 5.0
"""Say what is missing when nobody could have executed a run that was waited for as long as this."""
SELDOM: Final = 20
"""All are looked at again after this many times as long as the last time took."""

log = logging.getLogger("mainspring.app")


def result_of(run: Run) -> Any:
    """Return what a finished run gave; raise RunFailed, RunCancelled or UnverifiedOutcome."""
    if run.unverified is not None:
        raise UnverifiedOutcome(run.id, run.status.value, run.unverified)
    if run.status is Status.SUCCEEDED:
        return run.result
    if run.status is Status.CANCELLED:
        raise RunCancelled(run.id, run.reason or "")
    last = run.errors[-1] if run.errors else None
    if last is None:
        raise RunFailed(run.id, run.status.value, run.reason or "", "")
    raise RunFailed(run.id, last.type, last.message, last.traceback)


class Runs:
    """The runs of a store."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        now: Callable[[], int],
        zone: Callable[[], tzinfo],
        stop: Callable[[str], object] = str,
        events: RunEvents | None = None,
    ) -> None:
        self._store, self._now, self._zone, self._stop = store, now, zone, stop
        self._events = events or RunEvents()

    def read(self, run_id: str) -> Run:
        """Return a run's record; raise RunNotFound."""
        found = self._store().get_runs([run_id])[0]
        if found is None:
            raise RunNotFound(run_id)
        return found

    def get(self, run_id: str) -> RunView:
        """Return a run; raise RunNotFound."""
        return self.view(self.read(run_id))

    def find(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | None = None,
        task: str | None = None,
        since: datetime | timedelta | None = None,
        limit: int = 100,
        after: RunView | None = None,
    ) -> RunPage:
        """Return runs that match, newest first; `after` is the last one of the page before."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        query = make_query(status, queue, group, job)
        oldest = self._oldest(since)
        record = None if after is None else after.record
        return RunPage.of(newest(self._store(), query, limit + 1, record, task, oldest), limit, self._zone)

    def _oldest(self, since: datetime | timedelta | None) -> int | None:
        return None if since is None else instant_of(since, self._now, self._zone)

    def iterate(self, **wanted: Any) -> Iterator[Run]:
        """Yield all runs that match, newest first, a page at a time."""
        for page in pages(self._store(), make_query(**wanted)):
            yield from page

    def count(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | None = None,
        task: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> int:
        """Return how many runs match."""
        query, oldest = make_query(status, queue, group, job), self._oldest(since)
        if task is None and oldest is None:
            return self._store().count_runs(query)
        return len(newest(self._store(), query, None, None, task, oldest))

    def cancel(self, run_id: str) -> bool:
        """Cancel a run: at once if it waits, by stopping it if it runs. False if it has ended."""
        store = self._store()
        while True:
            run = self.read(run_id)
            if run.status in FINAL:
                return False
            if run.status is Status.RUNNING:
                if store.request_cancel([run_id])[0]:
                    self._stop(run_id)
                    return True
            elif self.end([transitions.cancel(run, self._now())])[0]:
                return True

    def purge(self, queue: str) -> int:
        """Cancel all pending runs of a queue, each as `cancel` does; return how many."""
        number = 0
        for page in pages(self._store(), make_query("pending", queue)):
            number += sum(self.end([transitions.cancel(run, self._now()) for run in page]))
        return number

    def end(self, outcomes: list[Outcome]) -> list[bool]:
        """Write the ends of runs; tell those hooks less that would otherwise be too large to be stored."""
        store = self._store()
        try:
            answers = store.settle(outcomes)
        except EncodeError:
            outcomes = [each if store.unstorable_outcome(each) is None else _brief(each) for each in outcomes]
            answers = store.settle(outcomes)
        for outcome, accepted in zip(outcomes, answers, strict=True):
            if accepted:
                self._events.settled(outcome, ALIAS)
        return answers

    def retry(self, run_id: str) -> None:
        """Send a failed, cancelled or broken run back to pending."""
        store = self._store()
        while True:
            again = transitions.retry(self.read(run_id), self._now())
            # It may be changed meanwhile, or another run may have its unique key: then it goes without.
            if store.settle([again])[0] or (
                again.run.unique is not None and store.settle([transitions.unkeyed(again)])[0]
            ):
                self._events.tell(EVENT_RUN_RETRIED, again.run, ALIAS, "somebody sent it back")
                return

    def delete(self, run_ids: str | Iterable[str]) -> int:
        """Delete finished runs; return how many."""
        return self._store().delete_runs([run_ids] if isinstance(run_ids, str) else list(run_ids))

    def wait(self, run_ids: Sequence[str], timeout: float | None = None) -> list[Run]:
        """Wait until all these runs have ended; raise TimeoutError, or RunNotFound for one that is not there.

        A later step of a chain is waited for before it exists; if a step before it fails, that is raised.
        """
        waiter = Waiter(run_ids, timeout)
        while not waiter.look(self._store()):
            time.sleep(waiter.pause())
        return waiter.ended()

    async def wait_async(self, run_ids: Sequence[str], timeout: float | None = None) -> list[Run]:
        """Wait as `wait` does, without blocking the event loop."""
        import asyncio  # costs 40 ms, and not all need it

        waiter = Waiter(run_ids, timeout)
        while not await asyncio.to_thread(waiter.look, self._store()):
            await asyncio.sleep(waiter.pause())
        return waiter.ended()

    def view(self, run: Run) -> RunView:
        """Return a record as people look at it."""
        return RunView(run, self._zone())


class Waiter:
    """Looks at runs until they have ended, ever less often."""

    def __init__(self, run_ids: Sequence[str], timeout: float | None = None) -> None:
        self._wanted = list(run_ids)
        self._timeout = check_timeout(timeout)
        self._deadline = time.monotonic() + self._timeout
        self._warn_at = time.monotonic() + WARN_AFTER_SECONDS
        self._left = list(dict.fromkeys(run_ids))
        self._done: dict[str, Run] = {}
        self._first: Run | None = None
        """The first of those that are left, unless it is a step that a chain has not come to."""
        self._coming = Coming()
        self._pause = FIRST_LOOK
        self._all_at = 0.0
        """When to look at all that are left, though the first ones have not ended."""
        self._answered = False
        self._away = False
        """Whether the store did not answer the last time."""

    def look(self, store: JobStore) -> bool:
        """Tell whether all have ended; raise TimeoutError when it has taken too long.

        An outage of the store counts as a look that has found nothing. A store that has never answered is the reason
        for which the wait fails: at the time-out, or at once if there is none.
        """
        try:
            ended = self._look(store)
        except StoreUnavailable as error:
            over = time.monotonic() >= self._deadline
            if not self._answered and (over or self._timeout == math.inf):
                raise
            if over:
                raise TimeoutError(
                    f"{len(self._left)} of {len(self._wanted)} runs have not ended in {self._timeout:g} s, as far as "
                    f"known: the store does not answer ({error})"
                ) from error
            if not self._away:
                log.warning("the store does not answer; the wait goes on: %s", error)
            self._away = True
            return False
        self._answered, self._away = True, False
        return ended

    def _look(self, store: JobStore) -> bool:
        left: list[str] = []
        self._first = None
        began, start, size = time.monotonic(), 0, FIRST_PAGE
        while start < len(self._left):
            if left and began < min(self._all_at, self._deadline):
                left += self._left[start:]  # not all have ended, whatever is said of these
                break
            part = self._left[start : start + size]
            start, size = start + size, PAGE
            seen = dict(zip(part, store.get_runs(part), strict=True))
            broken = self._coming.expect([run_id for run_id in part if seen[run_id] is None], seen, store)
            if broken is not None:
                result_of(broken)
            for run_id in part:
                run = seen[run_id]
                if run is not None and run.status in FINAL:
                    self._done[run_id] = run
                    continue
                if not left:
                    self._first = run
                left.append(run_id)
        else:
            now = time.monotonic()
            self._all_at = now + SELDOM * (now - began)
        self._left = left
        if left and began >= self._deadline:
            raise TimeoutError(self._describe(store))
        if left and began >= self._warn_at:
            self._warn_at = math.inf
            self._warn(store)
        return not left

    def _warn(self, store: JobStore) -> None:
        """Say that nobody executes what is waited for, if that is so: the caller may wait for ever."""
        missing = "" if self._first is None else _unserved(self._first, store)
        if missing:
            log.warning("run %s is waited for and has not started%s", self._left[0], missing)

    def pause(self) -> float:
        """Return the seconds to wait before the next look."""
        pause, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 1.5)
        return max(0.0, min(pause, self._deadline - time.monotonic()))

    def _describe(self, store: JobStore) -> str:
        """Say which runs have not ended, where the first is in its life, and whether anybody could execute it."""
        first, *others = self._left
        run = self._first
        shown = [f"{first} ({'a step that its chain has not come to' if run is None else run.status})", *others[:2]]
        text = f"{len(self._left)} of {len(self._wanted)} runs have not ended in {self._timeout:g} s: "
        text += ", ".join(shown) + (", ..." if len(self._left) > 3 else "")
        return text if run is None else text + _unserved(run, store)

    def ended(self) -> list[Run]:
        """Return the runs, in the order they were asked for."""
        return [self._done[run_id] for run_id in self._wanted]


def _brief(end: Outcome) -> Outcome:
    return msgspec.structs.replace(end, then=tuple(map(told_less, end.then)))


def _unserved(run: Run, store: JobStore) -> str:
    """Say that nobody executes the runs of a queue, or that it is paused, and what to do, if that is so."""
    if run.status is not Status.PENDING or run.queue.startswith("."):  # a scheduler's own lane, which no worker serves
        return ""
    try:
        served = any(run.queue in node.lanes for node in store.nodes())
        paused = any(info.name == run.queue and info.paused for info in store.queues())
    except Exception:  # that the time is over has to be said in any case
        return ""
    if paused:
        return f"; the queue {run.queue!r} is paused: app.resume_queue({run.queue!r}) lets its runs start"
    how = "app.start(work=True)" if store.volatile else f"mainspring worker MODULE:APP -Q {run.queue}"
    return "" if served else f"; no living worker serves the queue {run.queue!r}: start one with {how}"
