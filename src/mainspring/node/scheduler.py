"""The scheduler tick: read due jobs, plan and fire them, then start their runs or leave them in their queues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from mainspring.core.instants import SECOND
from mainspring.core.lanes import THREADS_EXECUTOR, lane_of
from mainspring.core.plan import DueJob, Firing, MissedFires, Place, Plan, firing, plan
from mainspring.core.run import is_local
from mainspring.errors import is_own
from mainspring.events import EVENT_JOB_REMOVED, JobEvent
from mainspring.jobstores.base import RUNS_STEP
from mainspring.node.events.complaints import Complaints
from mainspring.node.loop import LONGEST_SLEEP_SECONDS
from mainspring.node.watch.overlaps import WaitingFires

if TYPE_CHECKING:
    from mainspring.core.job import Job
    from mainspring.core.run import Run
    from mainspring.node.store_link import StoreLink

__all__ = ["SchedulerTick"]

DUE_PAGE_JOBS: Final = 500
DUE_HOLD_SECONDS: Final = 2.0
"""Hide a due job from other schedulers for this long after one scheduler has read it."""

MOST_PATIENCE_SECONDS: Final = 1.0
"""Stand by for at most this long: if the prompt schedulers are gone, a fire is late by up to this."""

_PRIORITY: Final = attrgetter("job.policy.priority")

_Missed = dict[str, tuple[MissedFires, ...]]
"""The fires that were missed, by the id of their job."""

log = logging.getLogger("mainspring.scheduler")


class SchedulerTick:
    """Fires the due jobs of one store."""

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        self.looks_at = 0
        """The time at which this tick looks next, by the store's clock."""
        self._patience = 0.0
        """How many seconds this tick lets other schedulers go first; it grows while they fire the jobs first."""
        self._awaited: int | None = None
        """When a job should be due at the next look; if the look finds none by then, another scheduler fired it."""
        self._seen: int | None = None
        """The store's cursor when this tick last looked."""
        self._homeless = Complaints()
        """Executors that jobs name and this node lacks."""
        self._stuck = Complaints()
        """Jobs that cannot be planned or fired."""
        self.waiting = WaitingFires(link)

    def __call__(self) -> float:
        """Fire a page of due jobs."""
        link = self.link
        if not link.firing:
            return LONGEST_SLEEP_SECONDS
        asked, self._seen = link.node.clock.monotonic(), link.store.cursor()
        try:
            page = link.store.due(DUE_PAGE_JOBS, DUE_HOLD_SECONDS)
        except BaseException:
            self._seen = None
            raise
        link.observe(page.now, asked)
        soonest = page.now + int(LONGEST_SLEEP_SECONDS * SECOND) if page.next_at is None else page.next_at
        jobs = self.waiting.add_ended(page.jobs)
        if jobs:
            self._patience, self._awaited = 0.0, None
            soonest = min(soonest, self._fire(jobs, page.now))
        elif self._awaited is not None and self._awaited <= page.now:
            # Another node was quicker. In a big fleet, a few schedulers stay prompt and the others stand by.
            self._patience = min(MOST_PATIENCE_SECONDS, max(0.01, self._patience * 2))
        if len(page.jobs) >= DUE_PAGE_JOBS:
            return 0.0
        now = link.now()
        self._awaited = soonest if page.next_at is not None or page.jobs else None
        if self._patience:
            soonest += int(self._patience * link.node.clock.random() * SECOND)
        self.looks_at = min(soonest, now + int(LONGEST_SLEEP_SECONDS * SECOND))
        wait = max(0.0, (self.looks_at - now) / SECOND)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("next wake-up at %s, in %.3f s", link.node.local(self.looks_at), wait)
        return wait

    def may_concern(self, before: int, cursor: int) -> bool:
        """Return True if jobs may have changed since this tick last looked (or since `before`), up to `cursor`."""
        since = before if self._seen is None else self._seen
        return not self.link.store.tells_topics or (cursor - since) % RUNS_STEP != 0

    def wake_for(self, at: int) -> None:
        """Look in time for a job that is due at `at`, unless this tick has looked since the job was changed here."""
        cursor = self.link.store.cursor()
        if at < self.looks_at and (cursor is None or self.may_concern(cursor, cursor)):
            self.link.work.wake(self)

    def _fire(self, jobs: list[DueJob], now: int) -> int:
        """Fire jobs; return when the first of them is due again."""
        link, places = self.link, _Places(self.link, now)
        firings, missed, soonest = self._plan(jobs, places, now)
        if not firings:
            return soonest
        if places.lanes and link.node.watcher is not None:
            link.node.watcher.claiming(link.node.id, places.token, places.lanes)
        try:
            answers = self._take(firings, places)
        except BaseException:
            # The store may have fired the jobs: ask by the token for the runs that it leased to this node.
            link.worker.uncertain.append(places.token)
            raise
        return min(soonest, self._start(firings, answers, missed, places, now))

    def _plan(self, jobs: list[DueJob], places: _Places, now: int) -> tuple[list[Firing], _Missed, int]:
        """Return the steps to take, the fires that they miss, and when to look at the other jobs again."""
        link, soonest = self.link, now + int(LONGEST_SLEEP_SECONDS * SECOND)
        firings = []
        missed: _Missed = {}
        homeless = self._homeless.open
        for due in sorted(jobs, key=_PRIORITY, reverse=True):  # slots go by priority first, then by time, as in a claim
            try:
                planned = plan(due, now, link.node.clock.random() if due.job.trigger.jitter else 0.0)
            except BaseException as error:  # a user's trigger may even raise SystemExit
                if not is_own(error):
                    raise
                self._report_stuck("the trigger of", due.job.id, error)
                soonest = min(soonest, now + int(DUE_HOLD_SECONDS * SECOND))
                continue
            if planned.waits:
                planned = self._plan_again(due, planned, now)
            if planned.waits:
                self.waiting.add(due)
                soonest = min(soonest, now + int(DUE_HOLD_SECONDS * SECOND))
                continue
            place = places.of(due.job, bool(planned.fires))
            if place is None:
                self._report_homeless(due.job)
                place = Place(f".{due.job.executor}")
            elif homeless:
                self._homeless.end(due.job.executor)
            firings.append(firing(due, planned, place, now))
            if planned.missed:
                missed[due.job.id] = planned.missed
        return firings, missed, soonest

    def _start(
        self,
        firings: list[Firing],
        answers: Sequence[tuple[str, ...] | Exception | None],
        missed: _Missed,
        places: _Places,
        now: int,
    ) -> int:
        """Start the runs of fired jobs or leave them in their queues; return when the first job is due again."""
        link, soonest = self.link, now + int(LONGEST_SLEEP_SECONDS * SECOND)
        started: list[Run] = []
        added: list[Run] = []
        queues: set[str] = set()
        stuck, listening = self._stuck.open, bool(link.node.events.listeners.mask)
        for step, inserted in zip(firings, answers, strict=True):
            if isinstance(inserted, Exception):
                self._report_stuck("firing", step.job_id, inserted)
                soonest = min(soonest, now + int(DUE_HOLD_SECONDS * SECOND))
                continue
            if stuck:
                self._stuck.end(step.job_id)
            if inserted is None:  # another process changed or fired the job first: look again at once
                soonest = now
                continue
            if step.next_at is not None and step.next_at < soonest:
                soonest = step.next_at
            for run in step.runs:
                if run.id not in inserted:
                    continue
                added.append(run)
                if run.token is None or run.id in places.waiting:
                    queues.add(run.queue)
                else:
                    started.append(run)
            if step.missed:
                for record, item in zip(step.missed, missed[step.job_id], strict=False):
                    link.sums.missed(record, item.count, now)
            if step.missed or step.next_at is None or listening:
                self._tell(step, inserted)
        if queues:
            link.worker.look_now(queues)
        link.sums.added(added, now)
        link.begin(started)
        if started:  # from now on the worker tick looks for runs that wait behind long ones
            link.wake_worker()
        return soonest

    def _plan_again(self, due: DueJob, planned: Plan, now: int) -> Plan:
        """If a fire waits for runs that it may cancel, cancel them, and plan the job again."""
        if due.job.overlap != "cancel_other":
            return planned
        try:
            self.waiting.cancel_others(due, now)
        except OSError:  # the store is away
            raise
        except Exception as error:
            self._report_stuck("cancelling the earlier runs of", due.job.id, error)
            return planned
        return plan(due, now, self.link.node.clock.random())

    def _take(self, firings: list[Firing], places: _Places) -> Sequence[tuple[str, ...] | Exception | None]:
        """Let the store take these steps, and note the runs that wait although the steps had claimed them.

        If the store fails, retry smaller parts, so that one bad step delays no other.
        """
        link = self.link
        try:
            answers = link.store.fire(firings, link.node.lease)
            places.waiting.update(answers.waiting)
            return answers
        except OSError:  # the store is away
            raise
        except Exception as error:
            # The store may have taken some of the steps. A retry then finds them lost, but this node holds their runs.
            if places.token not in link.worker.uncertain:
                link.worker.uncertain.append(places.token)
                link.wake_worker()
            if len(firings) == 1:
                return [error]
        half = len(firings) // 2
        return [*self._take(firings[:half], places), *self._take(firings[half:], places)]

    def _tell(self, step: Firing, inserted: tuple[str, ...]) -> None:
        node, alias = self.link.node, self.link.alias
        node.events.fired([run for run in step.runs if run.id in inserted], alias)
        for run in step.missed:
            node.events.ended(run, alias)
        if step.next_at is None:
            log.info("removed job %s: it has no run time left", step.job_id)
            node.publish(JobEvent(EVENT_JOB_REMOVED, step.job_id, alias))

    def _report_homeless(self, job: Job) -> None:
        if self._homeless.begin(job.executor):
            of_app = self.link.node.queues is not None
            log.warning(
                "job %r wants the executor %r, which this node lacks; its runs wait for a node that has it%s",
                job.id,
                job.executor,
                f'; to have workers run it: app.modify_job({job.id!r}, executor="queue")' if of_app else "",
            )

    def _report_stuck(self, what: str, job_id: str, error: BaseException) -> None:
        if self._stuck.begin(job_id, f"{type(error).__name__}: {error}"):
            log.error("%s job %r failed; the job stays due and is tried again", what, job_id, exc_info=error)


