"""The runs that follow from the end of another: its next overdue fire, the next step of its chain, its hook. Pure.

A store adds follow-ups in the same write as the outcome, and their ids derive from the id of the run. So none is lost
and none is made twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from mainspring.core.ids import FOLLOW_UP
from mainspring.core.instants import SECOND, from_us
from mainspring.core.policy import Policy, policy_from_data, policy_to_data
from mainspring.core.run import Call, Run, Status

__all__ = ["MOST_STEPS", "FinishedRun", "briefly", "follow_ups", "is_hook", "predecessors", "step_id", "step_of"]

MOST_STEPS: Final = 1000
"""The longest chain, in calls: each call carries all that come after it."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, as its hook sees it; without arguments and result if those are too large."""

    id: str
    name: str
    func: str
    args: tuple[Any, ...] = field(repr=False)  # so that a log of the run does not show secrets
    kwargs: Mapping[str, Any] = field(repr=False)
    status: str
    result: Any = field(default=None, repr=False)
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    group: str | None = None
    job_id: str | None = None
    queue: str = "default"
    attempt: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def success(self) -> bool:
        """Whether it succeeded."""
        return self.status == Status.SUCCEEDED.value


def follow_ups(run: Run, now: int) -> tuple[Run, ...]:
    """Return the follow-ups of a run that has ended."""
    policy = run.policy
    if not (run.later or policy.then or policy.hook is not None):
        return ()
    found = []
    if run.later:
        found.append(_next_fire(run, now))
    if policy.then and run.status is Status.SUCCEEDED:
        found.append(_next_step(run, now))
    if policy.hook is not None:
        found.append(_hook(run, now))
    return tuple(found)


def predecessors(run_id: str) -> Iterator[str]:
    """Yield the ids of the runs before a follow-up, the nearest first; none for an id that is no follow-up's."""
    while found := FOLLOW_UP.search(run_id):
        stem, number = run_id[: found.start()], int(found[1] or 1)
        run_id = stem if number == 1 else step_id(stem, number - 1)
        yield run_id


def step_id(run_id: str, number: int) -> str:
    """Return the id of a later step of the chain that starts with this run."""
    return f"{run_id}~{number}"


def is_hook(run_id: str) -> bool:
    """Return True if this is the id of another run's hook."""
    found = FOLLOW_UP.search(run_id)
    return found is not None and found[2] is not None


def step_of(call: Call, reference: str, queue: str, policy: Policy, delay: float = 0.0) -> dict[str, Any]:
    """Return a call as plain data, to be a later step of a chain."""
    return {
        "f": reference,
        "a": list(call.args),  # a list is packed faster than a tuple, and each step packs all that come after it
        "k": dict(call.kwargs),
        "n": call.name,
        "q": queue,
        "p": policy_to_data(policy),
        **({"d": delay} if delay else {}),
    }


def _next_step(run: Run, now: int) -> Run:
    step, *rest = run.policy.then
    policy = policy_from_data({**step["p"], "then": tuple(rest)})
    found, place = FOLLOW_UP.search(run.id), step_id(run.id, 1)
    if found is not None and found[1] is not None:
        place = step_id(run.id[: found.start()], int(found[1]) + 1)
    delay = int(step.get("d", 0) * SECOND)
    return Run(
        id=place,
        call=Call(step["f"], tuple(step["a"]), step["k"], step["n"]),
        queue=step["q"],
        group=run.group,
        policy=policy,
        priority=policy.priority,
        created_at=now,
        run_at=now + delay,
    )


def _hook(run: Run, now: int) -> Run:
    last = run.errors[-1] if run.errors and run.status is not Status.SUCCEEDED else None
    finished = FinishedRun(
        id=run.id,
        name=run.name,
        func=run.call.task_name,
        args=run.args,
        kwargs=dict(run.kwargs),
        status=run.status.value,
        result=run.result,
        error=run.reason if last is None else f"{last.type}: {last.message}",
        traceback=None if last is None else last.traceback,
        group=run.group,
        job_id=run.job_id,
        queue=run.queue,
        attempt=run.attempt,
        started_at=None if run.started_at is None else from_us(run.started_at),
        finished_at=None if run.finished_at is None else from_us(run.finished_at),
    )
    hook = run.policy.hook
    assert hook is not None
    again = f"{run.retried + 1}" if run.retried else ""  # it is told of each end, also after a person has sent it back
    return Run(
        id=f"{run.id}~hook{again}",
        call=Call(hook, (finished,), {}, f"hook of {run.name}"),
        queue=run.queue,
        executor=run.executor,
        priority=run.priority,
        created_at=now,
        run_at=now,
    )


def briefly(then: Iterable[Run]) -> tuple[Run, ...]:
    """Return follow-ups whose hooks are given their run without its arguments and result, which are too large."""
    return tuple(map(_brief, then))


def _brief(run: Run) -> Run:
    finished = run.call.args[0] if is_hook(run.id) else None
    if not isinstance(finished, FinishedRun):
        return run
    finished = dataclasses.replace(finished, args=(), kwargs={}, result=None)
    return msgspec.structs.replace(run, call=msgspec.structs.replace(run.call, args=(finished,)))


def _next_fire(run: Run, now: int) -> Run:
    """Make the next of several overdue fires, due as soon as its predecessor has ended."""
    fire_time, *rest = run.later
    grace = None if run.start_by is None or run.fire_time is None else run.start_by - run.fire_time
    return Run(
        id=f"{run.id.rpartition('@')[0]}@{fire_time}",
        call=run.call,
        queue=run.queue,
        executor=run.executor,
        job_id=run.job_id,
        policy=run.policy,
        priority=run.priority,
        created_at=now,
        fire_time=fire_time,
        run_at=fire_time,
        start_by=None if grace is None else fire_time + grace,
        later=tuple(rest),
    )
