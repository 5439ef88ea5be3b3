"""A step, declared once by name: its table, its statuses and its rules."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin, overload

from mainspring.core.policy import Backoff, Delays
from mainspring.errors import ConfigurationError, near
from mainspring.tracker.mixin import JobMixin
from mainspring.tracker.rules import STATUSES, Rules, make_rules
from mainspring.tracker.sessions import AsyncTarget, Target, is_async, run, run_async
from mainspring.tracker.table import Table
from mainspring.tracker.work import Work, take_next

__all__ = ["Tracker"]

J = TypeVar("J", bound=JobMixin)


class Tracker(Generic[J]):
    """A step, declared by a subclass: `class Resize(Tracker[Picture]): pending = 10; in_progress = 11; ...`.

    A subclass without statuses holds settings that several steps share.
    """

    job: ClassVar[Any]
    pending: ClassVar[int]
    in_progress: ClassVar[int]
    failed: ClassVar[int]
    succeeded: ClassVar[int]
    ignored: ClassVar[int]
    more_pending: ClassVar[int | tuple[int, ...] | list[int]] = ()
    expire: ClassVar[float | timedelta] = 900
    max_retry: ClassVar[int] = 3
    backoff: ClassVar[Backoff | tuple[float, ...] | list[float] | Delays | None] = None
    retry_on: ClassVar[tuple[type[BaseException], ...]] = ()
    give_up_on: ClassVar[tuple[type[BaseException], ...]] = ()
    traceback_stack_limit: ClassVar[int | None] = 10
    skip_error: ClassVar[bool] = False
    debug: ClassVar[bool] = False

    rules: ClassVar[Rules]
    _table: ClassVar[Table[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is not None and issubclass(get_origin(base), Tracker):
                (argument,) = get_args(base)
                if isinstance(argument, type):
                    cls.job = argument
        _refuse_typos(cls)
        if any(hasattr(cls, name) for name in STATUSES):
            cls._table = _table_of(cls)
            cls.rules = _declared(cls)
            _refuse_overlaps(cls)

    @classmethod
    def start(
        cls, engine: Target | AsyncTarget, id: Any, *, skip_error: bool | None = None, debug: bool | None = None
    ) -> Work[J]:
        """Take a job, run the block, and write how it ended: `with Step.start(engine, id) as (job, updates)`."""
        table, rules = cls._ready(skip_error, debug)
        return Work(engine, table, rules, table.read_id(id))

    @overload
    @classmethod
    def start_next(
        cls, engine: Target, *, skip_error: bool | None = None, debug: bool | None = None
    ) -> Work[J] | None: ...

    @overload
    @classmethod
    def start_next(
        cls, engine: AsyncTarget, *, skip_error: bool | None = None, debug: bool | None = None
    ) -> Awaitable[Work[J] | None]: ...

    @classmethod
    def start_next(
        cls, engine: Target | AsyncTarget, *, skip_error: bool | None = None, debug: bool | None = None
    ) -> Any:
        """Take the oldest startable job at once, or return None if there is none. Use the result in a `with` block.

        On an AsyncEngine, await the call.
        """
        table, rules = cls._ready(skip_error, debug)
        runner: Any = run_async if is_async(engine) else run
        return runner(engine, lambda session: take_next(session, engine, table, rules))

    @classmethod
    def _ready(cls, skip_error: bool | None, debug: bool | None) -> tuple[Table[J], Rules]:
        if not hasattr(cls, "rules"):
            raise ConfigurationError(f"{cls.__name__} declares no statuses: {', '.join(STATUSES)}")
        rules = cls.rules
        skip_error = rules.skip_error if skip_error is None else skip_error
        return cls._table, replace(rules, skip_error=skip_error, debug=rules.debug if debug is None else debug)


def _table_of(cls: type[Tracker[Any]]) -> Table[Any]:
    name = cls.__name__
    if not hasattr(cls, "job"):
        raise ConfigurationError(
            f"{name} names no table; declare it as `class {name}(Tracker[Job])`, or set `job = Job`"
        )
    return Table.of(cls.job)


def _declared(cls: type[Tracker[Any]]) -> Rules:
    name = cls.__name__
    missing = [status for status in STATUSES if not hasattr(cls, status)]
    if missing:
        raise ConfigurationError(f"{name} lacks the status {', '.join(missing)}")
    if cls.backoff is not None and not cls._table.backs_off:
        raise ConfigurationError(
            f"{name} has a backoff, but {cls.job.__name__} has no column retry_at; add BackoffMixin to its bases"
        )
    return make_rules(
        name,
        statuses={status: getattr(cls, status) for status in STATUSES},
        more_pending=cls.more_pending,
        expire=cls.expire,
        max_retry=cls.max_retry,
        backoff=cls.backoff,
        retry_on=cls.retry_on,
        give_up_on=cls.give_up_on,
        traceback_stack_limit=cls.traceback_stack_limit,
        skip_error=cls.skip_error,
        debug=cls.debug,
    )


def _refuse_typos(cls: type[Tracker[Any]]) -> None:
    known = [name for name in Tracker.__annotations__ if name != "rules"]
    for name, value in vars(cls).items():
        if name.startswith("_") or name in known or callable(value) or hasattr(value, "__get__"):
            continue
        if difflib.get_close_matches(name, known, n=1, cutoff=0.75):
            raise ConfigurationError(f"{cls.__name__} has no setting {name!r}{near(name, known)}")


def _refuse_overlaps(cls: type[Tracker[Any]]) -> None:
    """Refuse a status that clashes with another step of the same table.

    Two steps may share only their `pending` and `succeeded` statuses.
    """
    mine = cls.rules
    steps: dict[str, Rules] = cls.job.__dict__.get("__mainspring_steps__") or {}
    for where, other in steps.items():
        if where == cls.__qualname__ or _own(other) == _own(mine):  # the same step declared again, or a variant of it
            continue
        for own, foreign in ((mine, other), (other, mine)):
            shared = {*_own(own)[:3]} & {*_own(foreign), *foreign.waiting}
            if shared:
                raise ConfigurationError(
                    f"{mine.where} and {other.where} both use the status {min(shared)} of {cls.job.__name__}; "
                    "only succeeded and pending may be shared"
                )
    cls.job.__mainspring_steps__ = {**steps, cls.__qualname__: mine}


def _own(rules: Rules) -> tuple[int, ...]:
    return rules.in_progress, rules.failed, rules.ignored, rules.succeeded
