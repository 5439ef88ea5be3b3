"""The verbs of an app about jobs: its job book over its store. `DeclaredSchedules` has the schedules in the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from mainspring.app.declaring.schedules import DeclaredSchedules
from mainspring.app.handle import RunHandle
from mainspring.app.runs import Runs
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.run import UNFINISHED, WAITING, Status
from mainspring.core.schedules.upcoming import LoadStep, expected_load
from mainspring.node.jobs.book import JobBook
from mainspring.triggers.base import BaseTrigger
from mainspring.util import undefined

if TYPE_CHECKING:
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore

__all__ = ["Backfill", "Jobs"]

_Load = list[LoadStep]  # inside the class, `list` is a verb


class Backfill(NamedTuple):
    """The result of a backfill: the fires that it runs, the fires that already have a run, and the first run."""

    fires: list[datetime]
    known: list[datetime]
    run: RunHandle[Any] | None = None


class Jobs(DeclaredSchedules):
    """An app's jobs, whose runs go to queues. `app.jobs()` lists them. A verb takes a job or its id."""

    def __init__(self, app_store: AppStore, tasks: Registry, runs: Callable[[], Runs], lease: float) -> None:
        super().__init__(app_store, tasks)
        self._runs, self._lease = runs, lease

    def add(
        self,
        /,
        func: Any,
        trigger: BaseTrigger | str | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        next_run_time: Any = undefined,
        replace_existing: bool = False,
        **options: Any,
    ) -> Job:
        """Add a job, with the arguments of a scheduler's `add_job`; its runs go to the task's queue."""
        options |= {"args": args, "kwargs": kwargs, "name": name, "next_run_time": next_run_time}
        return self.put(self.make(func, trigger, id, options), replace=replace_existing)

    __call__ = JobBook.list

    def modify(self, job: str | Job, jobstore: str | None = None, /, **changes: Any) -> Job:
        """Change attributes of a job."""
        if "func" in changes:
            changes["func"] = self._tasks.stored(self._tasks.resolve(changes["func"]))
        return super().modify(job, jobstore, **changes)

    def run_now(self, job: str | Job) -> RunHandle[Any]:
        """Run a job at once, in addition to its schedule; raise MaxInstancesReachedError above `max_instances`."""
        run = self.fire_now(job, lease=self._lease)
        self._app_store.work_inline([run.id])
        return RunHandle(self._runs(), run.id)

    def backfill(
        self, job: str | Job, since: datetime, until: datetime | None = None, *, trial: bool = False
    ) -> Backfill:
        """Run the past fires of a job between two times that have no run yet; with `trial`, only list them.

        They run one after another, oldest first, as overdue fires do. Each run gets the id that a scheduler would have
        given it. So a fire does not run twice while the store keeps the record of its run, and for an hour after that.
        Raise MaxInstancesReachedError above `max_instances`.
        """
        done = self.run_past(job, None, since, until, self._lease, trial=trial)
        if done.run is None:
            return Backfill(done.fires, done.known)
        self._app_store.work_inline([done.run.id])
        return Backfill(done.fires, done.known, RunHandle(self._runs(), done.run.id))

    def load(
        self,
        since: datetime | None = None,
        until: datetime | timedelta = timedelta(days=1),
        step: timedelta = timedelta(minutes=15),
    ) -> _Load:
        """Return the load of coming fires: for each step the number of fires and the average number of busy slots.

        It assumes that each run takes as long as the median of its job's last successes.
        """
        start, end = self._span(since, until)
        jobs = self.list()
        usual = {
            job_id: median(took)
            for job_id, runs in self._runs().recent([job.id for job in jobs]).items()
            if (took := [run.duration for run in runs if run.status is Status.SUCCEEDED and run.duration is not None])
        }
        return expected_load(jobs, usual, start, end, int(step.total_seconds() * SECOND), self.timezone)

    def remove(self, job: str | Job, jobstore: str | None = None, *, cancel_runs: bool = False) -> None:
        """Remove a job; with `cancel_runs`, also cancel its unfinished runs."""
        runs = self._runs()
        super().remove(job, jobstore)
        if cancel_runs:
            unfinished = [*runs.iterate(status=UNFINISHED, job=self._id_of(job))]
            # Cancel them together, so that no overdue fire starts because the one before it is cancelled.
            runs.cancel_waiting(run for run in unfinished if run.status in WAITING)
            for run in unfinished:
                runs.cancel(run.id)
