"""The lookouts of the janitor: queues that nobody serves, and jobs whose health changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mainspring.core.insight.health import RUNS_LOOKED_AT, JobState, health_of
from mainspring.core.insight.wording import duration, several
from mainspring.core.instants import SECOND
from mainspring.core.run import HELD_PREFIX, is_local
from mainspring.events import EVENT_JOB_HEALTH, JobHealthEvent
from mainspring.node.events.complaints import Complaints
from mainspring.node.watch.alerts import AlertWatch

if TYPE_CHECKING:
    from mainspring.jobstores.base import NodeInfo
    from mainspring.node.store_link import StoreLink

__all__ = ["JobHealthWatch", "UnservedQueues"]

FIRST_LOOK_SECONDS: Final = 10.0
"""Look for unserved queues for the first time after this many seconds."""
LOOK_SECONDS: Final = 30.0
"""Look for unserved queues this often."""
GRACE_SECONDS: Final = 10.0
"""Warn only after a run has waited unserved for this long: its workers may just be restarting."""

log = logging.getLogger("mainspring.janitor")


class UnservedQueues:
    """Warns of queues that nobody serves. Only the first of all living nodes looks, so the fleet warns once."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._looks_at = link.node.clock.monotonic() + FIRST_LOOK_SECONDS
        self._known = Complaints()

    def look_if_due(self) -> None:
        """Look at all queues if the last look is long enough ago."""
        clock = self._link.node.clock
        if clock.monotonic() >= self._looks_at:
            self._looks_at = clock.monotonic() + LOOK_SECONDS * (0.75 + 0.5 * clock.random())
            self.look()

    def look(self) -> None:
        """Warn of each queue that has waiting runs and that no living node serves."""
        link, now = self._link, self._link.now()
        # A node without a heartbeat for some seconds may only stand still; after a whole lease it counts as dead.
        heard_since = now - int(link.node.lease * SECOND)
        living = [node for node in link.store.nodes() if node.state != "draining" and node.beat_at >= heard_since]
        if any(node.id < link.node.id for node in living):
            return
        served = {queue for node in living for queue in node.queues} | set(link.node.served_queues)
        queues = [queue for queue in link.store.stats().queues if not queue.name.startswith(HELD_PREFIX)]
        waiting = {queue.name: queue for queue in queues if queue.waiting and not queue.paused}
        for name in [name for name in self._known.first(len(self._known)) if name in served or name not in waiting]:
            self._known.end(name)
            log.info("%s is served, or empty, again", _shown(name))
        for name, queue in waiting.items():
            age = 0 if queue.oldest_at is None else now - queue.oldest_at
            if name not in served and age >= GRACE_SECONDS * SECOND and self._known.begin(name):
                runs = f"{several(queue.waiting, 'run')} waiting, the oldest for {duration(age)}"
                log.warning("%s has %s, and no living node serves it; %s", _shown(name), runs, _advice(name, living))


HEALTH_SECONDS: Final = 60.0
"""Look at the health of jobs this often."""
MOST_JUDGED: Final = 500
"""Judge at most this many jobs in one look; the next look goes on after them."""


class JobHealthWatch:
    """Announces changes of the health of jobs: to listeners in this process as `EVENT_JOB_HEALTH`, to people as alerts.

    Without such a listener or a target of alerts, it reads nothing.
    """

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._looks_at = link.node.clock.monotonic()
        self._known: dict[str, JobState] = {}
        self._alerts = AlertWatch(link)
        self._last = ""
        """The id of the job that was judged last."""

    def look_if_due(self) -> None:
        """Judge a page of jobs if it is time and there is a listener or a target of alerts."""
        link, clock = self._link, self._link.node.clock
        wanted = link.node.alerts or link.node.events.listeners.mask & EVENT_JOB_HEALTH
        if wanted and clock.monotonic() >= self._looks_at:
            self._looks_at = clock.monotonic() + HEALTH_SECONDS * (0.75 + 0.5 * clock.random())
            self.look()

    def look(self) -> None:
        """Judge a page of jobs, and announce those whose health has changed."""
        link, now = self._link, self._link.now()
        jobs = sorted(link.store.examine_jobs()[0], key=lambda job: job.id)
        self._known = {job.id: self._known[job.id] for job in jobs if job.id in self._known}
        page = [job for job in jobs if job.id > self._last][:MOST_JUDGED]
        self._last = page[-1].id if len(page) == MOST_JUDGED else ""
        found = link.store.recent_runs([job.id for job in page], RUNS_LOOKED_AT) if page else []
        judged = [(job, health_of(job, runs, now)) for job, runs in zip(page, found, strict=True)]
        for job, health in judged:
            before = self._known.get(job.id)
            self._known[job.id] = health.state
            trouble = health.state in (JobState.LATE, JobState.DOWN)
            if health.state is not before and (before is not None or trouble):
                event = JobHealthEvent(EVENT_JOB_HEALTH, job.id, link.alias, str(health.state), before and str(before))
                event.reason, event.run_id = health.why, health.run_id
                link.node.events.publish(event)
        if link.node.alerts:
            self._alerts.tell(judged, now)


def _shown(name: str) -> str:
    return f"executor {name[1:]!r}" if is_local(name) else f"queue {name!r}"


def _advice(name: str, living: list[NodeInfo]) -> str:
    if is_local(name):
        return "start a scheduler that has this executor"
    served = sorted({queue for node in living for queue in node.queues})
    others = f" (workers serve {', '.join(served)})" if served else ""
    return f"start a worker for it: mainspring worker MODULE:APP -Q {name}{others}"
