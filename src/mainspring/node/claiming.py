"""The worker tick: settle ended runs, claim waiting ones, and hand them to the executors."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want, lane_of, queue_of
from mainspring.core.run import Condition, Outcome, Report, Result, Status
from mainspring.core.transitions import conclude, drop
from mainspring.errors import is_own
from mainspring.events import EVENT_RUN_LOST
from mainspring.jobstores.base import ClaimedRuns
from mainspring.node.loop import LONGEST_SLEEP_SECONDS
from mainspring.node.settling import Settler

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["WorkerTick"]

CLAIM_BATCH_RUNS: Final = 1000
"""Claim at most this many runs for one executor, and conclude at most this many reports, in one call of the store."""
STALE_SECONDS: Final = 1.0
"""Give back a claimed run that has not started after this many seconds."""

LOOK_AGAIN_SECONDS: Final = 0.05
"""Look again this soon into lanes that a claim has emptied while other lanes of the same claim hold more runs."""

LONGEST_CLAIM_PAUSE_SECONDS: Final = 0.05
"""Ignore hints for at most this long after claims that found nothing."""

_PLACE: Final = attrgetter("queue", "executor")
_PENDING: Final = Status.PENDING
_REFUSED: Final = Condition.REFUSED
"""The condition of an outcome without an executor's report: the settler cancelled a run that can no longer run."""
_RAISED, _DROPPED = Result.RAISED, Result.REFUSED
_REMARKABLE: Final = (Result.RAISED, Result.LATE, Result.INTERRUPTED)
"""The results that are always passed to `RunEvents`, which logs them even without a listener."""

log = logging.getLogger("mainspring.worker")


