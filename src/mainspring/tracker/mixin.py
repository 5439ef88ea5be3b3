"""The columns of a tracked job, for the user's declarative classes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import JSON, DateTime, Integer, String, select
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Mapped, Session, mapped_column

from mainspring.tracker.clock import now_for
from mainspring.tracker.errors import JobLockedError, UnknownJobError
from mainspring.tracker.rules import NAIVE_EPOCH, make_rules, read_seconds, read_status, read_statuses
from mainspring.tracker.sessions import AsyncTarget, Target, committed, is_refusal, run
from mainspring.tracker.table import Table
from mainspring.tracker.updates import Updates, check_column
from mainspring.tracker.work import Work, held, say

__all__ = ["BackoffMixin", "JobMixin"]

J = TypeVar("J", bound="JobMixin")

# Without fsp, MariaDB would drop fractions of a second.
_TIME = DateTime().with_variant(DATETIME(fsp=6), "mysql", "mariadb")


class JobMixin:
    """The columns and verbs of a tracked job: `class Job(Base, JobMixin)`. Times are UTC, by the database's clock."""

    id: Mapped[Any] = mapped_column(String(255), primary_key=True)
    status: Mapped[int] = mapped_column(Integer)
    create_at: Mapped[datetime] = mapped_column(_TIME, default=now_for(_TIME))
    update_at: Mapped[datetime] = mapped_column(_TIME, default=now_for(_TIME))
    lock: Mapped[str | None] = mapped_column(String(64), default=None)
    lock_at: Mapped[datetime] = mapped_column(_TIME, default=NAIVE_EPOCH)
    retry: Mapped[int] = mapped_column(Integer, default=0)
    data: Mapped[Any] = mapped_column(JSON, nullable=True)
    errors: Mapped[Any] = mapped_column(JSON, nullable=True, default=dict)

    @classmethod
    def create(cls: type[J], id: Any, status: int, data: Any = None, **kwargs: Any) -> J:
        """Make a job to add to a session. A compound `id` is a tuple, a mapping, or one keyword argument per column."""
        table = Table.of(cls)
        status = read_status(status, f"{cls.__name__}: status")
        if len(table.key) == 1 or isinstance(id, tuple | list | dict):
            kwargs |= dict(zip(table.key, table.read_id(id), strict=True))
        else:
            kwargs["id"] = id
        for name in kwargs:
            if name not in table.columns and not hasattr(cls, name):
                check_column(name, table.columns)
        for name in {"create_at", "update_at"} & table.without_default:  # the user redefined these columns
            kwargs.setdefault(name, table.now(name))
        first: dict[str, Any] = {"lock": None, "lock_at": NAIVE_EPOCH, "retry": 0, "errors": table.stored({})}
        return cls(**(first | {"status": status, "data": data} | kwargs))

    @classmethod
    def create_and_save(
        cls: type[J], engine_or_session: Target, id: Any, status: int, data: Any = None, **kwargs: Any
    ) -> J:
        """Make a job and insert it; commit a given session."""
        job = cls.create(id, status, data, **kwargs)

        def save(session: Session) -> None:
            session.add(job)
            session.flush()
            session.refresh(job)

        try:
            run(engine_or_session, lambda session: committed(session, save))
        except Exception as error:
            if not is_refusal(error):
                raise
            raise ValueError(f"{cls.__name__} {id!r} cannot be stored: {getattr(error, 'orig', error)}") from error
        return job

    def is_locked(self, expire: float | timedelta) -> bool:
        """Estimate, by this machine's clock, whether a worker holds the lock; only `start` knows for certain."""
        if self.lock is None:
            return False
        locked_at = self.lock_at if self.lock_at.tzinfo is not None else self.lock_at.replace(tzinfo=UTC)
        return (datetime.now(UTC) - locked_at).total_seconds() < read_seconds(expire, "expire")

    def lock_it(
        self,
        engine_or_session: Target,
        in_progress_status: int,
        debug: bool = False,
        *,
        expire: float | timedelta | None = None,
    ) -> tuple[str, datetime]:
        """Take the lock if it is free or older than `expire`; return it and its time. Commit a given session."""
        table = Table.of(type(self))
        status = read_status(in_progress_status, "in_progress_status")
        key = tuple(getattr(self, part) for part in table.key)
        token = uuid.uuid4().hex

        def lock(session: Session) -> Any:
            free = table.free(None if expire is None else read_seconds(expire, "expire"))
            values = {"status": status, "lock": token, "lock_at": table.now("lock_at")}
            statement = table.update().where(table.is_job(key), free)
            statement = statement.values({table.column(name): value for name, value in values.items()})
            taken = cast("CursorResult[Any]", session.execute(statement)).rowcount == 1
            return taken, session.execute(select(table.column("lock_at")).where(table.is_job(key))).scalar()

        taken, lock_at = run(engine_or_session, lambda session: committed(session, lock))
        name = f"{type(self).__name__} {table.show_id(key)!r}"
        if lock_at is None:
            raise UnknownJobError(f"there is no {name}", table.show_id(key))
        if not taken:
            raise JobLockedError(f"{name} is locked by somebody else", table.show_id(key))
        self.status, self.lock, self.lock_at = status, token, lock_at
        say(debug, f"{name}: locked, set status = {status}")
        return token, lock_at

    def update(self, engine_or_session: Target, updates: Updates) -> None:
        """Write columns of this job at once; require its lock if this object holds one."""
        table = Table.of(type(self))
        key = tuple(getattr(self, part) for part in table.key)
        for name in updates.values:
            check_column(name, table.columns)
        write = partial(table.write, key=key, token=self.lock, values=updates.values)
        if updates.values and not run(engine_or_session, lambda session: committed(session, write)):
            name, id_ = f"{type(self).__name__} {table.show_id(key)!r}", table.show_id(key)
            if self.lock is None:
                raise UnknownJobError(f"there is no {name}", id_)
            raise JobLockedError(f"the lock of {name} is not held any more; nothing was written", id_)

    def heartbeat(self) -> Any:
        """Renew the lock of a job that takes long; `await` the result in an `async with` block.

        Raise JobLockedError if the lock is lost. Stop then: another worker may have taken the job.
        """
        work = held(self.lock)
        if work is None:
            raise RuntimeError(f"{type(self).__name__} was not started in this process; call it in the `with` block")
        return work.heartbeat()

    @classmethod
    def start(
        cls: type[J],
        engine: Target | AsyncTarget,
        id: Any,
        pending_status: int,
        in_progress_status: int,
        failed_status: int,
        succeeded_status: int,
        ignored_status: int,
        expire: float | timedelta,
        max_retry: int,
        more_pending_status: int | list[int] | tuple[int, ...] | None = None,
        traceback_stack_limit: int | None = 10,
        skip_error: bool = False,
        debug: bool = False,
    ) -> Work[J]:
        """Take a job, run the block, and write how it ended: `with Job.start(...) as (job, updates)`."""
        table = Table.of(cls)
        rules = make_rules(
            f"{cls.__name__}.start",
            statuses={
                "pending": pending_status,
                "in_progress": in_progress_status,
                "failed": failed_status,
                "succeeded": succeeded_status,
                "ignored": ignored_status,
            },
            more_pending=more_pending_status,
            expire=expire,
            max_retry=max_retry,
            traceback_stack_limit=traceback_stack_limit,
            skip_error=skip_error,
            debug=debug,
        )
        return Work(engine, table, rules, table.read_id(id))

    @classmethod
    def query_by_status(
        cls: type[J],
        engine_or_session: Target,
        status: int | list[int] | tuple[int, ...],
        limit: int | None = 10,
        older_task_first: bool = True,
    ) -> list[J]:
        """Return up to `limit` jobs with one or several statuses, by the time of their last update."""
        table = Table.of(cls)
        codes = read_statuses(status, f"{cls.__name__}: status")
        order = [table.column("update_at"), *(table.column(part) for part in table.key)]
        statement = select(cls).where(table.column("status").in_(codes)).limit(limit)
        statement = statement.order_by(*(one if older_task_first else one.desc() for one in order))
        return run(engine_or_session, lambda session: list(session.execute(statement).scalars()))


class BackoffMixin:
    """A column beside JobMixin's that makes failed jobs wait before the next attempt."""

    retry_at: Mapped[datetime | None] = mapped_column(_TIME, default=None)
