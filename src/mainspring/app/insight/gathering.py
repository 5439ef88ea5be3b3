"""Read the facts that an explanation needs: a few reads of the store, no writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.insight.acts import about
from mainspring.core.insight.explanation import Explanation, NodeFacts, PredecessorFacts, QueueFacts, Scene
from mainspring.core.insight.health import RUNS_LOOKED_AT
from mainspring.core.insight.subjects import explain_broken_job, explain_unreadable_job
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.run import FINAL, Run, Status
from mainspring.jobstores.base import JobStore, NodeInfo, QueueInfo, RunQuery

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["RUNS_NAMED", "Gatherer", "KnownFacts", "recent_runs"]

ACTS_LOOKED_AT: Final = 20
MOST_COUNTED: Final = 200
"""Count the runs ahead of a run only if its queue has at most this many."""
RUNS_NAMED: Final = 100
"""Look at this many broken, failed or waiting runs to find what needs a person's attention."""
FAILED_LATELY_SECONDS: Final = 3600


class KnownFacts(NamedTuple):
    """The facts that a caller has just read and that need not be read again; None where the caller does not know."""

    now: int
    nodes: Sequence[NodeInfo] | None = None
    queues: Sequence[QueueInfo] | None = None
    run: Run | None = None
    job: Job | None = None
    recent: Sequence[Run] | None = None
    """The newest runs of the job."""


