"""The job book: every verb about jobs, over one store or several. `JobLookup` has the verbs that only read.

Each app and each scheduler has one. `app.jobs` is the book of an app. A scheduler gives its verbs APScheduler's names.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final, NamedTuple

from mainspring.core.ids import check_id, pin
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import FIRING_FIELDS, Job
from mainspring.core.plan import Firing, Place, make_runs, passed_over
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run
from mainspring.core.schedules.upcoming import past_fires
from mainspring.core.showing.run_view import RunView
from mainspring.core.validation import POLICY_FIELDS, check_field, check_lateness
from mainspring.errors import MaxInstancesReachedError, SchedulerNotRunningError, VersionConflict
from mainspring.events import EVENT_JOB_ADDED, EVENT_JOB_MODIFIED, EVENT_JOB_REMOVED, JobEvent
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import count_unfinished, fired_instants
from mainspring.node.events.run_events import RunEvents
from mainspring.node.jobs.lookup import JobLookup, PendingJob
from mainspring.node.new_ids import new_job_id
from mainspring.plugins import make_trigger, without_excluded
from mainspring.triggers.base import BaseTrigger
from mainspring.util import convert_to_datetime, undefined

__all__ = ["JobBook", "PastFires"]

RUN_NOW_TRIES: Final = 1000
"""Give up `run_now` after other processes have changed the job this many times meanwhile."""
MOST_BACKFILLED: Final = 1000
"""Run at most this many fires in one backfill: one write stores all their runs, which run one after another."""
JOB_OPTIONS: Final = POLICY_FIELDS | {
    *FIRING_FIELDS,
    *("args", "kwargs", "id", "name", "next_run_time", "exclude", "queue", "shard", "replace_existing"),
}
"""The options of a job besides those of its trigger; the error about a misspelt option suggests one of them."""


class PastFires(NamedTuple):
    """The past fires to run, the fires that have a run already, and the first run that was made."""

    fires: list[datetime]
    known: list[datetime]
    run: RunView | None = None


class JobBook(JobLookup):
    """The jobs of an app or a scheduler. A verb about a job takes the job or its id.

    `wake` wakes the scheduler in time for a due job. `describe` checks a function, its arguments, a job's name and
    policy. It returns the call, the policy, and the job's default attributes.
    """

    log = logging.getLogger("mainspring.scheduler")
    fields: frozenset[str] = frozenset(("queue", *FIRING_FIELDS))
    """The plain attributes of a job that the caller may set."""
    options: frozenset[str] = JOB_OPTIONS
    """The options to suggest when the caller misspells one; a trigger adds its own."""
    reads_crontab = True
    """Whether a trigger may be given as a crontab expression."""

    def __init__(
        self,
        stores: Callable[[], Mapping[str, JobStore] | None],
        now: Callable[[str], int],
        wake: Callable[[str, int | None], object],
        describe: Callable[[Any, Any, Any, str | None, dict[str, Any]], tuple[Call, Policy, dict[str, Any]]],
        *,
        zone: Callable[[], tzinfo],
        random: Callable[[], float],
        events: RunEvents,
        lock: threading.RLock,
    ) -> None:
        super().__init__(stores, now, zone)
        self._wake, self._describe = wake, describe
        self._random, self._events, self.lock = random, events, lock

    def _bound(self, job: Job, alias: str) -> Job:
        job._book, job._jobstore_alias = self, alias
        return job

    def current_run_time(self, job: Job) -> int | None:
        """Return the next run time to show for a `Job` object that a caller holds."""
        return job.at

    # -- adding ------------------------------------------------------------------------------------------------

    def make(
        self,
        func: Any,
        trigger: BaseTrigger | str | None,
        id: str | None,
        options: dict[str, Any],
        *,
        jobstore: str = "default",
        made_at: int | None = None,
    ) -> Job:
        """Make a job and check all of it; an interval starts at `made_at`, by default now.

        `options` holds the options of the call, the job, its policy and its trigger.
        """
        args, kwargs, name = options.pop("args", None), options.pop("kwargs", None), options.pop("name", None)
        next_run_time, shard = options.pop("next_run_time", undefined), options.pop("shard", None)
        fields, own = self.fields, {}
        given = []
        for option, value in list(options.items()):
            if option in fields:
                del options[option]
                if value is not undefined and (value is not None or option != "queue"):
                    given.append((option, value))
            elif option in POLICY_FIELDS:
                own[option] = options.pop(option)
        call, policy, plain = self._describe(func, args, kwargs, name, own)
        for field, value in given:
            plain[field] = check_field(field, value)
        check_lateness(plain.get("late_after"), plain.get("down_after"))
        job_id = new_job_id() if id is None else check_id(id)
        job = Job(
            job_id if shard is None else check_id(pin(shard, job_id)),
            call,
            self._trigger(trigger, options, lambda: self._now(jobstore) if made_at is None else made_at),
            policy=policy,
            **plain,
        )
        if next_run_time is not undefined:
            job.next_run_time = convert_to_datetime(next_run_time, self.timezone, "next_run_time")
        return job

    def _trigger(self, trigger: Any, options: dict[str, Any], now: Callable[[], int]) -> BaseTrigger:
        return make_trigger(
            trigger, options, zone=self.timezone, now=now, crontab=self.reads_crontab, besides=self.options
        )

    def put(self, job: Job, jobstore: str = "default", replace: bool = False) -> Job:
        """Store a job, or keep it until the scheduler starts."""
        stores = self._stores()
        if stores is None:
            with self.lock:  # the start holds this lock while it stores the pending jobs
                stores = self._stores()
                if stores is None:
                    job._book = self
                    self.pending.append(PendingJob(job, jobstore, replace))
                    return job
        self._store(job, jobstore, self._known(jobstore, stores), replace)
        return job

    def put_pending(self) -> None:
        """Store the jobs that waited for the start."""
        stores = self._stores() or {}
        while self.pending:
            job, alias, replace = self.pending[0]
            self._store(job, alias, self._known(alias, stores), replace)
            del self.pending[0]

    def _store(self, job: Job, alias: str, store: JobStore, replace: bool) -> None:
        computed, missed = not job.timed, None
        if computed:
            self._time(job, alias)
        job._jobstore_alias = alias
        try:
            if replace:
                missed = self._replace(store, alias, job, computed)
            else:
                store.add_job(job)
        except BaseException:
            job._jobstore_alias = None
            raise
        job._book = self
        self._log_job("added", job, f" to the job store {alias!r}")
        self._announce(EVENT_JOB_ADDED, job.id, alias, missed)
        self._wake(alias, job.at)

    def _replace(self, store: JobStore, alias: str, job: Job, computed: bool) -> Run | None:
        """Store a job in place of the job with the same id, if there is one; return the record of the skipped fires.

        `computed` says that the caller did not set the next run time. Then the job keeps an overdue fire of the same
        trigger.
        """
        while True:
            known, now = store.lookup_job(job.id), self._now(alias)
            if known is None:
                store.add_jobs([job], replace=True)
                return None
            if computed and known.at is not None and known.at <= now and known.trigger == job.trigger:
                job.at, job.nominal = known.at, known.nominal
            job.version, job.incarnation = known.version, known.incarnation
            try:
                return self._write(store, known, job, now)
            except VersionConflict:
                continue

    def _time(self, job: Job, alias: str) -> Job:
        """Give a job its first fire time from now on."""
        trigger = job.trigger
        job.at = job.nominal = trigger.next_fire(None, self._now(alias))
        job.timed = True
        if job.at is None:
            self.log.warning("job %r will never run: %s has no fire time ahead", job.id, trigger)
        elif trigger.jitter:
            job.at += int(trigger.jitter * self._random() * SECOND)
        return job

    def _log_job(self, what: str, job: Job, where: str = "") -> None:
        if self.log.isEnabledFor(logging.INFO):
            next_at = "paused" if job.at is None else f"next at {from_us(job.at, self.timezone):%Y-%m-%d %H:%M:%S %Z}"
            words = job.trigger.describe()
            self.log.info('%s job "%s" (%s)%s: %s; %s', what, job.name, job.id, where, words, next_at)

    def _announce(self, code: int, job_id: str, alias: str, missed: Run | None = None) -> None:
        """Publish a change of a job, and the overdue fires that the change has skipped."""
        if missed is not None:
            self._events.ended(missed, alias)
        if self._events.listeners.mask & code:
            self._events.publish(JobEvent(code, job_id, alias))

    # -- changing ----------------------------------------------------------------------------------------------

    def _change(
        self, job: str | Job, jobstore: str | None, change: Callable[[Job, str], Job], verb: str = "", **details: Any
    ) -> Job:
        """Read, change and write a job; start over if another process wrote it meanwhile. The audit records `verb`."""
        job_id = self._id_of(job)
        while True:
            found, alias, store = self._find(job_id, jobstore)
            changed = change(found, alias)
            if store is None:
                with self.lock:
                    if any(item.job is found for item in self.pending):
                        changed._book = self
                        return found._follow(changed)
                continue  # it was stored meanwhile
            try:
                missed = self._write(store, found, changed, self._now(alias))
            except VersionConflict:
                continue
            self._bound(changed, alias)
            self._log_job("changed", changed)
            self._announce(EVENT_JOB_MODIFIED, job_id, alias, missed)
            self._wake(alias, changed.at)
            if verb:
                self._record(verb, job_id, **details)
            return changed

    def _record(self, verb: str, job_id: str, **details: Any) -> None:
        """Record a person's act on a job in the audit; a book without an audit does nothing."""

    def _write(self, store: JobStore, job: Job, changed: Job, now: int) -> Run | None:
        """Write `changed` in place of `job`, as it was read. In the same step, record skipped overdue fires as missed.

        Return that record, if there is one. Raise VersionConflict if another process changed the job meanwhile.
        """
        step = passed_over(job, changed, now)
        if step is None:
            store.update_job(changed)
            return None
        if store.fire([step], 0) == [None]:
            raise VersionConflict(job.id)
        return step.missed[0]

    def modify(self, job: str | Job, jobstore: str | None = None, /, **changes: Any) -> Job:
        """Change attributes of a job; `exclude` replaces the exclusions of its trigger, None removes them."""
        fields, exclude = sorted(changes), changes.pop("exclude", undefined)
        if "next_run_time" in changes:
            changes["next_run_time"] = convert_to_datetime(changes["next_run_time"], self.timezone, "next_run_time")

        def change(job: Job, alias: str) -> Job:
            changed = job.evolve(**changes)
            if exclude is undefined:
                return changed
            trigger = without_excluded(changed.trigger, exclude, self.timezone, self._now(alias))
            changed = changed.evolve(trigger=trigger)
            return changed if job.at is None or "next_run_time" in changes else self._time(changed, alias)

        return self._change(job, jobstore, change, "modify_job", fields=fields)

    def reschedule(
        self, job: str | Job, trigger: Any = None, jobstore: str | None = None, /, **trigger_args: Any
    ) -> Job:
        """Give a job another trigger; its next run time is computed from now."""
        made = self._trigger(trigger, trigger_args, lambda: self._now(jobstore or "default"))

        def change(job: Job, alias: str) -> Job:
            return self._time(job.evolve(trigger=made), alias)

        return self._change(job, jobstore, change, "reschedule_job", trigger=str(made))

    def pause(self, job: str | Job, jobstore: str | None = None) -> Job:
        """Stop a job from coming due."""
        return self._change(job, jobstore, lambda job, _: job.evolve(next_run_time=None), "pause_job")

    def resume(self, job: str | Job, jobstore: str | None = None) -> Job | None:
        """Let a job come due again from now on; remove it and return None if it has no fire time left."""
        changed = self._change(job, jobstore, lambda job, alias: self._time(job.copy(), alias), "resume_job")
        if changed.at is None:
            self.remove(changed, jobstore)
            return None
        return changed

    def skip_next(self, job: str | Job, jobstore: str | None = None) -> Job:
        """Skip a job's next fire."""

        def change(job: Job, alias: str) -> Job:
            if job.pending and not job.timed:
                raise ValueError(f"job {job.id!r} is pending: it gets its next fire when the scheduler starts")
            if job.nominal is None or job.at is None:
                raise ValueError(f"job {job.id!r} is paused, so there is no next fire to skip")
            following = job.trigger.next_fire(job.nominal, job.nominal)
            if following is None:
                raise ValueError(f"the next fire of job {job.id!r} is its last; remove the job instead")
            changed = job.copy()
            changed.at = changed.nominal = following
            return changed

        return self._change(job, jobstore, change, "skip_next")

    def fire_now(self, job: str | Job, jobstore: str | None = None, *, lease: float) -> Run:
        """Make a run of a job now, outside its schedule; raise MaxInstancesReachedError above `max_instances`."""
        run = self._fire_besides(job, jobstore, lease)
        self._record("run_now", self._id_of(job), run=run.id)
        return run

    def _fire_besides(self, job: str | Job, jobstore: str | None, lease: float, fires: Sequence[int] = ()) -> Run:
        """Make a run for the first of these fires, or for now if there are none; the others run one after another."""
        job_id = self._id_of(job)
        for _ in range(RUN_NOW_TRIES):
            read, alias, store = self._find(job_id, jobstore)
            if store is None:
                raise SchedulerNotRunningError
            now = self._now(alias)
            if count_unfinished(store, [(read.id, read.incarnation)])[0] >= read.max_instances:
                raise MaxInstancesReachedError(read)
            queued = read.executor == "queue"
            place = Place(read.queue, executor=self._executor_for(read)) if queued else Place(f".{read.executor}")
            runs = make_runs(read, read.incarnation, place, fires or (now,), now)
            step = Firing(read.id, read.version, read.at, read.nominal, runs, unscheduled=True)
            # A fire by another process since this read has made a new version of the job; the next try counts its run.
            if store.fire([step], lease) != [None]:
                self._events.sums(alias).added(runs, now)
                self._events.fired(runs, alias)
                return runs[0]
        raise VersionConflict(job_id)

    def _executor_for(self, job: Job) -> str | None:
        """Return the executor for the runs of a job whose runs go to a queue; None if this process does not know it."""
        return None

    def run_past(
        self,
        job: str | Job,
        jobstore: str | None,
        since: datetime,
        until: datetime | None,
        lease: float,
        *,
        trial: bool = False,
    ) -> PastFires:
        """Run the past fires of a job that have no run yet, one after another; with `trial`, only list them."""
        found, alias, store = self._find(self._id_of(job), jobstore)
        if store is None:
            raise SchedulerNotRunningError
        now = self._now(alias)
        end = now if until is None else min(now, self._instant(until, "until"))
        instants = past_fires(found.trigger, self._instant(since, "since"), end, MOST_BACKFILLED)
        known = fired_instants(store, found, instants)
        wanted, run = tuple(at for at in instants if at not in known), None
        while wanted and run is None and not trial:
            run = self._fire_besides(found, jobstore, lease, wanted)
            if store.get_runs([run.id])[0] is None:  # its run was deleted less than an hour ago
                known.add(wanted[0])
                wanted, run = wanted[1:], None
        if run is not None:
            self._record("backfill", found.id, run=run.id, fires=len(wanted))
        zone = found.trigger.timezone or self.timezone
        first = None if run is None else RunView(run, self.timezone)
        return PastFires([from_us(at, zone) for at in wanted], [from_us(at, zone) for at in sorted(known)], first)

    def remove(self, job: str | Job, jobstore: str | None = None) -> None:
        """Remove a job; its existing runs go on."""
        job_id = self._id_of(job)
        _, alias, store = self._find(job_id, jobstore)
        if store is None:
            with self.lock:
                waiting = [item for item in self.pending if (item.job.id, item.alias) != (job_id, alias)]
                if len(waiting) < len(self.pending):
                    self.pending = waiting
                    return
            return self.remove(job, jobstore)  # it was stored meanwhile
        store.remove_job(job_id)
        self.log.info("removed job %s from the job store %r", job_id, alias)
        self._announce(EVENT_JOB_REMOVED, job_id, alias)
        self._record("remove_job", job_id)

    def clear(self, jobstore: str | None = None) -> None:
        """Remove all jobs of a store, or of all stores."""
        with self.lock:
            self.pending = [item for item in self.pending if jobstore not in (None, item.alias)]
        for store in self._chosen(jobstore).values():
            store.remove_all_jobs()
