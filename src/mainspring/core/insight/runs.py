"""Explain why a run has or has not started, by the first reason that the records show. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mainspring.core.insight.explanation import (
    FIRST_NAMED,
    Explanation,
    Fact,
    NodeFacts,
    PredecessorFacts,
    QueueFacts,
    Scene,
)
from mainspring.core.insight.health import missed_because
from mainspring.core.insight.run_texts import starts_text
from mainspring.core.insight.wording import brief, duration, several, took
from mainspring.core.instants import SECOND
from mainspring.core.plan import LATE, SUPERSEDED
from mainspring.core.policy import kind_name
from mainspring.core.run import BULK_QUEUE, HELD_PREFIX, MOST_CRASHES, Run, Status
from mainspring.core.waiting.flows import LANDING_TASK
from mainspring.core.waiting.gates import KEY_GATE, Limit

__all__ = ["explain_run", "place_of_run", "remedy_of"]

_REMEDIES: Final = {
    "unknown_key": "it was signed with a key that the nodes do not have: set one MAINSPRING_SECRET_KEY for all",
    "unsigned": "it was stored without a key, and the nodes have one: set the key for all and enqueue it again",
    "bad_signature": "its bytes are not those that were signed: somebody altered or moved them; enqueue it again",
    "missing_code": "code that it needs is not installed where it was read: deploy it",
    "not_allowed": "it needs something that this app does not allow, such as pickle: allow it, or enqueue it again",
    "bad_data": "its bytes are damaged; enqueue it again",
    "truncated": "its bytes are cut off; enqueue it again",
    "too_large": "it unpacks to more than is allowed; enqueue it again with less",
    "unknown_version": "a newer mainspring wrote it: upgrade the nodes",
}


def explain_run(
    run: Run,
    scene: Scene,
    queue: QueueFacts | None = None,
    usual: int | None = None,
    before: PredecessorFacts | None = None,
) -> Explanation:
    """Say why a run has or has not started; `usual` is the usual duration of its job's runs, if known.

    `before` describes the predecessors of a blocked run.
    """
    if run.unverified is None and run.status is Status.BLOCKED:
        state, sentence, actions = _blocked(run, scene, before or PredecessorFacts(waits=run.waits))
    elif run.unverified is None:
        state, sentence, actions = _EXPLAINERS[run.status](run, scene, queue or QueueFacts(name=run.queue), usual)
    else:
        state, actions = "unverified", ("doctor",)
        sentence = f"The store says that it is {run.status}, but nobody who holds the key has signed that: "
        sentence += f"{brief(run.unverified)}."
    facts = _facts(run, scene, usual)
    if before is not None and before.first is not None:
        facts.append(Fact("after", before.first.name or before.first.id, "run", before.first.id))
    if before is not None:
        facts += [Fact("slot", each.name or each.id, "run", each.id) for each in before.holders[:FIRST_NAMED]]
    return Explanation(kind="run", id=run.id, state=state, sentence=sentence, facts=tuple(facts), actions=actions)


def remedy_of(reason: str) -> str:
    """Say what is wrong with a record that was set aside for this reason, and the remedy; empty if neither is known."""
    return _REMEDIES.get(reason.partition(":")[0].strip(), "")


def place_of_run(queue: str) -> str:
    """Name the queue, or the executor of a scheduler, in words."""
    return f"executor {queue[1:]!r}" if queue.startswith(".") else f"queue {queue!r}"


_Answer = tuple[str, str, tuple[str, ...]]


# -- it waits ------------------------------------------------------------------------------------------------------


def _blocked(run: Run, scene: Scene, before: PredecessorFacts) -> _Answer:
    actions = (f"runs cancel {run.id}",)
    if not run.waits and run.gate is not None:
        slot = f"a slot of {run.gate.removeprefix(KEY_GATE)!r}"
        return "blocked", f"Waits for {slot}{_taken(run, before.holders)}.", actions
    number = f"{before.waits} of {before.total}" if before.total > 1 else "1 run"
    first = before.first
    if first is None:
        return "blocked", f"Waits for {several(max(1, before.waits), 'run')} that it comes after.", actions
    return "blocked", f"Waits for {number}: {first.name or first.id} {_doing(first, scene)}.", actions


def _taken(run: Run, holders: tuple[Run, ...]) -> str:
    """Say how many slots of a gate are taken, and by which run."""
    if not holders:
        return ""
    at_once = Limit.from_text(run.gate_spec).at_once if run.gate_spec else None
    number = f"{len(holders)} of {at_once}" if at_once is not None and len(holders) <= at_once else f"{len(holders)}"
    others = f" and {several(len(holders) - 1, 'other')}" if len(holders) > 1 else ""
    return f": {number} taken by {holders[0].name or holders[0].id}{others}"


def _doing(run: Run, scene: Scene) -> str:
    """Say in a few words what an unfinished run is doing."""
    if run.status is Status.RUNNING:
        return "is being stopped" if run.cancelling else f"runs for {took(scene.now - (run.started_at or scene.now))}"
    if run.status is Status.BLOCKED:
        return "is blocked, too"
    if run.refused is not None:
        return "will not run"
    if run.queue.startswith(HELD_PREFIX):
        return "has not been given"
    if run.run_at > scene.now:
        return f"{'is retrying' if run.failures else 'starts'} in {scene.ahead(run.run_at)}"
    return f"waits in {place_of_run(run.queue)}"


def _pending(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    if run.refused is not None:
        sentence = f"Will not run: run {run.refused!r}, which it comes after, has not ended as it should."
        return "waiting", sentence, (f"explain {run.refused}",)
    if run.call.task_name == LANDING_TASK:
        before = str(run.args[0])
        return "waiting", f"Waits for the end of run {before!r}, which is in another shard.", (f"explain {before}",)
    if run.queue == BULK_QUEUE:
        return "waiting", "Waits for a process that goes on with it, as any node does.", ()
    if run.queue.startswith(HELD_PREFIX):
        return "waiting", "Waits for somebody to give the signal that it stands for.", (f"runs cancel {run.id}",)
    place, serving = place_of_run(run.queue), scene.serving(run.queue)
    if queue.paused:
        paused = scene.act("pause_queue")
        return "waiting", f"Waits: {place} is paused{scene.by(paused)}.", (f"queues resume {run.queue}",)
    if run.run_at <= scene.now and not serving:
        return "waiting", f"Waits: no living node serves {place}.{_gone(run, scene)}", (_start_command(run, scene),)
    lacking = [node for node in serving if run.call.task_name in node.missing]
    if serving and len(lacking) == len(serving):
        nodes = f"none of {several(len(serving), 'node that serves', 'nodes that serve')} {place}"
        if len(serving) == 1:
            nodes = f"{serving[0].name}, the only node that serves {place},"
            return "waiting", f"Waits: {nodes} cannot import {run.call.task_name}.", ("doctor",)
        return "waiting", f"Waits: {nodes} can import {run.call.task_name}.", ("doctor",)
    if run.run_at > scene.now:
        return _delayed(run, scene, lacking)
    if all(node.state == "paused" for node in serving):
        one = len(serving) == 1
        nodes = f"{serving[0].name}, the only node that serves" if one else f"all {len(serving):,} nodes that serve"
        sentence = f"Waits: {nodes} {place}, {'is' if one else 'are'} paused."
        return "waiting", sentence, (f"nodes resume {serving[0].cluster or serving[0].name}",)
    nodes = several(len(serving), "node serves", "nodes serve")
    if queue.limit is not None and queue.running >= queue.limit:
        limited = f"{queue.running} of it run, and its limit is {queue.limit}"
        return "waiting", f"Waits for a slot of {place}: {limited}.", (f"queues limit {run.queue} {queue.limit + 1}",)
    if queue.urgent:
        return "waiting", f"Waits behind {several(queue.urgent, 'run')} of higher priority; {nodes} {place}.", ()
    if queue.ahead is None:
        line = f", and {several(queue.waiting, 'run waits', 'runs wait')} in it" if queue.waiting > 1 else ""
    else:
        line = f", and {several(queue.ahead, 'run is', 'runs are')} ahead of it" if queue.ahead else ""
    return "waiting", f"Waits: nobody has claimed it yet; {nodes} {place}{line}.", ()


def _gone(run: Run, scene: Scene) -> str:
    """Name a node of the queue that is silent or stopping."""
    silent = [node for node in scene.nodes if run.queue in node.queues and node.state == "silent"]
    draining = [node for node in scene.nodes if run.queue in node.queues and node.state == "draining"]
    if silent:
        return f" Node {silent[0].name} did, and has been silent for {scene.silent_for(silent[0])}."
    return f" Node {draining[0].name} is stopping and takes no more." if draining else ""


def _start_command(run: Run, scene: Scene) -> str:
    return "doctor" if run.queue.startswith(".") else f"worker {scene.app} -Q {run.queue}"


def _delayed(run: Run, scene: Scene, lacking: list[NodeFacts]) -> _Answer:
    when = f"{scene.at(run.run_at)} (in {scene.ahead(run.run_at)})"
    last = run.earlier_starts[-1] if run.earlier_starts else None
    actions = (f"runs cancel {run.id}",)
    put_off = scene.act("postpone")
    if put_off is not None and put_off.details.get("run_at") == run.run_at:
        return "delayed", f"Set for {when}{scene.by(put_off)}.", actions
    if last is not None and last.run_at == run.run_at:
        if last.how == "retry":
            return "retrying", f"Starts again at {when}: start {last.number} raised Retry and asked for that.", actions
        if last.how == "raised":
            error = f": {_last_error(run)}" if run.errors else ""
            tries = f"failure {run.failures} of at most {run.policy.retries + 1}"
            return "retrying", f"Starts again at {when}: it backs off after {tries}{error}.", actions
        return "delayed", f"Set for {when}: it was sent back{scene.by(scene.act('retry'))}.", actions
    if lacking:
        words = f"node {lacking[0].name} gave it back, since it cannot import {run.call.task_name}"
        return "delayed", f"Set for {when}; {words}.", actions
    if run.earlier_starts or run.retried or run.run_at <= run.created_at:
        return "delayed", f"Set for {when}.", actions
    return "delayed", f"Set for {when} by its caller.", actions


# -- it runs -------------------------------------------------------------------------------------------------------


def _running(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    node, name = scene.node(run.node), run.node or "?"
    left = None if run.lease_until is None else run.lease_until - scene.now
    if run.cancelling:
        return "running", f"Is being stopped{_stopped_by(scene)}; it runs on {_node(node, name)}.", ()
    if left is not None and (left < 0 or (node is not None and node.state == "silent")):
        heard = "is gone"
        if node is not None:
            silent = node.state == "silent"
            heard = f"has been silent for {scene.silent_for(node)}" if silent else "did not renew its lease in time"
        then = "its lease is over, so another node takes it over"
        if left > 0:
            then = f"another node takes it over in {duration(left)}"
        if run.policy.delivery == "at_most_once":
            then = "it will be called failed, since it may run at most once"
        return "running", f"Its node {_node(node, name)} {heard}; {then}.", ("nodes",)
    length = 0 if run.started_at is None else scene.now - run.started_at
    words = f"Runs for {took(length)} on {_node(node, name)}{_progress(run)}"
    if usual is None:
        return "running", f"{words}.", ()
    long = length > 2 * usual and length - usual > SECOND
    return "running", f"{words}; it usually takes {took(usual)}.", (f"runs cancel {run.id}",) if long else ()


def _node(node: NodeFacts | None, name: str) -> str:
    return name if node is None else node.name


def _progress(run: Run) -> str:
    """Say in words the progress that a run has reported."""
    told = run.progress if isinstance(run.progress, dict) else {}
    done, total, text = told.get("done"), told.get("total"), told.get("text")
    if not isinstance(done, int | float):
        return ""
    words = f", at {done / total * 100:.0f} %" if isinstance(total, int | float) and total > 0 else f", {done:g} done"
    return f"{words} ({brief(str(text))})" if text else words


def _stopped_by(scene: Scene) -> str:
    act = scene.act("cancel")
    if act is None:
        return ""
    return f": {act.by} asked for it {scene.ago(act.at)} ago{f' ({brief(act.why)!r})' if act.why else ''}"


# -- it has ended --------------------------------------------------------------------------------------------------


def _succeeded(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    starts = "" if len(run.starts) <= 1 else f" on start {run.attempt}"
    late = ""
    if run.started_at is not None and run.started_at - run.due_at >= SECOND and not run.earlier_starts:
        late = f", {duration(run.started_at - run.due_at)} after its time"
    length = ""
    if run.started_at is not None and run.finished_at is not None:
        length = f", in {took(run.finished_at - run.started_at)}"
    usually = "" if usual is None else f" (usually {took(usual)})"
    when = "" if run.finished_at is None else f" at {scene.at(run.finished_at)}"
    return "succeeded", f"Succeeded{starts}{when}{late}{length}{usually}.", ()


def _failed(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    actions = (f"runs show {run.id}", f"runs retry {run.id}")
    when = "" if run.finished_at is None else f" at {scene.at(run.finished_at)}"
    error = f": {_last_error(run)}" if run.errors else ""
    if run.reason == "lost":
        return "failed", f"Failed{when}: it was lost with its node, and it may run at most once.", actions
    retries = run.policy.retries
    lost = f"; {several(run.interruptions, 'lost start')} cost none" if run.interruptions else ""
    words = f"Failed for good{when} on start {run.attempt}{error}."
    if not retries:
        return "failed", f"{words} It has no retries.", actions
    if run.failures > retries:
        spent = {1: "Its only retry is", 2: "Both retries are"}.get(retries, f"All {retries:,} retries are")
        return "failed", f"{words} {spent} spent{lost}.", actions
    kind = run.errors[-1].type if run.errors else ""
    if kind and any(kind in _names(each) for each in run.policy.give_up_on):
        return "failed", f"{words} It gave up at once: {kind} is in give_up_on.", actions
    if run.policy.retry_on:
        return "failed", f"{words} It gave up at once: the error is not in retry_on, or is in give_up_on.", actions
    left = several(retries - run.failures + 1, "retry was", "retries were")
    return "failed", f"{words} {left} left, and none was made.", actions


def _names(kind: type[BaseException] | str) -> tuple[str, str]:
    """Return the two names that a record may have for an error."""
    name = kind_name(kind)
    return name, name.replace(":", ".")


def _cancelled(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    actions = (f"runs retry {run.id}",)
    after = " before it started"
    if run.started_at is not None and run.finished_at is not None:
        after = f" after it had run for {took(run.finished_at - run.started_at)}"
    elif run.earlier_starts:
        after = f" after {several(len(run.earlier_starts), 'start')}"
    act = scene.act("cancel", "purge")
    if act is not None:
        return "cancelled", f"Cancelled{scene.by(act)}{';' if act.why else ','}{after}.", actions
    when = "" if run.finished_at is None else f", {scene.at(run.finished_at)}"
    if run.refused is not None and run.reason:
        return "cancelled", f"Cancelled{when}: it {brief(run.reason)}.", (f"runs retry {run.refused}",)
    if run.reason == SUPERSEDED:
        return "cancelled", f"Cancelled{when},{after}: {missed_because(run.reason)}.", actions
    if run.reason and not run.starts:  # it never started, so its code raised nothing
        return "cancelled", f"Cancelled{when},{after}: {brief(run.reason)}.", actions
    if run.reason:
        return "cancelled", f'Cancelled itself{when},{after}: it raised Cancel("{brief(run.reason)}").', actions
    return "cancelled", f"Cancelled{when},{after}; nobody wrote down by whom.", actions


def _missed(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    due = run.due_at
    judged = scene.now if run.finished_at is None else run.finished_at
    why = missed_because(run.reason)
    if run.reason == LATE:
        why = f"it was {duration(judged - due)} too late, and its misfire_grace_time is shorter"
    if run.reason == LATE and run.start_by is not None:
        grace = duration(run.start_by - due)
        why = f"it could only have started {duration(judged - due)} late, and its misfire_grace_time is {grace}"
    row = ""
    if run.count > 1:
        row = f" {run.count:,} fires in a row were missed, from then until {scene.at(run.last or due)}."
    actions = () if run.job_id is None else (f"jobs run {run.job_id}",)
    return "missed", f"Due {scene.at(due)} and not run: {why}.{row}", actions


def _broken(run: Run, scene: Scene, queue: QueueFacts, usual: int | None) -> _Answer:
    reason = run.reason or "nobody wrote down why"
    kind = reason.partition(":")[0]
    restore = (f"broken restore {run.id}", f"broken discard {run.id}")
    if kind in _REMEDIES:
        return "broken", f"Set aside: {_REMEDIES[kind]}, then put it back.", restore
    if run.crashes > MOST_CRASHES:
        return "broken", f"Set aside: it {brief(reason)}. Put right what kills it, then put it back.", restore
    return "broken", f"Set aside: {brief(reason)}. Put that right, then put it back.", restore


def _last_error(run: Run) -> str:
    last = run.errors[-1]
    kind = last.type.rpartition(".")[2]
    return f"{kind}: {brief(last.message)}" if last.message else kind


_EXPLAINERS: Final[dict[Status, Callable[[Run, Scene, QueueFacts, int | None], _Answer]]] = {
    Status.PENDING: _pending,  # `_blocked` is apart: it needs the predecessors
    Status.RUNNING: _running,
    Status.SUCCEEDED: _succeeded,
    Status.FAILED: _failed,
    Status.CANCELLED: _cancelled,
    Status.MISSED: _missed,
    Status.BROKEN: _broken,
}


def _facts(run: Run, scene: Scene, usual: int | None) -> list[Fact]:
    """Return the facts that support the explanation."""
    kind = "executor" if run.queue.startswith(".") else "queue"
    facts = [Fact("task", run.call.task_name), Fact(kind, run.queue.removeprefix("."), "queue", run.queue)]
    if run.job_id is not None:
        facts.append(Fact("job", run.job_id, "job", run.job_id))
    facts.append(Fact("made", scene.at(run.created_at)))
    if run.status is Status.PENDING:
        facts.append(Fact("due", scene.at(run.run_at)))
    if run.node is not None:
        facts.append(Fact("node", run.node, "node", run.node))
    if run.attempt:
        facts.append(Fact("starts", starts_text(run)))
    if run.policy.retries:
        used = min(run.failures, run.policy.retries)
        facts.append(Fact("retries", f"{used} of {run.policy.retries} used"))
    if usual is not None:
        facts.append(Fact("usually takes", took(usual)))
    if run.retried:
        facts.append(Fact("sent back", f"{several(run.retried, 'time')}{scene.by(scene.act('retry'))}"))
    return facts
