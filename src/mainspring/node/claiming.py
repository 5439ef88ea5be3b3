"""The worker tick: settle what has ended, claim what waits, hand it to the executors."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.codec import EncodeError
from mainspring.core.followups import told_less
from mainspring.core.instants import SECOND
from mainspring.core.run import FINAL, UNFINISHED, Condition, Outcome, Report, Result, Run, Status, describe
from mainspring.core.transitions import conclude, stop
from mainspring.errors import Retry, is_own
from mainspring.events import EVENT_RUN_LOST
from mainspring.jobstores.base import Claimed, RunQuery
from mainspring.node.loop import IDLE

if TYPE_CHECKING:
    from mainspring.node.store_link import Link

__all__ = ["WorkerTick"]

BATCH: Final = 1000
STALE: Final = 1.0
"""Seconds after which a claimed run that has not started is given back."""

LONGEST_PAUSE: Final = 0.05
"""Seconds between two claims that find nothing, however many hints come."""

_EXECUTED: Final = (Result.RETURNED, Result.RAISED, Result.CANCELLED)

log = logging.getLogger("mainspring.worker")


class WorkerTick:
    """Claims and settles the runs that this node executes for one store."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.outbox: deque[Report] = deque()
        self.uncertain: list[str] = []
        self._unsettled: list[tuple[Report, Outcome]] = []
        self._look_at: dict[str, int] = {}
        self._looking = threading.Lock()
        self._pause = 0.0
        self._not_before = 0
        """The instant before which a hint alone is no reason to claim: the last claims found nothing."""
        self.told = False
        """Whether a report has woken this tick since it last began."""

    @property
    def unsettled(self) -> int:
        """How many runs have ended here without the store knowing."""
        return len(self.outbox) + len(self._unsettled)

    def look(self, lane: str, at: int = 0) -> None:
        """Remember that a run of the lane becomes claimable at the instant `at`, if this node serves it."""
        if lane not in self.link.node.lanes:
            return
        self._note((lane,), at)
        self.link.wake_worker()

    def _note(self, lanes: Iterable[str], at: int) -> None:
        # Several threads note; what one of them has noted must not be overwritten by something later.
        with self._looking:
            for lane in lanes:
                self._look_at[lane] = min(at, self._look_at.get(lane, at))

    def look_everywhere(self) -> None:
        """Look into all lanes at the next tick, or a moment later if others have been quicker again and again."""
        self._note(self.link.node.lanes, self._not_before)

    def waits(self, lane: str | None = None) -> bool:
        """Tell whether a run is known to wait in the lane (or any) for a slot."""
        now = self.link.now()
        return any(at <= now for known, at in list(self._look_at.items()) if lane is None or known == lane)

    def __call__(self) -> float:
        """Settle what has ended, then claim what waits; a link with a server does the two on two threads."""
        self.settles()
        return self.claims()

    def settles(self) -> float:
        """Settle all that has ended."""
        self.told = False
        while self.outbox or self._unsettled:
            self._settle()
        return IDLE

    def claims(self) -> float:
        """Claim for every executor with room; give back what waits behind longer runs."""
        node, link = self.link.node, self.link
        if self.uncertain:
            self._reclaim()
        if not link.claiming:
            if node.draining and not node.finishing:
                node.withdraw()  # what a claim brought that was under way when the drain began
            return IDLE
        delay = IDLE
        if node.queues is None:
            for alias in list(node.executors):
                delay = min(delay, self._claim((f".{alias}",), link.free(alias)))
        else:
            delay = self._claim_queues(node.queues)
        if link.claims:
            node.withdraw(older_than=node.elapsed() - int(STALE * SECOND))
            delay = min(delay, STALE)
        return delay

    # -- settle ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        link, now = self.link, self.link.now()
        # Concluded once: a settle that has to be repeated after an outage repeats the same outcomes.
        while self.outbox and len(self._unsettled) < BATCH:
            report = self.outbox.popleft()
            self._unsettled.append((report, self._conclude(report, now)))
        batch, answers = self._write(now)
        link.answered()
        if not all(answers):
            batch, answers = self._set_apart_stopped(batch, answers, now)
        link.end(report for report, _ in batch)
        if self._look_at:  # there is room again for what waits
            link.wake_worker()
        listening, tracing = link.node.listening, log.isEnabledFor(logging.DEBUG)
        collectors: set[str] = set()
        for (report, outcome), accepted in zip(batch, answers, strict=True):
            if not accepted:
                self._tell_lost(report)
                continue
            if tracing and report.result in _EXECUTED:
                seconds = (report.finished_at - report.started_at) / SECOND
                log.debug('run %r of "%s" %s after %.3f s', report.run.id, report.run.name, report.result, seconds)
            if outcome.run.status is Status.PENDING:
                self.look(outcome.run.queue, outcome.run.run_at)
            for follower in outcome.then:
                self.look(follower.queue, follower.run_at)
            if outcome.run.policy.collect is not None and outcome.run.status in FINAL:
                collectors.add(outcome.run.policy.collect)
            if listening or report.result is Result.RAISED:
                self._tell(report, outcome)
        if collectors:
            self._wake_collectors(collectors)

    def _write(self, now: int) -> tuple[list[tuple[Report, Outcome]], list[bool]]:
        """Write what is unsettled; return what was written, and which of it was accepted."""
        batch = self._unsettled
        try:
            answers = self.link.store.settle([outcome for _, outcome in batch])
        except OSError:  # the store is away
            raise
        except EncodeError:
            self._unsettled = [(report, self._storable(report, outcome, now)) for report, outcome in batch]
            return self._write_in_parts(now)
        except Exception:
            return self._write_in_parts(now)
        self._unsettled = []
        return batch, answers

    def _write_in_parts(self, now: int) -> tuple[list[tuple[Report, Outcome]], list[bool]]:
        """Write what is unsettled in ever smaller parts: the others must not wait for one that cannot be written."""
        done: list[tuple[Report, Outcome]] = []
        answers: list[bool] = []
        parts = [self._unsettled]
        while parts:
            part = parts.pop()
            try:
                answers += self.link.store.settle([outcome for _, outcome in part])
                done += part
            except Exception as error:
                if len(part) > 1 and not isinstance(error, OSError):
                    half = len(part) // 2
                    parts += part[half:], part[:half]
                    continue
                try:
                    failed, answer = self._write_failure(part[0][0], error, now)
                except Exception:  # the store itself is ill; next time this one is the last
                    self._unsettled = [each for rest in reversed(parts) for each in rest] + part
                    if not done:
                        raise
                    return done, answers
                answers.append(answer)
                done.append(failed)
        self._unsettled = []
        return done, answers

    def _write_failure(self, report: Report, problem: Exception, now: int) -> tuple[tuple[Report, Outcome], bool]:
        """Have a run whose outcome the store cannot write ended as failed, for that reason."""
        if isinstance(problem, OSError):
            raise problem
        bare = replace(report.run, errors=(), progress=None, data=None, log=())
        error = describe(problem, now, bare.attempt)
        for changes in ({"retention": None}, {"retention": None, "hook": None}):
            run = replace(bare, policy=replace(bare.policy, **changes))
            failed = replace(report, run=run, result=Result.RAISED, value=None, exception=problem, error=error)
            try:
                outcome = conclude(failed, now, 0.0, retry=False)
                outcome = replace(outcome, then=tuple(map(told_less, outcome.then)))
                [answer] = self.link.store.settle([outcome])
            except OSError:
                raise
            except Exception:
                continue
            log.error("the outcome of run %r cannot be written, so the run has failed: %s", run.id, problem)
            return (failed, outcome), answer
        raise problem

    def _set_apart_stopped(
        self, batch: list[tuple[Report, Outcome]], answers: list[bool], now: int
    ) -> tuple[list[tuple[Report, Outcome]], list[bool]]:
        """Have what may not wait again, because it is lost or to be stopped, settled as cancelled; return the rest."""
        others: list[tuple[Report, Outcome]] = []
        theirs = []
        for (report, outcome), accepted in zip(batch, answers, strict=True):
            if accepted or outcome.run.status is not Status.PENDING:
                others.append((report, outcome))
                theirs.append(accepted)
            else:
                self._unsettled.append((report, stop(outcome, now)))
        return others, theirs

    def _wake_collectors(self, run_ids: Iterable[str]) -> None:
        """Have the runs that wait for a group look whether it is complete; should we die before, they look later."""
        store, now = self.link.store, self.link.now()
        waiting = [run for run in store.get_runs(list(run_ids)) if run is not None and run.status is Status.PENDING]
        done = [
            run
            for run in waiting
            if not store.count_runs(RunQuery(status=UNFINISHED, group=(run.data or {}).get("group")))
        ]
        store.settle([Outcome(replace(run, run_at=now), Condition.WAITING) for run in done])
        for run in done:
            self.look(run.queue, now)

    def _conclude(self, report: Report, now: int) -> Outcome:
        self.link.date(report)
        if self.link.lives:
            live = self.link.lives.pop(report.run.id, None)
            if live is not None and live.run.token == report.run.token:
                report.run = live.final(report.run)
        if report.result is Result.RETURNED and report.value is not None:
            problem = self._unstorable(report.value)
            if problem is not None:
                report.result, report.exception = Result.RAISED, problem
                report.error = describe(problem, report.finished_at, report.run.attempt)
                return conclude(report, now, 0.0, retry=False)
        try:
            return conclude(report, now, self.link.node.clock.random())
        except BaseException as error:  # a back-off function of the user's, or follow-ups that cannot be made
            if not is_own(error):
                raise
            log.error("run %r cannot be retried or followed up", report.run.id, exc_info=error)
            plain = replace(report.run.policy, backoff=(), hook=None, then=())
            report.run, report.exception = replace(report.run, policy=plain), None
            return conclude(report, now, 0.0, retry=False)

    def _unstorable(self, value: Any) -> Exception | None:
        try:
            return self.link.store.unstorable(value)
        except BaseException as error:  # a report must not be lost, whatever is wrong with its value
            if not is_own(error):
                raise
            return error if isinstance(error, Exception) else RuntimeError(repr(error))

    def _storable(self, report: Report, outcome: Outcome, now: int) -> Outcome:
        """Return an outcome, or what is left of it if it is too large; if even that is, the run failed for it."""
        store = self.link.store
        problem = store.unstorable_outcome(outcome)
        if problem is None:
            return outcome
        log.error("the outcome of run %r cannot be stored whole: %s", report.run.id, problem)
        hooks_told_less = replace(outcome, then=tuple(map(told_less, outcome.then)))
        brief = replace(outcome.run, errors=outcome.run.errors[-1:], log=())
        silent = replace(brief, progress=None, data=None)
        for less in (hooks_told_less, *(replace(hooks_told_less, run=run) for run in (brief, silent))):
            if store.unstorable_outcome(less) is None:
                return less
        report.run = replace(report.run, errors=(), progress=None, data=None, log=())
        report.result, report.value, report.exception = Result.RAISED, None, problem
        report.error = describe(problem, now, report.run.attempt)
        failed = conclude(report, now, 0.0, retry=False)
        return replace(failed, then=tuple(map(told_less, failed.then)))

    def _tell(self, report: Report, outcome: Outcome) -> None:
        run = outcome.run
        waits = isinstance(report.exception, Retry) and not report.exception.counted
        if report.result is Result.RAISED and not waits and run.status in (Status.FAILED, Status.PENDING):
            again = "" if run.status is Status.FAILED else f"; {_what_follows(report.run, run)}"
            trace = report.error.traceback if report.error else report.exception
            log.error('Job "%s" (%s) raised an exception%s\n%s', run.name, run.id, again, trace)
        self.link.node.events.settled(outcome, self.link.alias, report)

    def _tell_lost(self, report: Report) -> None:
        log.warning("run %r was lost to another node before it ended here; its outcome is dropped", report.run.id)
        reason = "another node took it before it ended here"
        self.link.node.events.tell(EVENT_RUN_LOST, report.run, self.link.alias, reason)

    # -- claim -------------------------------------------------------------------------------------------------

    def _claim_queues(self, queues: Mapping[str, int | None]) -> float:
        """Claim from all queues together, so that priority holds across them; from a limited one by itself."""
        unlimited = tuple(lane for lane, limit in queues.items() if limit is None)
        delay = self._claim(unlimited, self.link.node.room()[0]) if unlimited else IDLE
        for lane, limit in queues.items():
            if limit is not None:
                room = min(self.link.node.room()[0], limit - self.link.in_queue.get(lane, 0))
                delay = min(delay, self._claim((lane,), room))
        return delay

    def _claim(self, lanes: tuple[str, ...], free: int) -> float:
        link = self.link
        times = [at for at in map(self._look_at.get, lanes) if at is not None]
        if not times:
            return IDLE
        look_at, now = min(times), link.now()
        if look_at > now:
            return (look_at - now) / SECOND
        if free <= 0:
            return IDLE  # the next report wakes us
        node = link.node
        limit = min(free, BATCH)
        token = node.new_token()
        if node.watcher is not None:
            node.watcher.claiming(node.id, token, lanes)
        for lane in lanes:  # before the store looks, so that what others tell meanwhile is not forgotten
            self._look_at.pop(lane, None)
        asked = node.clock.monotonic()
        try:
            claimed = link.store.claim(lanes, node=node.id, token=token, limit=limit, lease=node.lease)
        except Exception:
            self.uncertain.append(token)
            self._note(lanes, 0)
            raise
        link.observe(claimed.now, asked)
        if claimed.next_at is not None:
            self._note(lanes, claimed.next_at)
        self._pace_hints(claimed)
        if claimed.runs:
            link.begin(claimed.runs)
        if len(claimed.runs) >= limit and (limit < free or (node.queues is not None and node.room()[1])):
            return 0.0
        if len(claimed.runs) >= free or claimed.next_at is None:
            return IDLE
        return max(0.0, (claimed.next_at - claimed.now) / SECOND)

    def _pace_hints(self, claimed: Claimed) -> None:
        """When a hint wakes a whole fleet for one run, have those who find nothing come a little later next time."""
        if claimed.runs:
            self._pause, self._not_before = 0.0, 0
            return
        if claimed.now - self._not_before > SECOND:
            self._pause = 0.0
        self._pause = min(LONGEST_PAUSE, max(0.005, self._pause * 2))
        self._not_before = claimed.now + int(self._pause * SECOND)

    def _reclaim(self) -> None:
        """Ask for what a claim or fire whose reply was lost had leased to us."""
        link, node = self.link, self.link.node
        lanes = node.lanes
        while self.uncertain:
            held = link.store.claim(lanes, node=node.id, token=self.uncertain[0], limit=1, lease=node.lease)
            link.begin([run for run in held.runs if run.id not in link.claims])
            del self.uncertain[0]


def _what_follows(before: Run, after: Run) -> str:
    """Say how a run that waits again goes on: a crash spends no retry."""
    if after.failures == before.failures:
        return "it is executed again, and no retry is spent"
    return f"retry {after.failures} of {after.policy.retries} follows"
