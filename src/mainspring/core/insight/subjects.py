"""Explain the state of a job, a queue, a node or the whole system. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.core.insight.explanation import FIRST_NAMED, Explanation, Fact, NodeFacts, QueueFacts, Scene
from mainspring.core.insight.health import JobHealth, JobState
from mainspring.core.insight.runs import place_of_run
from mainspring.core.insight.wording import brief, duration, held_runs, listed, several
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.run import HELD_PREFIX, Run
from mainspring.triggers.clock_notes import clock_note

__all__ = [
    "explain_broken_job",
    "explain_failed_runs",
    "explain_job",
    "explain_node",
    "explain_queue",
    "explain_system",
    "explain_uncallable_runs",
    "explain_unknown",
    "explain_unreadable_job",
]

QUEUES_NAMED: Final = 12
"""Name at most this many queues of a node."""


def explain_job(job: Job, health: JobHealth, scene: Scene, cause: Explanation | None = None) -> Explanation:
    """Say how a job fares and when it fires next; `cause` explains the run that holds it up."""
    actions: tuple[str, ...] = ()
    shared = ""
    if health.state is JobState.PAUSED:
        why = f"Paused{scene.by(scene.act('pause_job'))}."
        actions = (f"jobs resume {job.id}", f"jobs run {job.id}")
    else:
        head = health.state.capitalize()
        why = shared = f"{head}: {health.why}."
        if cause is not None:
            told = f"{cause.sentence[0].lower()}{cause.sentence[1:]}"
            why, shared = f"{why} That run: {told}", f"{head}, each with a run that {told}"
            actions = cause.actions
        elif health.state in (JobState.LATE, JobState.DOWN):
            actions = ("nodes", f"worker {scene.app}") if health.run_id is None else (f"explain {health.run_id}",)
    sentence = f"{why} {_next(job, scene)}" if health.state is not JobState.PAUSED else why
    facts = [Fact("trigger", job.trigger.describe()), Fact("task", job.call.task_name)]
    place = job.queue if job.executor == "queue" else f".{job.executor}"
    facts.append(Fact("queue" if job.executor == "queue" else "executor", place.removeprefix("."), "queue", place))
    if job.at is not None:
        facts.append(Fact("next", scene.at(job.at)))
    if health.run_id is not None:
        facts.append(Fact("run", health.run_id, "run", health.run_id))
    return Explanation(
        kind="job", id=job.id, state=str(health.state), sentence=sentence, facts=tuple(facts), actions=actions,
        cause=shared,
    )  # fmt: skip


def _next(job: Job, scene: Scene) -> str:
    """Say when a job fires next, and how a change of the clock affects that fire."""
    if job.at is None:
        return "It does not fire again."
    if job.at <= scene.now:
        return f"Its next fire was due {scene.ago(job.at)} ago."
    following = job.trigger.next_fire(job.nominal, job.at) if job.nominal is not None else None
    note = None if job.nominal is None else clock_note(job.trigger, job.nominal)
    text = f"It fires next at {scene.at(job.at)}, in {scene.ahead(job.at)}"
    text += f" ({note.text})" if note is not None else ""
    return f"{text}, for the last time." if following is None else f"{text}."


def explain_unreadable_job(job_id: str, reason: str) -> Explanation:
    """Say that this process cannot read a job, although others may."""
    sentence = f"It cannot be read here: {brief(reason)}. A node with its key and its code fires it nevertheless."
    return Explanation(kind="job", id=job_id, state="unreadable", sentence=sentence, actions=("doctor",))


def explain_broken_job(job_id: str, reason: str) -> Explanation:
    """Say why a job was set aside and does not fire."""
    sentence = f"Set aside and not fired: {brief(reason)}. Put that right, then put it back."
    actions = (f"broken restore {job_id}", f"broken discard {job_id}")
    return Explanation(kind="job", id=job_id, state="broken", sentence=sentence, actions=actions)


def explain_queue(queue: QueueFacts, scene: Scene) -> Explanation:
    """Say whether nodes claim the runs of a queue, and if not, why."""
    serving, place = scene.serving(queue.name), place_of_run(queue.name)
    held = held_runs(queue.waiting, queue.delayed)
    held += f", and {queue.blocked:,} behind other runs or limits" if queue.blocked else ""
    oldest = "" if queue.oldest_at is None else f"; the oldest has been due for {scene.ago(queue.oldest_at)}"
    nodes = several(len(serving), "node serves", "nodes serve")
    actions: tuple[str, ...] = ()
    if queue.name.startswith(HELD_PREFIX):
        state, sentence = "held", f"Nodes serve no queue of this kind: people or the app end its runs. It holds {held}."
    elif queue.paused:
        state, sentence = "paused", f"Paused{scene.by(scene.act('pause_queue'))}. It holds {held}{oldest}."
        actions = (f"queues resume {queue.name}",)
    elif not serving and (queue.waiting or queue.delayed):
        state, sentence = "unserved", f"Unserved: no living node serves {place}, and it holds {held}{oldest}."
        actions = ("doctor",) if queue.name.startswith(".") else (f"worker {scene.app} -Q {queue.name}",)
    elif not serving:
        state, sentence = "unserved", f"Unserved: no living node serves {place}; it is empty."
    elif queue.waiting:
        number = several(queue.running, "of its runs is", "of its runs are") if queue.running else "none of its runs is"
        running = f"{number} running"
        if queue.limit is not None and queue.running >= queue.limit:
            running += f", as many as its limit of {queue.limit} allows"
            actions = (f"queues limit {queue.name} {queue.limit + 1}",)
        state, sentence = "waiting", f"Waiting: {nodes} {place}, and {running}. It holds {held}{oldest}."
    else:
        state = "flowing"
        sentence = f"Flowing: {nodes} {place}, nothing waits, {several(queue.running, 'run goes', 'runs go')} on"
        sentence += f", {several(queue.delayed, 'is', 'are')} for later." if queue.delayed else "."
    facts = [Fact(name, f"{getattr(queue, name):,}") for name in ("waiting", "delayed", "blocked", "running")]
    facts += [Fact("node", node.name, "node", node.id) for node in serving]
    return Explanation(kind="queue", id=queue.name, state=state, sentence=sentence, facts=tuple(facts), actions=actions)


def explain_node(node: NodeFacts, scene: Scene) -> Explanation:
    """Say what a node does."""
    queues = [name for name in node.queues if not name.startswith(".")]
    serves = f"serves {listed(queues, QUEUES_NAMED)}" if queues else "only schedules"
    up = f"has been up for {scene.ago(node.started_at)}"
    if node.state == "silent":
        usual = f"it should be heard from every {node.every or scene.lease / 3:g} s"
        sentence = f"Silent for {scene.silent_for(node)}: {usual}. What it ran goes to others when the leases end."
    elif node.state == "draining":
        by = scene.by(scene.act("stop_node"))
        sentence = f"Stopping{by}: it takes no more runs and finishes those it has; it {up}."
    elif node.state == "paused":
        by = scene.by(scene.act("quiet_node"))
        sentence = f"Paused{by}: it fires nothing and takes no more runs until it is resumed; it {up}."
    else:
        sentence = f"Running: it {serves} and {up}."
    if node.stuck:
        sentence += f" It has lost {several(node.stuck, 'thread')} to runs that did not end when they were stopped."
    if node.missing:
        more = f" and {len(node.missing) - 1} others" if len(node.missing) > 1 else ""
        sentence += f" It cannot import {node.missing[0]}{more}."
    facts = [Fact("host", node.host), Fact("pid", str(node.pid)), Fact("heard from", f"{scene.ago(node.beat_at)} ago")]
    facts += [Fact("queue", name, "queue", name) for name in queues]
    return Explanation(kind="node", id=node.id, state=node.state, sentence=sentence, facts=tuple(facts))


def explain_unknown(kind: str | None, name: str, hint: str, kept_seconds: float) -> Explanation:
    """Say that no subject (of this kind) has this name: it may never have existed, or its record is gone."""
    runs = f"A run that has ended is kept for {duration(int(kept_seconds * SECOND))} unless its task says otherwise"
    gone = {
        "run": f"{runs}.",
        "job": "A job is kept until its last fire.",
        "queue": "A queue is there once a task names it or a run is put into it.",
        "node": "A node is there as long as it is heard from.",
    }.get(kind or "", f"{runs}, and a job until its last fire.")
    sentence = f"There is no {kind or 'run, job, queue or node'} called {name!r} here{hint or '.'} {gone}"
    actions = (f"{kind}s list",) if kind else ("runs list", "jobs list", "queues list")
    return Explanation(kind="unknown", id=name, state="unknown", sentence=sentence, actions=actions)


def explain_failed_runs(task: str, runs: Sequence[Run], scene: Scene) -> Explanation:
    """Say that runs of a task have failed lately; `runs` has the newest first."""
    newest = runs[0]
    error = newest.errors[-1] if newest.errors else None
    what = "" if error is None else f": {brief(f'{error.type}: {error.message}'.rstrip(': '))}"
    when = "" if newest.finished_at is None else f", the last {scene.ago(newest.finished_at)} ago"
    sentence = f"Failed: {several(len(runs), 'run')} of {task} within the last hour{when}{what}."
    return Explanation(
        kind="run", id=newest.id, state="failed", sentence=sentence, ids=tuple(run.id for run in runs),
        actions=(f"runs show {newest.id}", "errors"),
    )  # fmt: skip


def explain_uncallable_runs(task: str, runs: Sequence[Run], scene: Scene) -> Explanation:
    """Say that runs wait for a node that has their function, which some living nodes cannot import."""
    nodes = [node for node in scene.nodes if task in node.missing and node.state != "silent"]
    sentence = (
        f"Unserved: {several(len(runs), 'run')} of {task} {'waits' if len(runs) == 1 else 'wait'} for a node that has "
        f"this function: {several(len(nodes), 'living node')} cannot import it. If it was renamed, keep its old name "
        "as an alias."
    )
    return Explanation(
        kind="run", id=runs[0].id, state="unserved", sentence=sentence, ids=tuple(run.id for run in runs),
        actions=("check", f"runs show {runs[0].id}"),
    )  # fmt: skip


_PRESSING: Final = ("broken", "down", "unserved", "silent", "late", "failed", "paused")
"""The problems that need a person, the most pressing first."""


def explain_system(
    jobs: Sequence[Explanation],
    queues: Sequence[Explanation],
    nodes: Sequence[Explanation],
    broken_runs: Sequence[Run],
    others: Sequence[Explanation] = (),
    app: str = "MODULE:APP",
) -> Explanation:
    """Say which problems need a person, without those that heal by themselves; `others` are about groups of runs."""
    found = [each for each in (*jobs, *queues, *nodes) if each.state in _PRESSING]
    # Leave out empty queues, which harm nobody, and paused jobs, which hold up no run.
    found = [each for each in found if each.kind != "queue" or _holds_runs(each)]
    found = [each for each in found if each.kind == "queue" or each.state != "paused"]
    found += others
    for run in broken_runs:
        text = f"Set aside: {brief(run.reason or 'nobody wrote down why')}."
        shown = (f"explain {run.id}",)
        found.append(Explanation(kind="run", id=run.id, state="broken", sentence=text, actions=shown))
    found = sorted(_once_each_cause(found), key=lambda each: _PRESSING.index(each.state))
    alive = sum(each.state != "silent" for each in nodes)
    facts = (Fact("jobs", f"{len(jobs):,}"), Fact("queues", f"{len(queues):,}"), Fact("nodes", f"{alive:,}"))
    if not found:
        paused = [each.about for each in (*jobs, *queues) if each.state == "paused"]
        counts = f"{several(len(jobs), 'job')}, {several(len(queues), 'queue')}, {several(alive, 'node')}"
        held = f"; paused: {listed(paused, FIRST_NAMED)}" if paused else ""
        if not alive:
            sentence = f"Nothing waits, but no node is alive to fire or execute anything: {counts}{held}."
            actions: tuple[str, ...] = (f"worker {app}",)
            return Explanation(kind="system", id="", state="idle", sentence=sentence, facts=facts, actions=actions)
        sentence = f"{'Nothing is wrong' if paused else 'All is well'}: {counts}{held}."
        return Explanation(kind="system", id="", state="well", sentence=sentence, facts=facts)
    first = found[0]
    sentence = f"{several(len(found), 'thing needs', 'things need')} you, first {first.about}: {first.sentence}"
    actions = tuple(dict.fromkeys(action for each in found[:3] for action in each.actions[:1]))
    return Explanation(
        kind="system", id="", state="needs you", sentence=sentence, facts=facts, actions=actions, parts=tuple(found)
    )


def _holds_runs(queue: Explanation) -> bool:
    """Return True if runs wait in a queue, for now or for later; blocked runs do not count."""
    return any(fact.name in ("waiting", "delayed") and fact.value != "0" for fact in queue.facts)


def _once_each_cause(found: Sequence[Explanation]) -> list[Explanation]:
    """State each cause once for all the subjects that share it."""
    groups: dict[tuple[str, str, str], list[Explanation]] = {}
    for each in found:
        groups.setdefault((each.kind, each.state, each.cause or each.sentence), []).append(each)
    return [
        group[0]
        if len(group) == 1
        else msgspec.structs.replace(group[0], sentence=cause, facts=(), ids=tuple(each.id for each in group))
        for (_, _, cause), group in groups.items()
    ]
