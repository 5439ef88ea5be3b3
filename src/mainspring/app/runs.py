"""The verbs about runs, over any store: look, search, count, wait, cancel, retry, change, delete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.app.declaring.task import Task, job_id_of, reference_of
from mainspring.app.flows.sending_back import SentBack, first_refuser, send_back
from mainspring.app.waiting import hub
from mainspring.app.waiting.condition import ConditionWaiter
from mainspring.app.waiting.held_slots import HeldSlots
from mainspring.app.waiting.waiter import Waiter
from mainspring.core import transitions
from mainspring.core.insight.acts import Act
from mainspring.core.insight.explanation import Explanation
from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.run import FINAL, Report, Result, Run, Status, is_local
from mainspring.core.showing.run_view import RunPage, RunView
from mainspring.core.showing.searching import MOST_RUNS_SEARCHED, RunCount, SearchPage, count_up_to, filter_for, search
from mainspring.core.validation import check_queue, make_policy
from mainspring.core.waiting.flows import SIGNAL_QUEUE
from mainspring.core.waiting.results import result_of
from mainspring.errors import HistoryNotKept, JobLookupError, RunNotFound, near
from mainspring.events import EVENT_RUN_RETRIED
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import find_job, instant_of, make_query, newest, pages
from mainspring.node.events.run_events import RunEvents
from mainspring.node.settling import Settler
from mainspring.util import localize

if TYPE_CHECKING:
    from mainspring.app.handle import RunHandle
    from mainspring.jobstores.sqlalchemy.joining.outbox import RunOutbox

__all__ = ["Runs", "result_of"]

ALIAS: Final = "default"
"""The alias of an app's store."""
ACTS_PAGE: Final = 1000

log = logging.getLogger("mainspring.app")


