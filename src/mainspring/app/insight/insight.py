"""The verbs that explain: why something has or has not run, what happened to it, how healthy schedules are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mainspring.app.declaring.task import job_id_of
from mainspring.app.handle import RunHandle
from mainspring.app.insight.gathering import RUNS_NAMED, Gatherer, KnownFacts, recent_runs
from mainspring.core.insight.explanation import Explanation, QueueFacts, Scene
from mainspring.core.insight.health import JobHealth, health_of, usual_duration
from mainspring.core.insight.runs import explain_run
from mainspring.core.insight.story import Episode, story_of
from mainspring.core.insight.subjects import (
    explain_failed_runs,
    explain_job,
    explain_node,
    explain_queue,
    explain_system,
    explain_uncallable_runs,
    explain_unknown,
)
from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.references import variable_of
from mainspring.core.run import HELD_PREFIX, UNFINISHED, Run, Status
from mainspring.core.schedules.simulating import Simulation, simulate
from mainspring.core.showing.run_view import RunView
from mainspring.errors import near
from mainspring.jobstores.base import NodeInfo, QueueInfo, RunQuery
from mainspring.jobstores.finding import find_job
from mainspring.jobstores.opening import absent_file
from mainspring.jobstores.records.packing import KEEP_SECONDS

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["Insight"]

MOST_DAYS = 3660
_KINDS = ("run", "job", "queue", "node")


class Insight:
    """Explains the runs, jobs, queues and nodes of an app."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._path: tuple[int, str | None] = 0, None

    @property
    def path(self) -> str | None:
        """The module variable that holds the app; kept, because finding it means looking into all modules."""
        number = len(sys.modules)
        if number != self._path[0]:
            self._path = number, variable_of(self._app)
        return self._path[1]

    def explain(self, subject: Any = None) -> Explanation:
        """Explain the state of a run, a job, a queue or a node; without a subject, list what needs attention.

        `subject` is a run (its id, a handle or a record), a job, or the name of a queue or a node. If a name fits
        several of these, the first in this order is explained; `queue:mail` names one kind. This changes nothing and
        guesses nothing: it gives only recorded reasons.
        """
        return self.explain_with(None, subject)

    def explain_with(self, known: KnownFacts | None, subject: Any = None) -> Explanation:
        """Explain a subject as `explain` does, without reading the known facts again."""
        gatherer = Gatherer(self._app, known)
        if subject is None:
            return self._system(gatherer)
        kind, name = _named(subject)
        found = self._find(gatherer, kind, name)
        if found is None and kind is None and name.partition(":")[0] in _KINDS:
            kind, _, rest = name.partition(":")
            found = self._find(gatherer, kind, rest)
            name = rest if found is None else name
        return found or self._job_without_module(gatherer, name) or self._unknown(gatherer, kind, name)

    def _find(self, gatherer: Gatherer, kind: str | None, name: str) -> Explanation | None:
        """Explain the first run, job, queue or node with this name."""
        if kind in (None, "run") and (run := gatherer.run(name)) is not None:
            return self._run(gatherer, run, gatherer.scene())
        known = gatherer.known.job
        if kind == "job" and known is not None and known.id == name:
            return self._job(gatherer, known, gatherer.recent(name), gatherer.scene())
        if kind in (None, "job"):
            jobs, others = gatherer.jobs()
            job = next((each for each in jobs if each.id == name), None)
            if job is not None:
                return self._job(gatherer, job, gatherer.recent(name), gatherer.scene())
            other = next((each for each in others if each.id == name), None)
            if other is not None:
                return other
        scene = gatherer.scene()
        if kind in (None, "queue"):
            served = {queue for node in scene.nodes for queue in node.queues}
            queue = gatherer.queues().get(name) or (QueueFacts(name=name) if name in served else None)
            if queue is not None:
                return explain_queue(queue, gatherer.with_acts(scene, "queue", name) if queue.paused else scene)
        if kind in (None, "node"):
            node = next((each for each in scene.nodes if name in (each.id, each.name)), None)
            if node is not None and node.state in ("paused", "draining"):
                scene = gatherer.with_acts(scene, "node", node.cluster or node.id)
            return None if node is None else explain_node(node, scene)
        return None

    def _job_without_module(self, gatherer: Gatherer, name: str) -> Explanation | None:
        """Explain the only job whose id is a module and this name, as in `shop:nightly`."""
        jobs, _ = gatherer.jobs()
        found = [job for job in jobs if job.id.endswith(f":{name}")]
        if len(found) != 1:
            return None
        return self._job(gatherer, found[0], gatherer.recent(found[0].id), gatherer.scene())

    def _run(self, gatherer: Gatherer, run: Run, scene: Scene) -> Explanation:
        queue = gatherer.queue_of(run) if run.status is Status.PENDING else None
        usual = None
        if run.status in (Status.RUNNING, Status.SUCCEEDED):
            usual = usual_duration([each for each in gatherer.recent(run.job_id) if each.id != run.id])
        if queue is not None and queue.paused:
            scene = gatherer.with_acts(scene, "queue", run.queue)
        elif run.status is Status.CANCELLED:
            scene = gatherer.with_cancel(scene, run)
        elif run.cancelling or run.retried or (queue is not None and run.run_at > gatherer.now):
            scene = gatherer.with_acts(scene, "run", run.id)
        before = gatherer.before(run) if run.status is Status.BLOCKED else None
        return explain_run(run, scene, queue, usual, before)

    def _job(self, gatherer: Gatherer, job: Job, runs: Sequence[Run], scene: Scene) -> Explanation:
        health = health_of(job, runs, gatherer.now, scheduled=_scheduled(scene))
        run = next((each for each in runs if each.id == health.run_id and each.status in UNFINISHED), None)
        cause = None if run is None else self._run(gatherer, run, scene)
        if job.at is None:
            scene = gatherer.with_acts(scene, "job", job.id)
        return explain_job(job, health, scene, cause)

    def _system(self, gatherer: Gatherer) -> Explanation:
        scene = gatherer.scene()
        jobs, others = gatherer.jobs()
        runs = recent_runs(gatherer.store, jobs)
        told = [self._job(gatherer, job, runs[job.id], scene) for job in jobs]
        told += others
        served = [queue for queue in gatherer.queues().values() if not queue.name.startswith(HELD_PREFIX)]
        queues = [explain_queue(queue, scene) for queue in served]
        nodes = [explain_node(node, scene) for node in scene.nodes]
        broken = gatherer.store.find_runs(RunQuery(status=(Status.BROKEN,)), limit=RUNS_NAMED)
        down = {each.id for each in told if each.state == "down"}  # these explanations name their failed runs
        others = [
            *(explain_uncallable_runs(task, runs, scene) for task, runs in gatherer.uncallable(scene).items()),
            *(explain_failed_runs(task, runs, scene) for task, runs in gatherer.failed(down).items()),
        ]
        return explain_system(told, queues, nodes, broken, others, scene.app)

    def _unknown(self, gatherer: Gatherer, kind: str | None, name: str) -> Explanation:
        scene = gatherer.scene()
        jobs, others = gatherer.jobs()
        known = [*gatherer.queues(), *(job.id for job in jobs), *(each.id for each in others)]
        hint = near(name, [*known, *(node.name for node in scene.nodes)])
        return explain_unknown(kind, name, hint if "did you mean" in hint else "", KEEP_SECONDS)

    def story(self, run: str | RunHandle[Any] | RunView) -> tuple[Episode, ...]:
        """Return what happened to a run, in order: each start, and each wait with its length and its cause."""
        return story_of(self._app.runs.read(run), self._app.now(), self._app.timezone)

    def health(self, job: str | Job) -> JobHealth:
        """Return a job's health (`new`, `paused`, `up`, `late` or `down`) and the reason; raise JobLookupError."""
        found = find_job(self._app.store, job_id_of(job))
        return self.healths([found])[found.id]

    def healths(self, jobs: Sequence[Job] | None = None) -> dict[str, JobHealth]:
        """Return the health of each job by id: of these jobs, or of all that can be read here."""
        gatherer = Gatherer(self._app)
        found = gatherer.store.examine_jobs()[0] if jobs is None else jobs
        scheduled, runs = _scheduled(gatherer.scene()), recent_runs(gatherer.store, found)
        return {job.id: health_of(job, runs[job.id], gatherer.now, scheduled=scheduled) for job in found}

    def simulate(
        self, days: float = 30, *, since: datetime | None = None, durations: Mapping[str, float] | None = None
    ) -> Simulation:
        """Return what the schedules would do in the days ahead: fires, overlaps, clock changes, busiest minutes.

        The schedules are those of the code, and the other jobs in the store if it can be read. A run takes as long as
        `durations` says for its job, in seconds, or as long as usual.
        """
        if not 0 < days <= MOST_DAYS:
            raise ValueError(f"days must be more than 0 and at most {MOST_DAYS}, not {days!r}")
        zone = self._app.timezone
        moment = from_us(self._app._app_store.clock.now(), zone) if since is None else since
        start = to_us(moment if moment.tzinfo is not None else moment.replace(tzinfo=zone))
        jobs, paused, usual = self._planned_jobs()
        usual |= dict(durations or {})
        return simulate(jobs, start, start + int(days * 86_400 * SECOND), zone, usual, paused)

    def _planned_jobs(self) -> tuple[list[Job], frozenset[str], dict[str, float]]:
        """Return the jobs of the code and of the store, the paused ones' ids, and how long runs usually take."""
        declared = {job.id: job for job in self._app.jobs.declared_jobs()}
        if absent_file(self._app.url) is not None:
            return list(declared.values()), frozenset(), {}
        try:
            stored = self._app.store.examine_jobs()[0]
            runs = recent_runs(self._app.store, stored)
        except OSError:  # the schedules in the code can be simulated without the store
            return list(declared.values()), frozenset(), {}
        usual = {job_id: took / SECOND for job_id, found in runs.items() if (took := usual_duration(found)) is not None}
        for job in stored:
            fresh = declared.get(job.id)
            if fresh is None or fresh.declared == job.declared:  # only the stored job knows when its interval began
                declared[job.id] = job
        return list(declared.values()), frozenset(job.id for job in stored if job.at is None), usual


def _scheduled(scene: Scene) -> bool:
    """Return True if any node is alive: nodes do not report whether they fire jobs."""
    return any(node.state == "running" for node in scene.nodes)


def _named(subject: Any) -> tuple[str | None, str]:
    """Return the kind of a subject, if its type tells it, and its name."""
    if isinstance(subject, str):
        return None, subject
    if isinstance(subject, RunHandle | RunView | Run):
        return "run", subject.id
    if isinstance(subject, Job):
        return "job", subject.id
    if isinstance(subject, QueueInfo):
        return "queue", subject.name
    if isinstance(subject, NodeInfo):
        return "node", subject.id
    raise TypeError(f"name a run, a job, a queue or a node to explain, not {subject!r}")