class _Places:
    """The places for the runs of one page: free slots of this node while there are any, then the runs' queues."""

    def __init__(self, link: StoreLink, now: int) -> None:
        self.link = link
        self.token = link.node.new_token()
        self.lanes: list[str] = []
        """The lanes whose runs this node starts itself while it has free slots."""
        self.waiting: set[str] = set()
        """The runs that the store lets wait although the step had claimed them."""
        self._until = now + int(link.node.lease * SECOND)
        self._left = link.node.runs_left()
        self._free: dict[str, int] = {}
        self._places: dict[tuple[str, str | None], tuple[Place, Place | None, str]] = {}

    def of(self, job: Job, runs: bool) -> Place | None:
        """Return the place for the job's run; None if this node lacks its executor."""
        node, alias = self.link.node, job.executor
        if alias == "queue":
            where = job.queue, node.executor_for(job.call, job.policy)
        elif alias in node.executors:
            where = f".{alias}", None
        else:
            return None
        waiting, started, alias = self._places.get(where) or self._add(*where)
        if not runs or started is None or min(self._left, self._free[alias]) <= 0:
            return waiting
        self._left -= 1
        self._free[alias] -= 1
        return started

    def _add(self, queue: str, executor: str | None) -> tuple[Place, Place | None, str]:
        """Make the places in a queue and, if this node would claim its runs at once, in a slot of the executor."""
        node, lane = self.link.node, lane_of(queue, executor)
        alias, started = queue[1:] if is_local(queue) else executor or THREADS_EXECUTOR, None
        # Runs that already wait for a slot of the executor go first: a claim chooses among them and this one.
        rivals = (lane,) if is_local(queue) else node.lanes.get(alias, ())
        if (is_local(queue) or node.claims_freely(queue)) and not self.link.worker.waits(rivals):
            self.lanes.append(lane)
            self._free.setdefault(alias, node.room_of(alias))
            started = Place(queue, node.id, self.token, self._until, executor)
        places = self._places[queue, executor] = Place(queue, executor=executor), started, alias
        return places