class Runs:
    """The runs of a store. A verb takes a run's id or a handle on it."""

    def __init__(
        self,
        store: Callable[[], JobStore],
        now: Callable[[], int],
        zone: Callable[[], tzinfo],
        events: RunEvents | None = None,
        tasks: Iterable[Task[..., Any]] = (),
        *,
        stop: Callable[[str], object] = lambda run_id: None,
        on_claimable: Callable[[], object] = lambda: None,
        explain: Callable[[str], Explanation] | None = None,
        record: Callable[..., object] = lambda *_, **__: None,
        outbox: Callable[[], RunOutbox | None] = lambda: None,
        held: HeldSlots | None = None,
    ) -> None:
        self._store, self._now, self._zone = store, now, zone
        self._events, self._tasks = events or RunEvents(), tasks
        self._stop = stop
        """Stops a run at once if this process executes it."""
        self._on_claimable = on_claimable
        """Called when a verb may have made waiting runs claimable."""
        self._explain, self.record, self._outbox = explain, record, outbox
        self._held = held or HeldSlots(lambda: None)
        self.pause: Callable[[float], object] = time.sleep
        """The function by which a verb waits some milliseconds for another node."""
        self.off_loop: hub.OffLoop = hub.on_a_thread
        """The function by which async code makes a blocking call."""

    @property
    def store(self) -> JobStore:
        """The store of the runs."""
        return self._store()

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown."""
        return self._zone()

    @property
    def tasks(self) -> Any:
        """The tasks by name."""
        return self._tasks

    def now(self) -> int:
        """Return the store's time."""
        return self._now()

    def read(self, run: str | RunHandle[Any] | RunView) -> Run:
        """Return a run's record; raise RunNotFound."""
        run_id = _id(run)
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
        """Return up to `limit` runs that match all arguments, newest first; `.more` says whether there are others.

        `task` is a task, a function or its name. `since` is a datetime, or a timedelta back from now. `after` is the
        last run of the previous page. Raise JobLookupError for a job that does not exist and has left no runs.
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
        """Return how many runs match all arguments, which are those of `find`."""
        job_id, name = _job_and_task(job, task)
        query, oldest = make_query(status, queue, group, job_id), self._oldest(since)
        if name is None and oldest is None:
            number = self._store().stats(query).matching
        else:
            number = len(newest(self._store(), query, None, None, name, oldest))
        if not number:
            self._check_names(job_id, name)
        return number

    def search(
        self, text: str, *, limit: int = 100, after: RunView | None = None, most: int | None = MOST_RUNS_SEARCHED
    ) -> SearchPage:
        """Return up to `limit` of the newest runs that match a filter such as `status:failed task:send* since:1h`.

        It reads at most `most` runs. `page.next` is the run after which the next page begins. Raise FilterError.
        """
        return search(self, filter_for(self, text), limit=limit, most=most, after=after)

    def count_up_to(self, text: str, cap: int = MOST_RUNS_SEARCHED) -> RunCount:
        """Return how many runs match a filter, and whether the number is exact: counting stops at `cap`."""
        return count_up_to(self, filter_for(self, text), cap)

    def count_capped(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | None = None,
        cap: int,
    ) -> RunCount:
        """Return how many runs match, up to a cap, and whether the number is exact."""
        found = self._store().stats(replace(make_query(status, queue, group, job), cap=cap))
        return RunCount(min(found.matching, cap), found.complete and found.matching <= cap)

    def made_behind(self, after: RunView | None, number: int) -> datetime | None:
        """Return the creation time of the run `number` runs older than `after` or the newest; None if there is none."""
        found = self._store().made_behind(None if after is None else after.record, number)
        return None if found is None else from_us(found)

    def recent(self, job_ids: Iterable[str], n: int = 20) -> dict[str, list[RunView]]:
        """Return the newest `n` runs of each of these jobs, missed runs included."""
        wanted = list(dict.fromkeys(job_ids))
        found = self._store().recent_runs(wanted, n)
        return {job_id: list(map(self.view, runs)) for job_id, runs in zip(wanted, found, strict=True)}

    def views(self, run_ids: Sequence[str]) -> list[RunView]:
        """Return the runs with these ids; leave out runs that are gone."""
        return [self.view(run) for run in self._store().get_runs(run_ids) if run is not None]

    def acts(self) -> list[Act]:
        """Return the acts of people, newest first: the store keeps the newest 10,000 acts, for 90 days."""
        store = self._store()
        if not store.keeps_history:
            raise HistoryNotKept(type(store).__name__, "nobody knows who did what")
        found = page = store.acts(limit=ACTS_PAGE)
        while len(page) == ACTS_PAGE:
            page = store.acts(after=page[-1], limit=ACTS_PAGE)
            found = [*found, *page]
        return found

    def _check_names(self, job_id: str | None, task: str | None) -> None:
        """Raise if no run was found because the job does not exist; warn if the task is unknown."""
        store = self._store()
        if job_id is not None:
            try:
                find_job(store, job_id)
            except JobLookupError:
                # Count after looking the job up: a job that has just fired for the last time is gone but left a run.
                if not store.stats(make_query(job=job_id)).matching:
                    raise
        known = {each.name for each in self._tasks} | {each.name.rpartition(":")[2] for each in self._tasks}
        if task is not None and task not in known and not newest(store, make_query(), 1, None, task, None):
            # Only warn: other processes may have tasks that this one has not imported.
            log.warning("this process knows no task %r, and no run of it is kept%s", task, near(task, known))

    def cancel(self, run: str | RunHandle[Any]) -> bool:
        """Cancel a waiting run at once, or stop a running one. Return False if it has ended."""
        store, run_id = self._store(), _id(run)
        while True:
            record = self.read(run_id)
            if record.status in FINAL:
                return False
            if record.status is Status.RUNNING:
                if store.cancel([run_id])[0]:
                    self._stop(run_id)
                    self.record("cancel", "run", run_id)
                    return True
            elif self.cancel_waiting([record]):
                self.record("cancel", "run", run_id)
                return True

    def stop_running(self, run_ids: Sequence[str]) -> None:
        """Stop running runs; ignore those that have ended meanwhile."""
        for run_id, marked in zip(run_ids, self._store().cancel(run_ids) if run_ids else (), strict=True):
            if marked:
                self._stop(run_id)

    def purge(self, queue: str) -> int:
        """Cancel all pending runs of a queue, each as `cancel` does; return how many."""
        number = 0
        for page in pages(self._store(), make_query("pending", queue)):
            number += self.cancel_waiting(page)
        return number

    def cancel_waiting(self, runs: Iterable[Run]) -> int:
        """Cancel waiting runs; return how many, since some may have started or ended meanwhile."""
        settler, now = Settler(self._store()), self._now()
        for run in runs:
            settler.add(Report(run, Result.CANCELLED), transitions.cancel(run, now), now)
        return self._settle(settler, now)

    def cancel_refused(self, run_ids: Iterable[str]) -> None:
        """Cancel runs that a store has refused, and the runs that can no longer run because of them."""
        settler, now = Settler(self._store()), self._now()
        settler.cancel_refused(run_ids, now)
        self._settle(settler, now)

    def _settle(self, settler: Settler, now: int) -> int:
        """Write and announce the outcomes of a settler; return how many were written, not counting refused runs."""
        number = 0
        for each in settler.settle(now):
            self._events.sums(ALIAS).settled([each], now)
            if each.accepted:
                number += not each.dropped
                self._events.settled(each.outcome, ALIAS)
        return number

    def retry(self, run: str | RunHandle[Any], *, at: datetime | timedelta | None = None) -> None:
        """Send a failed, cancelled or broken run back to pending, to start at once or at a time.

        The runs after it that were cancelled because of it are sent back, too, and wait for it. A run with predecessors
        is judged by them again: if one of them has still not ended as it should, the run is cancelled again.
        """
        run_id = _id(run)
        moment = None if at is None else self._instant(at)
        sent = send_back(self._store(), run_id, self._now, moment, self.pause)
        self.record("retry", "run", run_id)
        self.announce_sent_back(sent)
        if run_id in sent.refused:
            record = self.read(run_id)
            raise ValueError(f"run {run_id!r} {record.reason}; send back run {record.refused!r} instead")

    def announce_sent_back(self, sent: SentBack) -> None:
        """Publish that runs were sent back, and cancel those that other runs still refuse."""
        for each in sent.runs:
            self._events.tell(EVENT_RUN_RETRIED, each, ALIAS, "somebody sent it back")
        if sent.refused:
            self.cancel_refused(sent.refused)
        self._on_claimable()

    def signal(self, run: str | RunHandle[Any], value: Any = None) -> bool:
        """Give a signal a value, so that the runs after it can start.

        Return False if it already has a value or is cancelled. Raise RunNotFound, or ValueError if it is not a signal.
        """
        run_id = _id(run)
        while True:
            record = self.read(run_id)
            if record.queue != SIGNAL_QUEUE:
                raise ValueError(f"run {run_id!r} is not a signal; flow.signal(name) makes one")
            if record.status is Status.BLOCKED:
                raise ValueError(f"the flow of the signal {run_id!r} is still being stored; try again")
            if record.status in FINAL:
                return False
            outcome = transitions.signal(record, value, self._now())
            answers = self._store().settle([self._store().pack_outcome(outcome)])
            if answers[0]:
                break
        self._events.settled(outcome, ALIAS)
        self.cancel_refused(answers.refused)
        self.record("signal", "run", run_id)
        self._on_claimable()
        return True

    def explain(self, run: str | RunHandle[Any]) -> Explanation:
        """Explain why a run has or has not run."""
        if self._explain is None:
            raise RuntimeError("only an app can explain its runs")
        return self._explain(f"run:{_id(run)}")

    def move(self, run: str | RunHandle[Any], queue: str) -> None:
        """Move a waiting run to another queue; raise ValueError if it no longer waits."""
        name = check_queue(queue)
        if is_local(self.read(run).queue):
            raise ValueError(f"run {_id(run)!r} waits for an executor of a scheduler, not in a queue")
        self._change("move", run, queue=name)

    def postpone(self, run: str | RunHandle[Any], at: datetime | timedelta) -> None:
        """Let a waiting run start at another time, later or earlier, even if that is late for its job."""
        self._change("postpone", run, run_at=max(self._now(), self._instant(at)))

    def prioritize(self, run: str | RunHandle[Any], priority: int) -> None:
        """Give a waiting run another priority, from -100 to 100."""
        self._change("prioritize", run, priority=make_policy(DEFAULT_POLICY, priority=priority).priority)

    def _change(self, verb: str, run: str | RunHandle[Any], **changes: Any) -> None:
        """Change a waiting run; retry if another process changed it meanwhile."""
        while not self._store().settle([transitions.change(self.read(run), **changes)])[0]:
            continue
        self.record(verb, "run", _id(run), **changes)
        self._on_claimable()

    def _instant(self, at: datetime | timedelta) -> int:
        if isinstance(at, timedelta):
            return self._now() + int(at.total_seconds() * SECOND)
        if not isinstance(at, datetime):
            raise TypeError(f"at must be a datetime or a timedelta from now, such as timedelta(hours=1), not {at!r}")
        return to_us(at if at.tzinfo else localize(at, self._zone()))

    def delete(self, run: str | RunHandle[Any]) -> bool:
        """Delete a finished run."""
        deleted = self._store().delete_runs([_id(run)]) > 0
        if deleted:
            self.record("delete", "run", _id(run))
        return deleted

    def wait(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait until all these runs have ended in any way; raise TimeoutError.

        Raise RunNotFound for a run that does not exist.
        """
        return list(map(self.view, self.wait_for_records(list(map(_id, handles)), timeout)))

    def wait_for_records(self, run_ids: Sequence[str], timeout: float | None = None) -> list[Run]:
        """Wait as `wait` does, and return the records."""
        with self._held.hold() as complaint:
            waiter = Waiter(run_ids, timeout, self._outbox(), complaint)
            hub.wait(self._store, waiter)
        return waiter.ended()

    def wait_until(self, holds: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until a condition holds; check it again when runs end; raise TimeoutError."""
        hub.wait(self._store, ConditionWaiter(holds, timeout))

    async def wait_async(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait as `wait` does, without blocking the event loop."""
        waiter = Waiter(list(map(_id, handles)), timeout, self._outbox())
        await hub.wait_async(self._store, waiter, self.off_loop)
        return list(map(self.view, waiter.ended()))

    def result_of(self, run: Run) -> Any:
        """Return the result of a finished run, or raise its error; a refused run raises the error of the failed run."""
        failed = first_refuser(self._store(), run)
        return result_of(run if failed is None else failed)

    def view(self, run: Run) -> RunView:
        """Return a record in the form that people see."""
        return RunView(run, self._zone())


def _id(run: str | RunHandle[Any] | RunView) -> str:
    return run if isinstance(run, str) else run.id


def _job_and_task(job: str | Job | None, task: Any) -> tuple[str | None, str | None]:
    """Return the id of a job and the name of a task; a task may be given by its function's name alone."""
    name = task if task is None or isinstance(task, str) else reference_of(task)
    return None if job is None else job_id_of(job), name
