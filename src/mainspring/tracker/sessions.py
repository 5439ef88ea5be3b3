"""Run a step, written once over a Session, on the user's engine or session, sync or async."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.orm import Session, scoped_session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

__all__ = ["AsyncTarget", "Target", "apart", "committed", "is_async", "is_refusal", "run", "run_async"]

T = TypeVar("T")
Target = Engine | Session | scoped_session[Session]
AsyncTarget: TypeAlias = "AsyncEngine | AsyncSession"
Step = Callable[[Session], T]

COLLISION_TRIES: Final = 8
"""The number of tries for a step that collides with other transactions."""
COLLISION_CODES: Final = frozenset({"40001", "40P01", 1020, 1213})
"""Serialization failures and deadlocks of PostgreSQL and MariaDB: the transaction was undone, nothing else is wrong."""

OWN_SESSION: Final = {"own": True}


def is_async(target: Any) -> bool:
    """Return True if the target needs `async with`; raise TypeError if it is not a target."""
    if isinstance(target, Engine | Session | scoped_session):
        return False
    if isinstance(target, _async_kinds()):
        return True
    hint = "; make one with sqlalchemy.create_engine(...)" if isinstance(target, str) else ""
    raise TypeError(f"the tracker takes an Engine or a Session (or their async kinds), not {target!r}{hint}")


@cache
def _async_kinds() -> tuple[type, ...]:
    """Return the async kinds; empty without greenlet, since SQLAlchemy cannot make one without it."""
    try:
        from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    except ImportError:
        return ()
    return (AsyncEngine, AsyncSession)


def run(target: Any, step: Step[T]) -> T:
    """Run a step, which commits its work, in a new session for an engine, or else in the given session."""
    if is_async(target):
        raise TypeError(
            f"{type(target).__name__} cannot be used here; in async code use `async with Tracker.start(...)`, "
            "or `await session.run_sync(lambda session: ...)` for the other calls"
        )
    if not isinstance(target, Engine):
        return step(target() if isinstance(target, scoped_session) else target)
    with Session(target, expire_on_commit=False, info=OWN_SESSION) as session:
        return step(session)


async def run_async(target: Any, step: Step[T]) -> T:
    """Run a step on an AsyncEngine or an AsyncSession."""
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    if not isinstance(target, AsyncEngine):
        return await target.run_sync(step)  # type: ignore[no-any-return]
    async with AsyncSession(target, expire_on_commit=False, info=OWN_SESSION) as session:
        return await session.run_sync(step)


def apart(target: Any, job_class: type) -> Any:
    """Return an engine for new sessions that are independent of the given session's transaction."""
    if not is_async(target):
        return target if isinstance(target, Engine) else _engine_of(target, job_class)
    from sqlalchemy.ext.asyncio import AsyncEngine

    return target if isinstance(target, AsyncEngine) else AsyncEngine(_engine_of(target.sync_session, job_class))


def _engine_of(session: Any, job_class: type) -> Engine:
    bind: Engine | Connection = session.get_bind(job_class)
    return bind.engine


def committed(session: Session, step: Step[T]) -> T:
    """Run a step and commit it; repeat it after a collision, unless that would undo the user's work."""
    for attempt in range(COLLISION_TRIES):
        try:
            result = step(session)
            session.commit()
            return result
        except BaseException as error:
            session.rollback()
            if not (session.info.get("own") and _collided(error) and attempt < COLLISION_TRIES - 1):
                raise
    raise AssertionError("unreachable")


def is_refusal(error: BaseException) -> bool:
    """Return True if the database or its driver refused a value rather than a row."""
    if isinstance(error, DBAPIError):
        return isinstance(error, DataError | ProgrammingError | InterfaceError | NotSupportedError)
    # psycopg does not wrap the TypeError of the JSON encoder.
    return isinstance(error, StatementError | TypeError | ValueError)


def _collided(error: BaseException) -> bool:
    driver = error.orig if isinstance(error, DBAPIError) else None
    if driver is None:
        return False
    first = driver.args[0] if driver.args else None
    if isinstance(first, dict):  # pg8000; PyMySQL has a number here, psycopg and psycopg2 an attribute
        first = first.get("C")
    codes = (getattr(driver, "sqlstate", None), getattr(driver, "pgcode", None), first)
    return any(isinstance(code, str | int) and code in COLLISION_CODES for code in codes)