class Gatherer:
    """Reads the facts that explanations need, except those that are known."""

    def __init__(self, app: Mainspring, known: KnownFacts | None = None) -> None:
        self._app = app
        self.known = KnownFacts(app.store.beat()) if known is None else known
        self.now = self.known.now
        self._queues: dict[str, QueueFacts] | None = None

    @property
    def store(self) -> JobStore:
        """The store to read."""
        return self._app.store

    def scene(self) -> Scene:
        """Read the living nodes."""
        path, lease = self._app.insight.path, self._app.lease
        return Scene(
            now=self.now,
            zone=self._app.timezone,
            lease=lease,
            app=path or "MODULE:APP",
            nodes=tuple(_node(node.seen_at(self.now, lease)) for node in self._nodes()),
        )

    def _nodes(self) -> Sequence[NodeInfo]:
        return self.store.nodes() if self.known.nodes is None else self.known.nodes

    def run(self, run_id: str) -> Run | None:
        """Read a run."""
        known = self.known.run
        return known if known is not None and known.id == run_id else self.store.get_runs([run_id])[0]

    def jobs(self) -> tuple[list[Job], list[Explanation]]:
        """Read the jobs, and explain why the others do not fire: they were set aside, or cannot be read here."""
        jobs, unreadable = self.store.examine_jobs()
        there = {*unreadable, *(job.id for job in jobs)}
        aside = [broken for broken in self.store.get_jobs(broken=True).broken if broken.id not in there]
        told = [explain_broken_job(broken.id, broken.reason) for broken in aside]
        return jobs, told + [explain_unreadable_job(job_id, why) for job_id, why in unreadable.items()]

    def recent(self, job_id: str | None) -> list[Run]:
        """Read the newest runs of a job."""
        known = self.known
        if known.recent is not None and known.job is not None and known.job.id == job_id:
            return list(known.recent[:RUNS_LOOKED_AT])
        return [] if job_id is None else self.store.find_runs(RunQuery(job_id=job_id), limit=RUNS_LOOKED_AT)

    def queues(self) -> dict[str, QueueFacts]:
        """Read all queues, including the declared ones."""
        if self._queues is None:
            queues = self.store.stats().queues if self.known.queues is None else self.known.queues
            found = {info.name: _queue(info) for info in queues}
            declared = {name: QueueFacts(name=name) for name in self._app.queues.declared}
            self._queues = {**declared, **found}
        return self._queues

    def with_acts(self, scene: Scene, kind: str, name: str) -> Scene:
        """Return the scene with the acts of people on one run, job, queue or node."""
        return replace(scene, acts=tuple(self.store.acts(about=about(kind, name), limit=ACTS_LOOKED_AT)))

    def with_cancel(self, scene: Scene, run: Run) -> Scene:
        """Return the scene with the acts that cancelled a run, alone or together with its queue."""
        told = self.with_acts(scene, "run", run.id)
        if told.act("cancel") is not None or run.finished_at is None:
            return told
        ended = run.finished_at
        purges = self.with_acts(scene, "queue", run.queue).acts
        mine = (act for act in purges if act.verb == "purge" and act.details.get("began", ended + 1) <= ended <= act.at)
        return replace(told, acts=(*told.acts, *mine))

    def failed(self, without_jobs: Collection[str]) -> dict[str, list[Run]]:
        """Read the runs that failed within the last hour, by task, except those of some jobs."""
        found = self.store.find_runs(RunQuery(status=(Status.FAILED,)), limit=RUNS_NAMED)
        since = self.now - FAILED_LATELY_SECONDS * SECOND
        return _by_task(run for run in found if (run.finished_at or 0) >= since and run.job_id not in without_jobs)

    def uncallable(self, scene: Scene) -> dict[str, list[Run]]:
        """Read the runs that still wait because the nodes that claimed them lack the function, by task."""
        missing = {name for node in scene.nodes if node.state != "silent" for name in node.missing}
        if not missing:
            return {}
        waiting = self.store.find_runs(RunQuery(status=(Status.PENDING,)), limit=RUNS_NAMED)
        return _by_task(run for run in waiting if run.call.task_name in missing)

    def before(self, run: Run) -> PredecessorFacts:
        """Look at the runs that a blocked run comes after, or at those that hold the slots it waits for."""
        if run.gate is not None and not run.waits:
            running = self.store.find_runs(RunQuery(status=(Status.RUNNING,)), limit=MOST_COUNTED)
            return PredecessorFacts(holders=tuple(each for each in running if each.gate == run.gate))
        ids = [edge.id for edge in run.after]
        standings = self.store.standings(ids)
        left = [
            run_id
            for run_id, standing in zip(ids, standings, strict=True)
            if standing is not None and standing.status not in FINAL
        ]
        return PredecessorFacts(total=len(ids), waits=len(left), first=self.run(left[0]) if left else None)

    def queue_of(self, run: Run) -> QueueFacts:
        """Read the queue of a waiting run, and count the runs ahead of it if that is cheap."""
        queue = self.queues().get(run.queue) or QueueFacts(name=run.queue)
        if run.run_at > self.now or queue.waiting + queue.delayed > MOST_COUNTED:
            return queue
        pending = RunQuery(status=(Status.PENDING,), queue=run.queue)
        others = [each for each in self.store.find_runs(pending, limit=MOST_COUNTED + 1) if each.run_at <= self.now]
        ahead = [each for each in others if (-each.priority, each.run_at) < (-run.priority, run.run_at)]
        return replace(queue, ahead=len(ahead), urgent=sum(each.priority > run.priority for each in ahead))


def _by_task(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.call.task_name, []).append(run)
    return found


def recent_runs(store: JobStore, jobs: Sequence[Job]) -> dict[str, list[Run]]:
    """Read the newest runs of each job."""
    ids = [job.id for job in jobs]
    return dict(zip(ids, store.recent_runs(ids, RUNS_LOOKED_AT), strict=True))


def _queue(info: QueueInfo) -> QueueFacts:
    return QueueFacts(
        name=info.name,
        waiting=info.waiting,
        delayed=info.delayed,
        blocked=info.blocked,
        running=info.running,
        paused=info.paused,
        limit=abs(info.limit) if info.limit else None,
        oldest_at=info.oldest_at,
    )


def _node(info: NodeInfo) -> NodeFacts:
    return NodeFacts(**{name: getattr(info, name) for name in NodeFacts.__struct_fields__})