class WorkerTick:
    """Claims and settles the runs that this node executes for one store.

    `claims` asks the store only about lanes that somebody has noted, and only from the instant that was noted: `look`
    notes one lane, `look_everywhere` and `look_now` note all lanes of this node. A claim takes the notes of its lanes.
    """

    def __init__(self, link: StoreLink) -> None:
        self.link = link
        self.outbox: deque[Report] = deque()
        self.uncertain: list[str] = []
        """The tokens of claims and fires whose reply was lost: the store may hold runs under them for this node."""
        self._settler = Settler(link.store)
        self._look_at: dict[str, int] = {}
        """The lanes that may hold runs, each with the time from which to look into it."""
        self._looking = threading.Lock()
        self._turn = 0
        """The number of claims so far, by which the executors take turns to come first."""
        self._pause = 0.0
        self._not_before = 0
        """Ignore hints before this instant, because the last claims found nothing."""
        self._seen: int | None = None
        """The store's cursor when all lanes were noted last; no change up to there needs another note."""
        self._look_again_at = link.node.elapsed() + int(LONGEST_SLEEP_SECONDS * SECOND)
        """When to look into all lanes even if nobody has reported a change, by the node's monotonic clock."""
        self._stale_at = 0
        """The earliest time at which a claimed run may be stale, by the node's monotonic clock."""
        self.woken = False
        """Whether a report has woken this tick since it last began."""

    @property
    def unsettled(self) -> int:
        """The number of runs that have ended here and are not settled yet."""
        return len(self.outbox) + len(self._settler.unsettled)

    def look(self, lane: str, at: int = 0) -> None:
        """Note that the lane has a run to claim from the instant `at` on, and wake `claims`, if this node serves it."""
        if queue_of(lane) not in self.link.node.served_queues:
            return
        self._note([(lane,)], at)
        self.link.wake_worker()

    def _note(self, lanes: Iterable[Sequence[str]], at: int) -> None:
        # Several threads note lanes: keep the earliest instant of each.
        with self._looking:
            for some in lanes:
                for lane in some:
                    self._look_at[lane] = min(at, self._look_at.get(lane, at))

    def look_everywhere(self) -> None:
        """Note all lanes, from a moment later on if the last claims found nothing; the caller has `claims` called."""
        cursor = self.link.store.cursor()  # read it first: a claim after the note then sees all changes up to here
        self._note(self.link.node.lanes.values(), self._not_before)
        self._seen = cursor

    def is_up_to_date(self) -> bool:
        """Return True if the store has not changed since all lanes were noted last."""
        cursor = self.link.store.cursor()
        return cursor is not None and cursor == self._seen

    def look_now(self, queues: Iterable[str]) -> None:
        """Note all lanes, and wake `claims`, because this process has added runs to these queues.

        Do nothing if this node serves none of them, or if the listener has followed the same change already.
        """
        link = self.link
        if set(link.node.served_queues).isdisjoint(queues):
            return
        cursor = link.store.cursor()
        if cursor is not None and cursor == self._seen and self._not_before <= link.now():
            return  # the listener was first
        self._note(link.node.lanes.values(), 0)
        link.wake_worker()
        # Set this last: if the caller's thread is interrupted before, the listener still follows the change.
        self._seen = cursor

    def waits(self, lanes: Container[str] | None = None) -> bool:
        """Return True if one of these lanes, or any lane, is noted for now: its runs wait for a slot."""
        if not self._look_at:
            return False
        now = self.link.now()
        return any(at <= now for lane, at in list(self._look_at.items()) if lanes is None or lane in lanes)

    def __call__(self) -> float:
        """Settle ended runs, then claim waiting ones. Loops call the two parts; callers without loops call this."""
        self.settles()
        return self.claims()

    def settles(self) -> float:
        """Settle all ended runs."""
        self.woken = False
        while self.outbox or self._settler.unsettled:
            self._settle()
        return LONGEST_SLEEP_SECONDS

    def claims(self) -> float:
        """Claim for every executor with free slots; give back claimed runs that wait too long for a slot."""
        node, link = self.link.node, self.link
        if self.uncertain:
            self._reclaim()
        if not link.claiming:
            if node.draining and not node.finishing:
                node.withdraw()  # runs of a claim that was under way when the drain began
            return LONGEST_SLEEP_SECONDS
        elapsed = node.elapsed()
        if not link.claims:
            self._stale_at = elapsed + int(STALE_SECONDS * SECOND)
        if elapsed >= self._look_again_at:
            self._look_again_at = elapsed + int(LONGEST_SLEEP_SECONDS * SECOND)
            self.look_everywhere()
        delay = min(self._claim(), (self._look_again_at - elapsed) / SECOND)
        if link.claims:
            if elapsed >= self._stale_at:
                node.withdraw(older_than=elapsed - int(STALE_SECONDS * SECOND))
            delay = min(delay, STALE_SECONDS)
        return delay

    # -- settle ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        link, now = self.link, self.link.now()
        outbox, settler = self.outbox, self._settler
        # Conclude each report only once: a settle repeated after an outage then writes the same outcomes.
        while outbox and len(settler.unsettled) < CLAIM_BATCH_RUNS:
            report = outbox.popleft()
            settler.add(report, self._conclude(report, now), now)
        batch = settler.write(now)
        link.answered()
        link.sums.settled(batch, now)
        link.end([each.report for each in batch if each.outcome.condition is not _REFUSED])
        if self._look_at and self.waits():  # runs that waited for a slot may have one now
            link.wake_worker()
        # Ask once per batch: without listeners and log lines, a run that ends well costs nothing more.
        telling = link.node.events.listeners.mask or link.node.events.log.wanted
        for report, outcome, accepted in batch:
            if not accepted:
                if outcome.condition is not _REFUSED:
                    self._tell_lost(report)
                continue
            run = outcome.run
            if run.status is _PENDING:
                self.look(run.lane, run.run_at)
            elif run.followed:  # the runs after it may be pending now
                self.look_everywhere()
                link.wake_worker()
            for follower in outcome.then:
                self.look(follower.lane, follower.run_at)
            if telling or report.result in _REMARKABLE:
                link.node.events.settled(outcome, link.alias, report)

    def _conclude(self, report: Report, now: int) -> Outcome:
        link = self.link
        link.date(report)
        if link.notes:
            notes = link.notes.pop(report.run.id, None)
            if notes is not None and notes.run.token == report.run.token:
                report.run = notes.final(report.run)
        if report.run.call.unfilled is not None:  # keep the placeholders: it may be executed again
            report.run = replace(report.run, call=report.run.call.unfilled)
        try:
            if report.result is _DROPPED:
                return drop(report.run, self._settler.reason_for(report.run), now)
            # Only a retry needs a random number, for its back-off.
            return conclude(report, now, link.node.clock.random() if report.result is _RAISED else 0.0)
        except BaseException as error:  # the user's back-off function raised, or a follow-up cannot be made
            if not is_own(error):
                raise
            log.error("run %r cannot be retried or followed up", report.run.id, exc_info=error)
            plain = replace(report.run.policy, backoff=())
            report.run, report.exception = replace(report.run, policy=plain), None
            return conclude(report, now, 0.0, retry=False)

    def _tell_lost(self, report: Report) -> None:
        log.warning("run %r was lost to another node before it ended here; its outcome is dropped", report.run.id)
        reason = "another node took it before it ended here"
        self.link.node.events.tell(EVENT_RUN_LOST, report.run, self.link.alias, reason)

    # -- claim -------------------------------------------------------------------------------------------------

    def _claim(self) -> float:
        """Claim for all executors at once, each for its own free slots; return the seconds until the next claim."""
        wants, delay = self._wants()
        if not wants:
            return delay  # if runs wait for a slot, `settles` wakes this tick as soon as a run has ended
        link, node = self.link, self.link.node
        self._turn += 1
        lanes = [lane for some, _ in wants for lane in some]
        token = node.new_token()
        if node.watcher is not None:
            node.watcher.claiming(node.id, token, lanes)
        for lane in lanes:  # before the store looks, so that hints that arrive meanwhile are not lost
            self._look_at.pop(lane, None)
        asked = node.clock.monotonic()
        try:
            claimed = link.store.claim(wants, node=node.id, token=token, lease=node.lease)
        except Exception:
            self.uncertain.append(token)
            self._note([lanes], 0)
            raise
        link.observe(claimed.now, asked)
        self._note_next(wants, claimed)
        self._pace_hints(claimed)
        if claimed.runs:
            node.note_sizes(claimed.runs)
            link.begin(claimed.runs)
        wants, delay = self._wants()
        return 0.0 if wants else delay

    def _wants(self) -> tuple[list[Want], float]:
        """Return the wants for lanes that may hold due runs, and the seconds until other lanes may hold some.

        The executors take turns to come first, because they share the limit of runs that this process may execute. A
        queue that this node limits gets a separate want. The wants of one executor may together ask for more runs than
        it has free slots, but none asks for more than its queue's limit.
        """
        wants: list[Want] = []
        if not self._look_at:
            return wants, LONGEST_SLEEP_SECONDS
        node, now, delay = self.link.node, self.link.now(), LONGEST_SLEEP_SECONDS
        left, room = node.runs_left(), self._room_in_queues()
        served = list(node.lanes.items())
        first = self._turn % (len(served) or 1)
        for alias, lanes in served[first:] + served[:first]:
            due: list[str] = []
            for lane in lanes:
                at = self._look_at.get(lane)
                if at is None:
                    continue
                if at <= now:
                    due.append(lane)
                else:
                    delay = min(delay, (at - now) / SECOND)
            if not due:
                continue
            free = min(node.room_of(alias), CLAIM_BATCH_RUNS)
            for queue, part in _by_limit(due, room) if room else ((None, due),):
                number = min(free, left, room[queue] if queue is not None else free)
                if number > 0:
                    wants.append((part, number))
                    left -= number
                    if queue is not None:
                        room[queue] -= number
        return wants, delay

    def _room_in_queues(self) -> dict[str, int]:
        """Return, for each queue that this node limits, how many more of its runs the node may hold."""
        room: dict[str, int] = {}
        for queue, limit in (self.link.node.queues or {}).items():
            if limit is not None:
                room[queue] = limit - self.link.in_queue.get(queue, 0)
        return room

    def _note_next(self, wants: list[Want], claimed: ClaimedRuns) -> None:
        """Note the lanes again for the time at which the next run can be claimed.

        The store names one time for all lanes. If some wants were filled, that time is probably theirs: note the other
        lanes for a moment later.
        """
        next_at = claimed.next_at
        if next_at is None:
            return
        taken = Counter[str]()
        for (queue, executor), number in Counter(map(_PLACE, claimed.runs)).items():
            taken[lane_of(queue, executor)] += number
        full = [sum(map(taken.__getitem__, lanes)) >= limit for lanes, limit in wants]
        later = max(next_at, claimed.now + int(LOOK_AGAIN_SECONDS * SECOND)) if any(full) else next_at
        for (lanes, _), is_full in zip(wants, full, strict=True):
            self._note([lanes], next_at if is_full else later)

    def _pace_hints(self, claimed: ClaimedRuns) -> None:
        """Delay the next claim of a node that found nothing: a hint about one run may wake a whole fleet."""
        if claimed.runs:
            self._pause, self._not_before = 0.0, 0
            return
        if claimed.now - self._not_before > SECOND:
            self._pause = 0.0
        self._pause = min(LONGEST_CLAIM_PAUSE_SECONDS, max(0.005, self._pause * 2))
        self._not_before = claimed.now + int(self._pause * SECOND)

    def _reclaim(self) -> None:
        """Ask for the runs of a claim or fire whose reply was lost."""
        link, node = self.link, self.link.node
        lanes = [lane for some in node.lanes.values() for lane in some]
        while self.uncertain:
            # Note the known runs before the store looks: one that ends meanwhile must not begin again.
            known = set(link.claims)
            # A limit of 0: this node may be paused or full by now, so claim nothing more.
            held = link.store.claim([(lanes, 0)], node=node.id, token=self.uncertain[0], lease=node.lease)
            link.begin([run for run in held.runs if run.id not in known])
            del self.uncertain[0]


def _by_limit(lanes: list[str], room: dict[str, int]) -> list[tuple[str | None, list[str]]]:
    """Group the lanes of queues without a limit together; list every other lane by itself, with its queue."""
    some = [lane for lane in lanes if queue_of(lane) not in room]
    apart: list[tuple[str | None, list[str]]] = [(queue, [lane]) for lane in lanes if (queue := queue_of(lane)) in room]
    return [(None, some), *apart] if some else apart
