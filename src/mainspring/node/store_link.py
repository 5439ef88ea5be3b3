"""One store of a node: its loops, the claims that the node holds, the store's clock and its outages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.clock import StoreTime
from mainspring.core.instants import SECOND
from mainspring.core.lanes import THREADS_EXECUTOR
from mainspring.core.run import Report, Result, Run
from mainspring.errors import StoreUnavailable, is_own
from mainspring.events import EVENT_RUN_STARTED, EVENT_STORE_DOWN, EVENT_STORE_UP, SchedulerEvent
from mainspring.executors.current_run import RunNotes
from mainspring.jobstores.base import Generation, JobStore
from mainspring.jobstores.counting import hand_over
from mainspring.locks import free_in_children
from mainspring.node.claiming import WorkerTick
from mainspring.node.heartbeat import HeartbeatTick, describe
from mainspring.node.inputs import fill_inputs
from mainspring.node.janitor import JanitorTick
from mainspring.node.loop import Loop
from mainspring.node.report_box import ReportBox, SettlingReportBox
from mainspring.node.scheduler import SchedulerTick
from mainspring.node.watch.alerts import AlertSender
from mainspring.node.watch.changes import StoreListener
from mainspring.node.watch.orders import OrderWatch

if TYPE_CHECKING:
    from mainspring.node.node import Node

__all__ = ["StoreLink"]

_RETURNED, _RAISED = Result.RETURNED, Result.RAISED

log = logging.getLogger("mainspring.node")


class StoreLink:
    """One store as its node sees it: the ticks, the claims held, the offset of its clock."""

    def __init__(self, node: Node, alias: str, store: JobStore) -> None:
        self.node = node
        self.alias = alias
        self.store = store
        store.on_set_aside = partial(node.events.set_aside, alias)
        self.sums = node.events.sums(alias)
        """The counters of this node since the last heartbeat."""
        self.leaving = False
        self.claims: dict[str, Run] = {}
        self.reported: set[str] = set()
        """The ids of claimed runs whose outcome is on its way to the store; a heartbeat may find them ended there."""
        self.notes: dict[str, RunNotes] = {}
        """The notes of the runs that this node executes."""
        self.in_flight: dict[str, int] = {}
        """The number of runs in each executor."""
        self.in_queue: dict[str, int] = {}
        """The number of runs of each queue that this node holds."""
        self.scheduler = SchedulerTick(self)
        self.worker = WorkerTick(self)
        self.heartbeat = HeartbeatTick(self)
        self.janitor = JanitorTick(self)
        self.janitor.chores.append(OrderWatch(self))
        self._down = False
        self._failures = 0
        self._time = StoreTime(self._ask, node.clock)
        self.now = self._time.now
        """Return the store's time as this node estimates it."""
        self._counts_lock = free_in_children(threading.Lock())
        """Guards `in_flight` and `in_queue`: one thread counts claims, another settles."""
        clock, settles, claims = node.clock, self.worker.settles, self.worker.claims
        self._work_settles = store.volatile
        """Whether the work loop also settles; otherwise the monitor does, so that no claim waits for a settle."""
        # Fire before claiming, so that the claim takes at once the runs that a fire leaves in their queues.
        work = (settles, self.scheduler, claims) if self._work_settles else (self.scheduler, claims)
        thread = store.on_thread
        self.work = Loop(f"mainspring-work-{alias}", work, clock, self._failed, self._work_is_over, thread)
        self.monitor = (
            self.work
            if self._work_settles
            else Loop(f"mainspring-monitor-{alias}", (settles,), clock, self._failed, self._monitor_is_over, thread)
        )
        care = (self.heartbeat, self.janitor)
        self.care = Loop(f"mainspring-care-{alias}", care, clock, self._failed, self._care_is_over, thread)
        self._alerts: Loop | None = None
        self.report = ReportBox(self)
        self.report_here = SettlingReportBox(self) if self._work_settles else self.report
        """The report box for a run that is submitted alone to an executor whose threads may settle."""
        self._generations: tuple[Generation, ...] | None = None
        self._no_more_claims = self._no_more_outcomes = False
        self._listener: StoreListener | None = None

    def start(self) -> None:
        """Start the loops and the listener."""
        self.worker.look_everywhere()
        self.work.start()
        if not self._work_settles:
            self.monitor.start()
        self.care.start()
        self._listener = StoreListener(self)
        self._listener.start()
        self.wake_alerts()

    def close(self) -> None:
        """Wait until all started runs are settled, and leave the store."""
        if self._alerts is not None:
            self._alerts.wake()
            self._alerts.join()
        self.work.wake()
        self.work.join()
        self._no_more_claims = True
        if not self._work_settles:
            self.node.withdraw()  # runs of a claim that was under way when the drain began
            self.monitor.wake()
            self.monitor.join()
        self._no_more_outcomes = True
        self.care.wake()
        self.care.join()
        self.hand_over_sums()
        try:
            self.store.beat(describe(self), ttl=0)
        except Exception as error:
            log.warning("could not sign off from the store %r: %s", self.alias, error)

    def hand_over_sums(self) -> None:
        """Add the counters of this node to those of the store."""
        hand_over(self.sums, self.store)

    def join_listener(self) -> None:
        """Wait for the listener; call this after the store has released it."""
        if self._listener is not None:
            self._listener.join()

    @property
    def firing(self) -> bool:
        """Whether this node fires due jobs of the store now."""
        return self.node.firing and not self.leaving

    @property
    def claiming(self) -> bool:
        """Whether this node claims waiting runs of the store now."""
        if self.node.draining or self.leaving:
            return self._finishing
        return not (self.node.paused or self.node.quiet)

    @property
    def _finishing(self) -> bool:
        return self.node.finishing and self.store.volatile and not self.leaving

    def _work_is_over(self) -> bool:
        """Return True if there is nothing left to claim, and nothing left to settle if the work loop also settles."""
        if not (self.node.draining or self.leaving):
            return False
        return not self._work_settles or (self._all_is_settled() and not (self._finishing and self.worker.waits()))

    def _monitor_is_over(self) -> bool:
        return self._no_more_claims and self._all_is_settled()

    def _all_is_settled(self) -> bool:
        if self.claims or self.worker.outbox:
            # A store that is down cannot take outcomes. Other nodes recover these runs when the leases are over.
            return self._down and self.worker.unsettled >= len(self.claims)  # a BUSY run is reported twice
        return True

    def _care_is_over(self) -> bool:
        return self._no_more_outcomes

    # -- time --------------------------------------------------------------------------------------------------

    def observe(self, now: int, asked: float) -> None:
        """Note the store's time; `asked` is the monotonic time at which this node asked for it."""
        if self._down:
            self.answered()
        self._time.observe(now, asked)

    def date(self, report: Report) -> None:
        """Convert the instants in a report from the node's monotonic clock to the store's time."""
        offset = self._time.offset
        if report.started_at:
            report.started_at += offset
        if report.finished_at:
            report.finished_at += offset
        if report.error is not None:
            report.error = replace(report.error, at=report.error.at + offset)

    @property
    def slack(self) -> int:
        """How many microseconds the store's time may be ahead of `now`."""
        return self._time.slack

    def _ask(self) -> int:
        now = self.store.beat()
        self.answered()
        return now

    # -- runs --------------------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[Run]) -> None:
        """Hand claimed runs to their executors."""
        if not runs:
            return
        ready: list[Run] = []
        unfilled: list[Run] = []
        room: dict[str, int] = {}
        claims, queues = self.claims, self.node.queues
        busy: Container[str] = claims
        # Announce after computing `busy`: `end()` announces before it drops a claim, so the watcher always sees a claim
        # end before the next begins.
        if self.node.watcher is not None:
            busy = {run.id for run in runs if run.id in claims}
            self.node.watcher.claimed(runs)
        for run in runs:
            if run.id in busy:
                # This node lost the run or gave it back, and has claimed it again before that execution or that
                # return was over.
                self._decline(run, Result.BUSY)
                continue
            if run.refused is not None:
                claims[run.id] = run
                self._decline(run, Result.REFUSED)
                continue
            if queues is not None or isinstance(run.call.func, str):
                found = self._prepared(run)
                if found is None:
                    claims[run.id] = run
                    self._decline(run, Result.ABSENT)
                    continue
                moves = queues is not None and found.executor != (run.executor or THREADS_EXECUTOR)
                run = found
                if moves and not self._has_room(room, str(run.executor)):
                    claims[run.id] = run
                    self._decline(run, Result.UNSTARTED)  # it goes back to the lane where it belongs
                    continue
            claims[run.id] = run
            (unfilled if run.call.inputs else ready).append(run)
        self._submit(ready)
        if unfilled:
            self._submit(self._filled(unfilled))

    def _has_room(self, room: dict[str, int], alias: str) -> bool:
        """Return True if an executor has room for a run that was claimed for another executor."""
        room[alias] = room.get(alias, self.node.free(alias)) - 1
        return room[alias] >= 0

    def _filled(self, runs: list[Run]) -> list[Run]:
        """Return runs with results in place of placeholders; if the store does not answer, give the runs back."""
        try:
            filled = fill_inputs(self.store, runs)
        except OSError:
            for run in runs:
                self._decline(run, Result.UNSTARTED)
            return []
        self.claims.update((run.id, run) for run in filled)
        return filled

    def _submit(self, runs: list[Run]) -> None:
        """Hand prepared runs to their executors."""
        queues = self.node.queues
        batches: dict[str, list[Run]] = {}
        for run in runs:
            alias = run.executor or run.queue[1:]
            batch = batches.get(alias)
            if batch is None:
                batch = batches[alias] = []
            batch.append(run)
        with self._counts_lock:
            for alias, batch in batches.items():
                self.in_flight[alias] = self.in_flight.get(alias, 0) + len(batch)
                if queues is not None:
                    for run in batch:
                        self.in_queue[run.queue] = self.in_queue.get(run.queue, 0) + 1
        for alias, batch in batches.items():
            executor = self.node.executors[alias]
            # The loop settles runs together that were submitted together.
            report = self.report_here if len(batch) == 1 and executor.threads_may_settle else self.report
            executor.submit(batch, report, self.may_start)

    def may_start(self, run: Run) -> Result | None:
        """Return the reason why a claimed run must not start any more; None if it may start now.

        A run that waits for a slot is given back within a second. So a lease that is over means that this process stood
        still and did not renew it.
        """
        now = self.now()
        if run.start_by is not None and now > run.start_by:
            return Result.LATE
        if run.lease_until is not None and now > run.lease_until:
            return Result.UNSTARTED
        if self.node.events.listeners.mask & EVENT_RUN_STARTED:
            self.node.events.tell(EVENT_RUN_STARTED, run, self.alias)
        return None

    def _decline(self, run: Run, result: Result) -> None:
        """Report a claimed run that goes to no executor; it counts as in flight until it is settled."""
        alias = run.executor or run.queue[1:]
        with self._counts_lock:
            self.in_flight[alias] = self.in_flight.get(alias, 0) + 1
            if self.node.queues is not None:
                self.in_queue[run.queue] = self.in_queue.get(run.queue, 0) + 1
        self.report(Report(run, result))

    def _prepared(self, run: Run) -> Run | None:
        """Return a run with its function; if this node lacks the function, log that once and return None."""
        reference = run.call.func if isinstance(run.call.func, str) else str(run.call.func)
        try:
            prepared = self.node.prepare(run)
        except BaseException as error:  # an import executes the user's module, which may even raise SystemExit
            if not is_own(error):
                raise
            if self.node.missing.begin(reference):
                log.error(
                    "this node cannot call %r and leaves its runs to nodes that can: %s",
                    reference,
                    error if isinstance(error, Exception) else repr(error),
                )
            return None
        if self.node.missing.open:
            self.node.missing.end(reference)
        return prepared

    def end(self, reports: Sequence[Report]) -> None:
        """Drop settled claims, and measure how long their runs took."""
        took: dict[str, list[int]] = {}
        node, claims, reported, in_flight = self.node, self.claims, self.reported, self.in_flight
        queues = node.queues
        if node.watcher is not None:
            node.watcher.ended([report.run.id for report in reports])
        with self._counts_lock:
            for report in reports:
                run, result = report.run, report.result
                run_id, alias = run.id, run.executor or run.queue[1:]
                held = claims.get(run_id)
                if held is None:
                    reported.discard(run_id)
                elif held.token == run.token:
                    del claims[run_id]
                    reported.discard(run_id)
                    if self.notes:
                        self.notes.pop(run_id, None)
                in_flight[alias] -= 1
                if queues is not None:
                    self.in_queue[run.queue] -= 1
                if result is _RETURNED or result is _RAISED:
                    times = took.get(alias)
                    if times is None:
                        times = took[alias] = []
                    times.append(report.finished_at - report.started_at)
        for alias, times in took.items():
            seconds = sum(times) / len(times) / SECOND
            pace = node.pace.get(alias, seconds)
            node.pace[alias] = pace + (seconds - pace) * min(1.0, 0.1 * len(times))
            node.note_ended(alias, len(times))
        self.scheduler.waiting.note_ended(reports)

    def stop_run(self, run: Run) -> None:
        """Stop a run that this node should no longer execute, if its executor can."""
        executor = self.node.executors.get(run.executor or run.queue[1:])
        if executor is not None:
            executor.cancel(run.id)

    # -- waking and failing --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the work loop fire and claim now."""
        self.worker.look_everywhere()
        self.work.wake()

    def announce(self) -> None:
        """Tell the store about this node now, not only with the next heartbeat."""
        self.store.beat(describe(self), ttl=2 * self.node.lease)

    def wake_worker(self) -> None:
        """Have `claims` called soon, for the lanes that are noted."""
        self.work.wake(self.worker.claims)

    def wake_alerts(self) -> None:
        """Send alerts now, on a separate thread, since a target may be slow to answer."""
        if self._listener is None or not self.node.alerts or self.is_leaving():
            return
        if self._alerts is None:
            name = f"mainspring-alerts-{self.alias}"
            self._alerts = Loop(name, (AlertSender(self),), self.node.clock, self._failed, self.is_leaving)
            self._alerts.start()
        self._alerts.wake()

    def is_leaving(self) -> bool:
        """Return True if the node drains or leaves this store: it claims only the runs that a stop has to finish."""
        return self.node.draining or self.leaving

    def look_for_losses(self) -> None:
        """Check whether the store has lost data; if so, add the declared schedules again."""
        before, found = self._generations, self.store.generations()
        if before is not None and not all(new.follows(old) for old, new in zip(before, found, strict=True)):
            log.error("job store %r has lost data: it was emptied, or an older state of it was restored", self.alias)
            # Another part of the store may have lost its data just after it answered: read all generations again before
            # adding jobs.
            found = self.store.generations()
            if self.node.schedules and self.node.declare is not None:
                self.node.declare()
            self.wake()
        self._generations = found  # set this last, so that the next look repeats steps that failed above

    def _failed(self, error: BaseException) -> float:
        if not self._down:
            self._down = True
            # Log an outage as one line; log any other error with its traceback.
            outage = isinstance(error, StoreUnavailable)
            text = "job store %r failed; trying again until it answers: %s"
            log.error(text, self.alias, error, exc_info=None if outage else error)
            self.node.publish(SchedulerEvent(EVENT_STORE_DOWN, self.alias))
        self._failures += 1
        # Retry soon at first, then less and less often, and spread the nodes over time.
        delay = min(self.node.retry_interval, 0.5 * 2.0 ** min(self._failures, 16))
        return delay * (0.75 + 0.5 * self.node.clock.random())

    def answered(self) -> None:
        """End the outage, if there was one: the store has answered."""
        if self._down:
            self._down, self._failures = False, 0
            log.warning("job store %r answers again", self.alias)
            self.node.publish(SchedulerEvent(EVENT_STORE_UP, self.alias))
            # Also wake the heartbeat: until it succeeds, leases end, and no janitor recovers the runs of dead nodes.
            for loop in (self.work, self.monitor, self.care):
                loop.wake()
