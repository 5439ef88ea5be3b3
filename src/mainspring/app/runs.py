"""The verbs about runs, over any store: look, count, wait, cancel, retry, delete."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.app.coming import ExpectedRuns
from mainspring.app.registry import Task, job_id_of, reference_of
from mainspring.codec import EncodeError
from mainspring.core import transitions
from mainspring.core.followups import told_less
from mainspring.core.insight.explanation import Explanation
from mainspring.core.job import Job
from mainspring.core.quantities import check_timeout
from mainspring.core.run import FINAL, Outcome, Run, Status
from mainspring.core.run_view import RunPage, RunView
from mainspring.errors import (
    JobLookupError,
    RunCancelled,
    RunFailed,
    RunNotFound,
    StoreUnavailable,
    UnverifiedOutcome,
    near,
)
from mainspring.events import EVENT_RUN_RETRIED
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import PAGE, find_job, instant_of, make_query, newest, pages
from mainspring.node.run_events import RunEvents

if TYPE_CHECKING:
    from mainspring.app.handle import RunHandle

__all__ = ["Runs", "result_of"]

ALIAS: Final = "default"
"""The alias of an app's store."""
FIRST_LOOK_SECONDS: Final = 0.001
LONGEST_LOOK_PAUSE_SECONDS: Final = 0.1
FIRST_PAGE_RUNS: Final = 50
"""Runs that are looked at again and again while others wait behind them."""
WARN_AFTER_SECONDS: Final = 5.0
"""Say what is missing when nobody could have executed a run that was waited for as long as this."""
FULL_LOOK_FACTOR: Final = 20
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
    """The runs of a store. Where a verb takes a run, it takes its id or a handle on it."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        now: Callable[[], int],
        zone: Callable[[], tzinfo],
        events: RunEvents | None = None,
        tasks: Iterable[Task[..., Any]] = (),
        *,
        stop: Callable[[str], object] = str,
        sent_back: Callable[[], object] = int,
        explain: Callable[[str], Explanation] | None = None,
    ) -> None:
        self._store, self._now, self._zone = store, now, zone
        self._events, self._tasks = events or RunEvents(), tasks
        self._stop, self._sent_back = stop, sent_back
        self._explain = explain

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
        job: str | Job | None = None,
        task: Any = None,
        since: datetime | timedelta | None = None,
        limit: int = 100,
        after: RunView | None = None,
    ) -> RunPage:
        """Return the runs that match all that is given, newest first, up to `limit`; `.more` says if there are others.

        `task` is a task, a function or its name, `since` a datetime or how long ago, `after` the last run of the page
        before. Raise JobLookupError for a job that is not there and has left no runs.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        job_id, name = _job_and_task(job, task)
        query = make_query(status, queue, group, job_id)
        record = None if after is None else after.record
        found = newest(self._store(), query, limit + 1, record, name, self._oldest(since))
        if not found and after is None:
            self._check_names(job_id, name)
        return RunPage.of(found, limit, self._zone)

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
        job: str | Job | None = None,
        task: Any = None,
        since: datetime | timedelta | None = None,
    ) -> int:
        """Return how many runs match all that is given, as for `find`."""
        job_id, name = _job_and_task(job, task)
        query, oldest = make_query(status, queue, group, job_id), self._oldest(since)
        if name is None and oldest is None:
            number = self._store().count_runs(query)
        else:
            number = len(newest(self._store(), query, None, None, name, oldest))
        if not number:
            self._check_names(job_id, name)
        return number

    def _check_names(self, job_id: str | None, task: str | None) -> None:
        """Say so if no run was found because there is no such job or task."""
        store = self._store()
        if job_id is not None:
            try:
                find_job(store, job_id)
            except JobLookupError:
                # Counted after the job: one that has just fired for the last time is gone, and its run is there.
                if not store.count_runs(make_query(job=job_id)):
                    raise
        known = {each.name for each in self._tasks} | {each.name.rpartition(":")[2] for each in self._tasks}
        if task is not None and task not in known and not newest(store, make_query(), 1, None, task, None):
            # Only a warning: other processes may have tasks that this one has not imported.
            log.warning("this process knows no task %r, and no run of it is kept%s", task, near(task, known))

    def cancel(self, run: str | RunHandle[Any]) -> bool:
        """Cancel a run: at once if it waits, by stopping it if it runs. False if it has ended."""
        store, run_id = self._store(), _id(run)
        while True:
            record = self.read(run_id)
            if record.status in FINAL:
                return False
            if record.status is Status.RUNNING:
                if store.request_cancel([run_id])[0]:
                    self._stop(run_id)
                    return True
            elif self.end([transitions.cancel(record, self._now())])[0]:
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

    def retry(self, run: str | RunHandle[Any]) -> None:
        """Send a failed, cancelled or broken run back to pending."""
        store, run_id = self._store(), _id(run)
        while True:
            again = transitions.retry(self.read(run_id), self._now())
            # It may be changed meanwhile, or another run may have its unique key: then it goes without.
            if store.settle([again])[0] or (
                again.run.unique is not None and store.settle([transitions.unkeyed(again)])[0]
            ):
                self._events.tell(EVENT_RUN_RETRIED, again.run, ALIAS, "somebody sent it back")
                break
        self._sent_back()

    def explain(self, run: str | RunHandle[Any]) -> Explanation:
        """Say why a run has or has not run."""
        if self._explain is None:
            raise RuntimeError("only an app can explain its runs")
        return self._explain(f"run:{_id(run)}")

    def delete(self, run: str | RunHandle[Any]) -> bool:
        """Delete a finished run."""
        return self._store().delete_runs([_id(run)]) > 0

    def wait(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait until all these runs have ended, however they did; raise TimeoutError.

        A later step of a chain is waited for before it exists; if a step before it fails, that is raised. Raise
        RunNotFound for a run that is not there.
        """
        return list(map(self.view, self.ended(list(map(_id, handles)), timeout)))

    def ended(self, run_ids: Sequence[str], timeout: float | None = None) -> list[Run]:
        """Wait as `wait` does, and return the records."""
        waiter = Waiter(run_ids, timeout)
        while not waiter.look(self._store()):
            time.sleep(waiter.pause())
        return waiter.ended()

    async def wait_async(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait as `wait` does, without blocking the event loop."""
        import asyncio  # costs 40 ms, and not all need it

        waiter = Waiter(list(map(_id, handles)), timeout)
        while not await asyncio.to_thread(waiter.look, self._store()):
            await asyncio.sleep(waiter.pause())
        return list(map(self.view, waiter.ended()))

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
        self._coming = ExpectedRuns()
        self._pause = FIRST_LOOK_SECONDS
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
        began, start, size = time.monotonic(), 0, FIRST_PAGE_RUNS
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
            self._all_at = now + FULL_LOOK_FACTOR * (now - began)
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
        pause, self._pause = self._pause, min(LONGEST_LOOK_PAUSE_SECONDS, self._pause * 1.5)
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


def _id(run: str | RunHandle[Any]) -> str:
    return run if isinstance(run, str) else run.id


def _job_and_task(job: str | Job | None, task: Any) -> tuple[str | None, str | None]:
    """Return the id of a job and the name of a task, which may also be the function's name alone."""
    name = task if task is None or isinstance(task, str) else reference_of(task)
    return None if job is None else job_id_of(job), name


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
