"""The verbs about runs, over any store: look, count, wait, cancel, retry, delete."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final

import msgspec

from mainspring.app.coming import Coming
from mainspring.codec import EncodeError
from mainspring.core import transitions
from mainspring.core.followups import told_less
from mainspring.core.instants import from_us
from mainspring.core.quantities import check_timeout
from mainspring.core.run import FINAL, Error, Outcome, Run, Status
from mainspring.errors import RunCancelled, RunFailed, RunNotFound, StoreUnavailable, near
from mainspring.jobstores.base import JobStore, RunQuery

__all__ = ["RunView", "Runs", "result_of"]

FIRST_LOOK: Final = 0.001
LONGEST_PAUSE: Final = 0.1
PAGE: Final = 1000
FIRST_PAGE: Final = 50
"""Runs that are looked at again and again while others wait behind them."""
SELDOM: Final = 20
"""All are looked at again after this many times as long as the last time took."""

log = logging.getLogger("mainspring.app")


class RunView:
    """A run as people look at it: its times are datetimes, its callable is text."""

    __slots__ = ("_run", "_zone")

    def __init__(self, run: Run, zone: tzinfo | None) -> None:
        self._run, self._zone = run, zone

    @property
    def record(self) -> Run:
        """The run as it is stored, times in microseconds."""
        return self._run

    @property
    def id(self) -> str:
        """Its id."""
        return self._run.id

    @property
    def status(self) -> Status:
        """Where it is in its life."""
        return self._run.status

    @property
    def func(self) -> str:
        """The task's name."""
        func = self._run.call.func
        return func if isinstance(func, str) else f"{func.__module__}:{getattr(func, '__qualname__', '?')}"

    @property
    def result(self) -> Any:
        """What the task returned, if it has succeeded."""
        return self._run.result

    @property
    def errors(self) -> tuple[Error, ...]:
        """How each attempt that failed did."""
        return self._run.errors

    @property
    def error(self) -> Error | None:
        """How the last failed attempt did."""
        return self._run.errors[-1] if self._run.errors else None

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self._run.status in FINAL

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return self._moment(self._run.created_at)

    @property
    def run_at(self) -> datetime:
        """When it may start."""
        return self._moment(self._run.run_at)

    @property
    def fire_time(self) -> datetime | None:
        """The time its job was due."""
        return self._optional(self._run.fire_time)

    @property
    def start_by(self) -> datetime | None:
        """After this it is missed."""
        return self._optional(self._run.start_by)

    @property
    def started_at(self) -> datetime | None:
        """When its last attempt started."""
        return self._optional(self._run.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return self._optional(self._run.finished_at)

    @property
    def duration(self) -> float | None:
        """Seconds from its last start to its end."""
        if self._run.started_at is None or self._run.finished_at is None:
            return None
        return (self._run.finished_at - self._run.started_at) / 1e6

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and pickling ask for before there is a run
            raise AttributeError(name)
        return getattr(self._run, name)

    def _moment(self, us: int) -> datetime:
        return from_us(us).astimezone(self._zone)

    def _optional(self, us: int | None) -> datetime | None:
        return None if us is None else self._moment(us)

    def __repr__(self) -> str:
        return f"<Run {self._run.id} {self._run.name} {self._run.status}>"


def result_of(run: Run) -> Any:
    """Return what a finished run gave; raise RunFailed or RunCancelled."""
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
    ) -> None:
        self._store, self._now, self._zone, self._stop = store, now, zone, stop

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
        limit: int = 100,
        after: RunView | None = None,
    ) -> list[RunView]:
        """Return runs that match, newest first; `after` is the last one of the page before."""
        query = _query(status, queue, group, job)
        record = None if after is None else after.record
        zone = self._zone()
        return [RunView(run, zone) for run in self._store().find_runs(query, after=record, limit=limit)]

    def iterate(self, **wanted: Any) -> Iterator[Run]:
        """Yield all runs that match, newest first, a page at a time."""
        for page in self._pages(_query(**wanted)):
            yield from page

    def _pages(self, query: RunQuery) -> Iterator[list[Run]]:
        last = None
        while page := self._store().find_runs(query, after=last, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            last = page[-1]

    def count(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | None = None,
    ) -> int:
        """Return how many runs match."""
        return self._store().count_runs(_query(status, queue, group, job))

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
            elif self._end([transitions.cancel(run, self._now())])[0]:
                return True

    def purge(self, queue: str) -> int:
        """Cancel all pending runs of a queue, each as `cancel` does; return how many."""
        number = 0
        for page in self._pages(_query("pending", queue)):
            number += sum(self._end([transitions.cancel(run, self._now()) for run in page]))
        return number

    def _end(self, outcomes: list[Outcome]) -> list[bool]:
        """Write the ends of runs; tell those hooks less that would otherwise be too large to be stored."""
        store = self._store()
        try:
            return store.settle(outcomes)
        except EncodeError:
            return store.settle([each if store.unstorable_outcome(each) is None else _brief(each) for each in outcomes])

    def retry(self, run_id: str) -> None:
        """Send a failed, cancelled or broken run back to pending."""
        store = self._store()
        while True:
            again = transitions.retry(self.read(run_id), self._now())
            if store.settle([again])[0]:
                return
            # It was changed meanwhile, or another run has its unique key: then it goes without.
            if again.run.unique is not None and store.settle([transitions.unkeyed(again)])[0]:
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
        return not left

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
    """Say that nobody executes the runs of a queue, and what to do, if that is so."""
    if run.status is not Status.PENDING or run.queue.startswith("."):  # a scheduler's own lane, which no worker serves
        return ""
    try:
        served = any(run.queue in node.lanes for node in store.nodes())
    except Exception:  # that the time is over has to be said in any case
        return ""
    how = "app.start(work=True)" if store.volatile else f"mainspring worker MODULE:APP -Q {run.queue}"
    return "" if served else f"; no living worker serves the queue {run.queue!r}: start one with {how}"


def _query(
    status: str | Iterable[str] | None = None,
    queue: str | None = None,
    group: str | None = None,
    job: str | None = None,
) -> RunQuery:
    wanted = () if status is None else (status,) if isinstance(status, str) else tuple(status)
    try:
        statuses = tuple(Status(each) for each in wanted)
    except ValueError:
        known = [each.value for each in Status]
        bad = next(each for each in wanted if each not in known)
        raise ValueError(f"no status is called {bad!r}{near(str(bad), known)}") from None
    return msgspec.structs.replace(RunQuery(), status=statuses, queue=queue, group=group, job_id=job)
