"""A run: one execution and its record. `TRANSITIONS` lists every change of status that is permitted. Pure."""

from __future__ import annotations

import traceback as _traceback
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.lanes import lane_of
from mainspring.core.policy import DEFAULT_POLICY, Policy

__all__ = [
    "BULK_QUEUE",
    "BY_HAND_PREFIX",
    "FINAL",
    "HELD_PREFIX",
    "HOLDS",
    "ON",
    "TRANSITIONS",
    "UNFINISHED",
    "UNTIL_START_PREFIX",
    "WAITING",
    "After",
    "Beat",
    "Call",
    "Condition",
    "Error",
    "Outcome",
    "Report",
    "Result",
    "Run",
    "Start",
    "Status",
    "Transition",
    "bit_of",
    "describe",
    "is_local",
    "kept_starts",
]

TRACEBACK_CHARS: Final = 64 * 1024
MESSAGE_CHARS: Final = 4 * 1024
ERRORS_KEPT: Final = 20
FIRST_STARTS_KEPT: Final = 2
LAST_STARTS_KEPT: Final = 18
LONGEST_ABSENCE_US: Final = 60 * SECOND
"""Offer a run whose function a node lacks to all nodes again after at most this long."""
MOST_CRASHES: Final = 3
"""Set a run aside as broken after more crashes than this."""
BY_HAND_PREFIX: Final = "by-hand:"
"""The name of a holder that took its runs by hand begins with this. It renews no lease: its runs are free as soon as
the lease is over, and nobody waits for its heartbeat."""
UNTIL_START_PREFIX: Final = ">"
"""A unique key that begins with this holds only until its run starts."""
HELD_PREFIX: Final = "!"
"""No node serves a queue whose name begins with this: people or the app end the runs in it."""
BULK_QUEUE: Final = "!bulk"
"""The queue of actions on many runs. Each action is a run, which any process of the app carries out."""


def is_local(queue: str) -> bool:
    """Return True for the queue `.alias` of a scheduler's executor: it has no limit, and nobody pauses it."""
    return queue[:1] == "."


class Status(StrEnum):
    """The status of a run."""

    BLOCKED = "blocked"  # it waits for other runs, or for a slot of its gate; no node can claim it
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISSED = "missed"
    BROKEN = "broken"


FINAL: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.MISSED, Status.BROKEN})

WAITING: Final = (Status.BLOCKED, Status.PENDING)

UNFINISHED: Final = (*WAITING, Status.RUNNING)

_BITS: Final = {Status.SUCCEEDED: 1, Status.FAILED: 2, Status.CANCELLED: 4, Status.MISSED: 8, Status.BROKEN: 16}
ON: Final = {"success": 1, "failure": 2 | 8 | 16, "end": 31}
"""The mask of an edge for each word that people use; each final status that lets the successor start has one bit."""
HOLDS: Final = 32
"""A bit of an edge that makes the store keep the predecessor as long as the successor, whatever its status."""


def bit_of(status: str) -> int:
    """Return the bit of a final status in the mask of an edge."""
    return _BITS[Status(status)]


