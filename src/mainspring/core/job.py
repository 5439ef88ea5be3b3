"""A job: what to call, and when. It is a value, and remembers the book it was read from, for `job.pause()`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.core.instants import from_us, to_us
from mainspring.core.policy import DEFAULT_POLICY, Policy
from mainspring.core.references import obj_to_ref, portable_call, ref_to_obj
from mainspring.core.run import Call
from mainspring.core.validation import POLICY_FIELDS, check_field, check_lateness, make_call, make_policy
from mainspring.errors import CallableReferenceError, near
from mainspring.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DECLARED_FIELDS", "FIRING_FIELDS", "PLAIN_FIELDS", "Book", "Job", "declared_values"]

FIRING_FIELDS = ("coalesce", "max_instances", "overlap", "misfire_grace_time", "late_after", "down_after")
"""The fields of a job that say what becomes of its fires."""
PLAIN_FIELDS = ("executor", "queue", *FIRING_FIELDS)
_CALL_FIELDS = ("func", "args", "kwargs", "name")
DECLARED_FIELDS = ("trigger", "call", "queue", "policy", *FIRING_FIELDS)
"""The fields of a job that the declaration of a schedule sets."""
MODIFIABLE = frozenset({*PLAIN_FIELDS, *_CALL_FIELDS, *POLICY_FIELDS, "trigger", "next_run_time"})


class Book(Protocol):
    """The part of a job book that the methods of a `Job` need, such as `job.pause()`."""

    @property
    def timezone(self) -> tzinfo:
        """The time zone for reading and showing times."""

    def modify(self, job: Job, jobstore: str | None, /, **changes: Any) -> Job:
        """Change a job in its store and return it as it is now."""

    def reschedule(self, job: Job, trigger: Any, jobstore: str | None, /, **trigger_args: Any) -> Job:
        """Give a job another trigger."""

    def pause(self, job: Job, jobstore: str | None, /) -> Job:
        """Stop a job from coming due."""

    def resume(self, job: Job, jobstore: str | None, /) -> Job | None:
        """Let a job come due again."""

    def remove(self, job: Job, jobstore: str | None, /) -> None:
        """Remove a job."""

    def current_run_time(self, job: Job) -> int | None:
        """Return the next run time from the store if that is cheap to read, else the one in the job."""


class Job:
    """A callable with its arguments, a trigger and a policy.

    `at` is the next run time in microseconds, or None if the job is paused; `nominal` is the same time before jitter.
    Stores treat a job as a value: `version` and `incarnation` are those it had when it was read.
    """

    __slots__ = (
        "__weakref__",
        "_book",
        "_jobstore_alias",
        "at",
        "call",
        "coalesce",
        "declared",
        "down_after",
        "executor",
        "id",
        "incarnation",
        "late_after",
        "max_instances",
        "misfire_grace_time",
        "nominal",
        "overlap",
        "overridden",
        "policy",
        "queue",
        "timed",
        "trigger",
        "version",
    )

    def __init__(
        self,
        id: str,
        call: Call,
        trigger: BaseTrigger,
        *,
        executor: str = "default",
        queue: str = "default",
        misfire_grace_time: float | None = None,
        coalesce: bool = True,
        max_instances: int = 1,
        overlap: str = "skip",
        late_after: float | None = None,
        down_after: float | None = None,
        policy: Policy = DEFAULT_POLICY,
        at: int | None = None,
        nominal: int | None = None,
    ) -> None:
        self.id = id
        self.call = call
        self.trigger = trigger
        self.executor = executor
        self.queue = queue
        self.misfire_grace_time = misfire_grace_time
        self.coalesce = coalesce
        self.max_instances = max_instances
        self.overlap = overlap
        """The effect of a fire while `max_instances` runs are unfinished: `skip`, `queue` or `cancel_other`."""
        self.late_after = late_after
        """Seconds after which an unfinished fire is late; None derives it from how long runs usually take."""
        self.down_after = down_after
        """Seconds after which an unfinished fire brings the job down; None derives it from `late_after` and trigger."""
        self.policy = policy
        self.at = at
        self.nominal = at if nominal is None else nominal
        self.timed = at is not None
        """Whether the next run time is set; if not, the trigger computes it when the job is stored."""
        self.declared: str | None = None
        """For a schedule declared in code: a digest of the declaration."""
        self.overridden: Mapping[str, Any] = {}
        """For a schedule declared in code: the declared value of each field that has been changed since."""
        self.version = 0
        self.incarnation = 0
        self._book: Book | None = None
        self._jobstore_alias: str | None = None

    # -- the value -----------------------------------------------------------------------------------------------

    @property
    def func(self) -> Callable[..., Any]:
        """The callable. A job read from a store imports it now."""
        func = self.call.func
        return ref_to_obj(func) if isinstance(func, str) else func

    @property
    def func_ref(self) -> str | None:
        """The callable's reference, or None if it has none."""
        func = self.call.func
        if isinstance(func, str):
            return func
        try:
            return obj_to_ref(func)
        except (CallableReferenceError, LookupError):
            return None

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
    def next_run_time(self) -> datetime | None:
        """When the job is due next, in the trigger's time zone or else the book's; None if it is paused."""
        at = self.at if self._book is None else self._book.current_run_time(self)
        return None if at is None else from_us(at).astimezone(self._zone())

    @next_run_time.setter
    def next_run_time(self, moment: datetime | None) -> None:
        # Job stores written for APScheduler set it on the job that they restore.
        self.at = self.nominal = None if moment is None else to_us(moment)
        self.timed = True

    def _zone(self) -> tzinfo | None:
        zone: tzinfo | None = getattr(self.trigger, "timezone", None)
        return zone if zone is not None or self._book is None else self._book.timezone

    @property
    def pending(self) -> bool:
        """Whether the job waits for the scheduler to start before it is stored."""
        return self._jobstore_alias is None

    def copy(self) -> Job:
        """Return a copy that belongs to no book."""
        # Written out, since stores copy a job at every add and lookup: a loop over the slots takes four times as long.
        twin = Job.__new__(Job)
        twin.id = self.id
        twin.call = self.call
        twin.trigger = self.trigger
        twin.executor = self.executor
        twin.queue = self.queue
        twin.misfire_grace_time = self.misfire_grace_time
        twin.coalesce = self.coalesce
        twin.max_instances = self.max_instances
        twin.overlap = self.overlap
        twin.late_after = self.late_after
        twin.down_after = self.down_after
        twin.policy = self.policy
        twin.at = self.at
        twin.nominal = self.nominal
        twin.timed = self.timed
        twin.declared = self.declared
        twin.overridden = self.overridden
        twin.version = self.version
        twin.incarnation = self.incarnation
        twin._book = None
        twin._jobstore_alias = self._jobstore_alias
        return twin

    def evolve(self, **changes: Any) -> Job:
        """Return a copy with changed attributes; raise an error if one is unknown or has a wrong value."""
        unknown = sorted(changes.keys() - MODIFIABLE)
        if unknown:
            if "id" in unknown:
                raise ValueError(f"the id of job {self.id!r} cannot be changed; remove it and add another")
            raise AttributeError(f"a job has no attribute {unknown[0]!r} to modify{near(unknown[0], MODIFIABLE)}")
        twin = self.copy()
        if any(name in changes for name in _CALL_FIELDS):
            twin.call = _changed_call(self.call, changes)
        policy = {name: changes[name] for name in changes.keys() & POLICY_FIELDS}
        if policy:
            twin.policy = make_policy(self.policy, **policy)
        for name in (*PLAIN_FIELDS, "trigger"):
            if name in changes:
                setattr(twin, name, check_field(name, changes[name]))
        check_lateness(twin.late_after, twin.down_after)
        if "next_run_time" in changes:
            twin.next_run_time = changes["next_run_time"]
        if self.declared is not None:
            twin.overridden = _overridden(self, twin)
        return twin

    def _get_run_times(self, now: datetime) -> list[datetime]:
        """Return the latest fires that are due by `now`, at most a hundred."""
        until = to_us(now)
        if self.at is None or self.nominal is None or self.at > until:
            return []
        _, fires = self.trigger.overdue(self.nominal, until, 100)
        return [from_us(us).astimezone(self._zone()) for us in fires]

    # -- changes, made by the book that the job was read from ------------------------------------------------------

    def modify(self, **changes: Any) -> Job:
        """Change the job in its store."""
        return self._follow(self._owner().modify(self, self._jobstore_alias, **changes))

    def reschedule(self, trigger: Any = None, **trigger_args: Any) -> Job:
        """Give the job another trigger."""
        return self._follow(self._owner().reschedule(self, trigger, self._jobstore_alias, **trigger_args))

    def pause(self) -> Job:
        """Stop the job from coming due."""
        return self._follow(self._owner().pause(self, self._jobstore_alias))

    def resume(self) -> Job:
        """Let the job come due again."""
        return self._follow(self._owner().resume(self, self._jobstore_alias))

    def remove(self) -> None:
        """Remove the job from its store."""
        self._owner().remove(self, self._jobstore_alias)

    def _owner(self) -> Book:
        if self._book is None:
            raise RuntimeError(f"job {self.id!r} belongs to no scheduler; get it from one with get_job()")
        return self._book

    @property
    def _scheduler(self) -> Book | None:
        return self._book

    @_scheduler.setter
    def _scheduler(self, scheduler: object) -> None:
        # Job stores written for APScheduler set it on the job that they restore. Ignore it: the book binds the job.
        pass

    def _follow(self, changed: Job | None) -> Job:
        """Copy the changed job into this one, so that callers who hold it see the change."""
        if changed is not None:
            for name in Job.__slots__:
                if name != "__weakref__":
                    setattr(self, name, getattr(changed, name))
        return self

    # -- as text and as state ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        try:
            ref, args = portable_call(self.call.func, self.args)
        except (CallableReferenceError, LookupError) as error:
            raise ValueError(f"job {self.id!r} cannot be serialized: {error}") from error
        return {
            "version": 1,
            "id": self.id,
            "func": ref,
            "trigger": self.trigger,
            "args": args,
            "kwargs": dict(self.kwargs),
            "name": self.name,
            **{name: getattr(self, name) for name in PLAIN_FIELDS},
            "next_run_time": self.next_run_time,
            "policy": {name: getattr(self.policy, name) for name in POLICY_FIELDS},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("version", 1) > 1:
            raise ValueError(f"job state has version {state['version']}; this mainspring reads version 1")
        call = Call(state["func"], tuple(state["args"]), dict(state["kwargs"]), state["name"])
        plain = {name: state[name] for name in PLAIN_FIELDS if name in state}  # APScheduler's jobs lack some of these
        policy = Policy(**state["policy"]) if "policy" in state else DEFAULT_POLICY
        Job.__init__(self, state["id"], call, state["trigger"], policy=policy, **plain)
        self.next_run_time = state["next_run_time"]

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Job (id={self.id} name={self.name})>"

    def __str__(self) -> str:
        if self.pending and not self.timed:
            when = "pending"
        else:
            moment = self.next_run_time
            when = f"next run at: {moment:%Y-%m-%d %H:%M:%S %Z}" if moment is not None else "paused"
        return f"{self.name} (trigger: {self.trigger}, {when})"


def declared_values(job: Job) -> dict[str, Any]:
    """Return the values that the code declared for a stored job, undoing the changes that people made since."""
    return {name: job.overridden.get(name, getattr(job, name)) for name in DECLARED_FIELDS}


def _changed_call(call: Call, changes: dict[str, Any]) -> Call:
    func = changes.get("func", call.func)
    name = changes.get("name", call.name)
    return make_call(func, changes.get("args", call.args), changes.get("kwargs", call.kwargs), name)


def _overridden(job: Job, changed: Job) -> dict[str, Any]:
    """Return the declared value of each field in which a changed job differs from its declaration."""
    declared = declared_values(job).items()
    return {name: value for name, value in declared if not _is_same(value, getattr(changed, name))}


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Call):  # ignore the bytes that each was read from
        return (one.task_name, one.args, dict(one.kwargs), one.name) == (
            other.task_name, other.args, dict(other.kwargs), other.name,
        )  # fmt: skip
    return bool(one == other)