class After(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A predecessor of a run, and a mask of the final statuses of it that let the run start."""

    id: str
    on: int = ON["success"]


class Condition(StrEnum):
    """The condition under which a store writes an outcome. The token has to match in every case."""

    HELD = "held"  # running, under this token; to become pending again, it must not be cancelling either
    EXPIRED = "expired"  # the same, and the lease is over by the store's clock
    WAITING = "waiting"  # blocked or pending, and not claimed since it was read; a change also needs the same status
    REFUSED = "refused"  # waiting, and refused by the store, or the same call has ended the run `run.refused`
    FINISHED = "finished"  # in a final status, and not retried since it was read


class Transition(NamedTuple):
    """One permitted change of a run's status."""

    verb: str
    before: Status | None
    after: Status
    condition: Condition | None
    when: str


_S, _C = Status, Condition
TRANSITIONS: Final = (
    Transition("add", None, _S.PENDING, None, "enqueued, or fired while no slot is free"),
    Transition("block", None, _S.BLOCKED, None, "enqueued or fired, and to come after runs that have not ended"),
    Transition("fire", None, _S.RUNNING, None, "fired straight into a free slot of this node"),
    Transition(
        "miss", None, _S.MISSED, None, "too late, above max_instances, beyond the catch-up, or its job was changed"
    ),
    Transition("claim", _S.PENDING, _S.RUNNING, None, "a node leased it"),
    Transition("release", _S.BLOCKED, _S.PENDING, None, "the last run that it came after has ended as it should"),
    Transition("refuse", _S.BLOCKED, _S.PENDING, None, "a run that it came after has ended otherwise"),
    Transition("park", _S.PENDING, _S.BLOCKED, None, "a node would have leased it, and no slot of its gate was free"),
    Transition("let in", _S.BLOCKED, _S.PENDING, None, "a run of its gate stopped running, or its number was raised"),
    Transition("change", _S.PENDING, _S.PENDING, _C.WAITING, "somebody moved, postponed or prioritized it"),
    Transition("change", _S.BLOCKED, _S.BLOCKED, _C.WAITING, "somebody moved, postponed or prioritized it"),
    Transition("change", _S.BLOCKED, _S.PENDING, _C.WAITING, "somebody postponed it while it waited for a slot"),
    Transition("cancel", _S.PENDING, _S.CANCELLED, _C.WAITING, "somebody cancelled it before it started"),
    Transition("cancel", _S.BLOCKED, _S.CANCELLED, _C.WAITING, "somebody cancelled it before it could start"),
    Transition("signal", _S.PENDING, _S.SUCCEEDED, _C.WAITING, "somebody gave the signal that it stands for"),
    Transition("drop", _S.PENDING, _S.CANCELLED, _C.REFUSED, "it was refused"),
    Transition("drop", _S.BLOCKED, _S.CANCELLED, _C.REFUSED, "the same call cancelled a run that it comes after"),
    Transition("succeed", _S.RUNNING, _S.SUCCEEDED, _C.HELD, "the callable returned"),
    Transition("fail", _S.RUNNING, _S.FAILED, _C.HELD, "the callable raised and no retry is left"),
    Transition("retry later", _S.RUNNING, _S.PENDING, _C.HELD, "the callable raised and a retry is left"),
    Transition("give back", _S.RUNNING, _S.PENDING, _C.HELD, "the node will not start it"),
    Transition("stop", _S.RUNNING, _S.CANCELLED, _C.HELD, "it was cancelled while it ran, or raised Cancel"),
    Transition("start late", _S.RUNNING, _S.MISSED, _C.HELD, "it would have started after start_by"),
    Transition("set aside", _S.RUNNING, _S.BROKEN, _C.HELD, "its record cannot be read, or it crashes its process"),
    Transition("crash", _S.RUNNING, _S.PENDING, _C.HELD, "its process is gone: it runs alone next time"),
    Transition("recover", _S.RUNNING, _S.PENDING, _C.EXPIRED, "its node is gone"),
    Transition("stop", _S.RUNNING, _S.CANCELLED, _C.EXPIRED, "its node is gone, and it was to be stopped"),
    Transition("lose", _S.RUNNING, _S.FAILED, _C.EXPIRED, "its node is gone and delivery is at_most_once"),
    Transition("retry", _S.FAILED, _S.PENDING, _C.FINISHED, "a person sent it back"),
    Transition("retry", _S.FAILED, _S.BLOCKED, _C.FINISHED, "a person sent it back behind runs that have not ended"),
    Transition("retry", _S.CANCELLED, _S.PENDING, _C.FINISHED, "a person sent it back"),
    Transition("retry", _S.CANCELLED, _S.BLOCKED, _C.FINISHED, "a person sent it back behind runs that have not ended"),
    Transition("retry", _S.BROKEN, _S.PENDING, _C.FINISHED, "a person sent it back"),
    Transition("retry", _S.BROKEN, _S.BLOCKED, _C.FINISHED, "a person sent it back behind runs that have not ended"),
    Transition("retry", _S.PENDING, _S.BLOCKED, _C.WAITING, "a person sent back the run that had refused it"),
)


class Call(msgspec.Struct, frozen=True):
    """A callable (or its reference), its arguments and a readable name."""

    func: Callable[..., Any] | str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    name: str = ""
    frame: bytes | None = None  # the stored bytes that it was read from, passed on unchanged
    task: str | None = None  # the name that led to `func`, if `func` is the callable itself
    inputs: int = 0  # how many of its arguments are placeholders for the results of other runs
    headers: dict[str, str] | None = None  # texts of integrations, such as a trace context; signed, too
    unfilled: Call | None = None  # the call with its placeholders, if `args` has the results; never stored

    @property
    def task_name(self) -> str:
        """The task's name, or the reference of the callable."""
        func = self.func
        if isinstance(func, str):
            return str(func) or self.task or ""
        return self.task or f"{getattr(func, '__module__', '?')}:{getattr(func, '__qualname__', '?')}"

    def found(self, func: Callable[..., Any] | str) -> Call:
        """Return the call with its function resolved."""
        task = str(self.func) if isinstance(self.func, str) else self.task
        return msgspec.structs.replace(self, func=func, task=task)

    def __repr__(self) -> str:
        # Leave out the arguments, so that a log of the call does not show secrets.
        return f"<Call of {self.name or self.func}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name or self.func)]


class Error(msgspec.Struct, frozen=True, gc=False):
    """The record of one failed attempt."""

    type: str
    message: str
    traceback: str
    at: int
    attempt: int


class Start(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One start of a run: where, when, how it ended, and the instant from which the run could be started again.

    `how` is a final status, `raised`, `retry` (it raised an uncounted Retry), `crashed`, `interrupted` (its node was
    stopped) or `lost` (its node fell silent). It is None while the run goes on. `claimed_at` is None if only the time
    of the start is known.
    """

    number: int
    node: str | None
    claimed_at: int | None
    started_at: int | None
    ended_at: int | None = None
    how: str | None = None
    run_at: int | None = None


def kept_starts(starts: tuple[Start, ...]) -> tuple[Start, ...]:
    """Return the starts that a record keeps: the first and the last ones."""
    if len(starts) <= FIRST_STARTS_KEPT + LAST_STARTS_KEPT:
        return starts
    return starts[:FIRST_STARTS_KEPT] + starts[-LAST_STARTS_KEPT:]


class Run(msgspec.Struct, frozen=True):
    """One execution. Times are microseconds, UTC.

    A run waits in its `queue`. The runs of a scheduler's job wait in a queue named after their executor, for example
    `.default`; only nodes that have this executor claim from it. The names of other queues do not start with a dot. For
    a run in such another queue, `executor` is the executor that it needs, if known: see `core.lanes`.
    """

    id: str
    call: Call
    queue: str = "default"
    executor: str | None = None
    job_id: str | None = None
    group: str | None = None
    unique: str | None = None
    status: Status = Status.PENDING
    policy: Policy = DEFAULT_POLICY
    priority: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    created_at: int = 0
    fire_time: int | None = None
    run_at: int = 0
    start_by: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    node: str | None = None
    token: str | None = None
    lease_until: int | None = None
    cancelling: bool = False
    result: Any = None
    errors: tuple[Error, ...] = ()
    progress: Any = None
    data: Any = None
    log: tuple[str, ...] = ()
    reason: str | None = None
    count: int = 1  # the fires that this record stands for: coalesced into it, or missed in a row
    last: int | None = None  # the last of those fires
    after: tuple[After, ...] = ()  # the runs that it comes after, each once; kept in case it is sent back
    delay: int = 0  # microseconds to wait after the last of those has ended; kept for the same reason
    waits: int = 0  # how many of those have not ended; counted by the store
    followed: int = 0  # how many runs come after this one; counted by the store
    refused: str | None = None  # the run whose end refused this one: it is cancelled instead of started
    gate: str | None = None  # the gate from which it needs a slot
    gate_spec: str | None = None  # how many slots the gate has, as text: see `core.waiting.gates`
    counted: bool = True  # whether it counts as an unfinished run of its job; only the last of chained fires does
    key: str | None = None  # the unique key that it had when it ended
    retried: int = 0  # how often a person has sent it back
    earlier_starts: tuple[Start, ...] = ()  # the starts after which it waited again: the first two, the last eighteen
    copied_from: str | None = None  # the run that a person ran again as this one
    moved: bool = False  # whether a person moved it to its queue; its call is signed again for that queue
    unverified: str | None = None  # why its outcome cannot be trusted; never stored

    def __repr__(self) -> str:
        # Leave out arguments, result and data, so that a log of the run does not show secrets.
        return f"<Run {self.id} {self.name} {self.status} attempt={self.attempt}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in ("id", "name", "status", "queue", "attempt")]

    @property
    def lane(self) -> str:
        """The lane of its queue in which it waits."""
        return self.queue if self.executor is None else lane_of(self.queue, self.executor)

    @property
    def func(self) -> Callable[..., Any] | str:
        """The callable, or its reference."""
        return self.call.func

    @property
    def task(self) -> str:
        """The task's name, or the reference of the callable."""
        return self.call.task_name

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self.call.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments."""
        return self.call.kwargs

    @property
    def name(self) -> str:
        """The readable name."""
        return self.call.name

    @property
    def due_at(self) -> int:
        """When it was due: the time of its fire, or else the time at which it may start."""
        return self.run_at if self.fire_time is None else self.fire_time

    @property
    def headers(self) -> dict[str, str]:
        """Texts of integrations, such as a trace context. Listeners to `pre_enqueue` may add some."""
        return {} if self.call.headers is None else self.call.headers

    @property
    def starts(self) -> tuple[Start, ...]:
        """All starts that are kept. The current or last one comes from the other fields of the record."""
        earlier, ended = self.earlier_starts, self.status in FINAL
        known = earlier[-1].number if earlier else 0
        if self.status is Status.PENDING or self.started_at is None or self.attempt <= known:
            return earlier
        how = str(self.status) if ended else None
        claimed_at = None if ended else self.started_at
        return (*earlier, Start(self.attempt, self.node, claimed_at, self.started_at, self.finished_at, how))

    def after_start(self, how: str, ended_at: int, run_at: int, started_at: int | None = None) -> tuple[Start, ...]:
        """Return `earlier_starts` for a run that waits again: with its current start, which has ended as `how` says."""
        start = Start(self.attempt, self.node, self.started_at, started_at or self.started_at, ended_at, how, run_at)
        return kept_starts((*self.earlier_starts, start))


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The next record of a run. A store writes it only if `condition` holds, and adds the runs in `then` with it."""

    run: Run
    condition: Condition
    then: tuple[Run, ...] = ()


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat for one claim, with the reports of its run since the last one."""

    run_id: str
    token: str
    progress: Any = None
    data: Any = None
    log: tuple[str, ...] = ()


class Result(StrEnum):
    """How an execution ended, as its executor saw it."""

    RETURNED = "returned"
    RAISED = "raised"
    LATE = "late"  # not started: past start_by
    REFUSED = "refused"  # not started: a predecessor ended in a way that does not let it start
    UNSTARTED = "unstarted"  # not started: given back
    ABSENT = "absent"  # not started: this node cannot import the function
    BUSY = "busy"  # not started: this node has not finished an earlier claim of the same run
    INTERRUPTED = "interrupted"  # stopped by a deploy: another node starts it again, and no failure is counted
    CANCELLED = "cancelled"


class Report(msgspec.Struct):
    """An executor's report on a run."""

    run: Run
    result: Result
    value: Any = None
    exception: BaseException | None = None
    error: Error | None = None
    started_at: int = 0
    finished_at: int = 0


def describe(exception: BaseException, at: int, attempt: int) -> Error:
    """Make the stored record of an exception, with its texts cut at the limits; never raise."""
    try:
        message = str(exception)
    except BaseException as broken:  # even SystemExit, which user code may raise in `__str__`
        message = f"<its __str__ raised {type(broken).__name__}>"
    try:
        text = "".join(_traceback.format_exception(exception))
    except BaseException as broken:
        text = f"<the traceback could not be formatted: {type(broken).__name__}>"
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Error(
        type=name[:MESSAGE_CHARS], message=message[:MESSAGE_CHARS], traceback=_cut(text), at=at, attempt=attempt
    )


def _cut(text: str) -> str:
    if len(text) <= TRACEBACK_CHARS:
        return text
    # Keep more of the end, which has the cause, than of the start, which shows the path to it.
    head, tail = TRACEBACK_CHARS // 4, TRACEBACK_CHARS // 4 * 3
    return f"{text[:head]}\n... {len(text) - head - tail} characters left out ...\n{text[-tail:]}"
