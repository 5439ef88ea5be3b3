"""Enqueue inside a user's transaction (`app.within(session)`), or just after it (`app.after_commit(session)`)."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from mainspring.app.declaring.task import TaskCall
from mainspring.app.enqueuing.enqueue import Calls, check_call
from mainspring.app.flows.flow import Flow, Flows
from mainspring.app.flows.shapes import Shapes
from mainspring.app.flows.storing import FlowWriter
from mainspring.app.handle import RunHandle
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import Answers, JobStore
from mainspring.node.events.run_events import RunEvents

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore

__all__ = ["AfterCommit", "AsyncWithin", "TransactionStore", "Within"]

P = ParamSpec("P")
R = TypeVar("R")

HAND_OVER_DELAY_SECONDS = 0.01
"""Wait this long before acting on a commit: SQLAlchemy announces a connection's commit just before it happens."""


class TransactionStore:
    """The part of a store that enqueuing needs, inside a transaction."""

    remote = False

    def __init__(self, store: JobStore, add: Callable[[Sequence[Any]], Answers[str | None]]) -> None:
        self.pack_run, self.pack_like = store.pack_run, store.pack_like
        self.volatile, self.keeps_objects = store.volatile, store.keeps_objects
        self.add_runs, self.standings, self.after_commit = add, store.standings, store.after_commit
        self.far_edges = store.far_edges


class Within:
    """The verbs that enqueue inside one transaction: the runs exist if and only if it commits."""

    def __init__(self, app_store: AppStore, calls: Calls, tasks: Registry, target: Session | Connection) -> None:
        self._app_store, self._tasks = app_store, tasks
        self._target = target() if isinstance(target, scoped_session) else target
        if not isinstance(self._target, Session | Connection):
            raise TypeError(f"within() takes a SQLAlchemy Session or Connection, not {target!r}{_hint(target)}")
        shared = copy.copy(app_store)
        shared.opened = cast(JobStore, TransactionStore(app_store.lasting, self._add))
        shared.transactions = None
        shared.link, shared.events = None, RunEvents()  # the runs may be rolled back: wake no node, publish no event
        self._calls = calls.over(shared)
        writer = FlowWriter(shared, self._calls, atomic=True)
        self._shapes = Shapes(shared, self._calls, writer)
        self._flows = Flows(shared, self._calls, writer, lambda: calls.runs)

    def enqueue(self, func: Callable[P, R] | str, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Enqueue a call of a task, or of any importable callable."""
        return self._calls.enqueue_one(TaskCall(self._tasks.resolve(func), args, kwargs))

    def enqueue_call(self, call: TaskCall[R]) -> RunHandle[R]:
        """Enqueue a call made by `task.call(...)`."""
        return self._calls.enqueue_one(check_call(call))

    def enqueue_many(self, calls: Iterable[TaskCall[R]]) -> list[RunHandle[R]]:
        """Enqueue many calls."""
        return self._calls.enqueue(calls)

    def chain(self, calls: Sequence[TaskCall[Any]], *, group: str | None = None) -> list[RunHandle[Any]]:
        """Enqueue calls that run one after another, each once the one before has succeeded."""
        return self._shapes.chain(calls, group)

    def gather(self, calls: Iterable[TaskCall[R]], *, return_exceptions: bool = False) -> RunHandle[list[R]]:
        """Enqueue calls, and a run that returns the list of their results."""
        return self._shapes.gather(calls, return_exceptions)

    def flow(self, name: str | None = None) -> Flow:
        """Make a flow of any size, which is stored when its block ends."""
        return self._flows.new(name)

    def _add(self, runs: Sequence[Any]) -> Answers[str | None]:
        shared, target = self._app_store, self._target
        connection = target.connection() if isinstance(target, Session) else target
        if shared.outbox is None:
            return shared.lasting.add_runs_within(target, connection, runs, shared.now())
        ids = [run.id for run in runs]
        if any(run.unique is not None for run in runs):
            raise ValueError(
                "unique= cannot be given inside a transaction with an outbox: only the store knows the keys"
            )
        outbox, store = shared.outbox, shared.lasting
        outbox.add(connection, runs, shared.now())
        _after_commit(target, lambda: outbox.hand_over(store, ids))
        return Answers(ids)


class AfterCommit:
    """Enqueues after a session has committed. If the process dies just after the commit, the call is lost."""

    def __init__(self, app: Mainspring, session: Session) -> None:
        self._app = app
        self._session = session() if isinstance(session, scoped_session) else getattr(session, "sync_session", session)
        if not isinstance(self._session, Session):
            raise TypeError(f"after_commit() takes a SQLAlchemy Session, not {session!r}")

    def enqueue(self, func: Callable[P, R] | str, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Enqueue a call of a task once the session has committed; after a rollback, do nothing."""
        self.enqueue_call(TaskCall(self._app.tasks.resolve(func), args, kwargs))

    def enqueue_call(self, call: TaskCall[Any]) -> None:
        """Enqueue a call made by `task.call(...)` once the session has committed."""
        self._app.calls.check(call)  # raise now, not when the transaction is over
        session, done = self._session, threading.Event()

        def forget(session: Session, *_: object) -> None:
            done.set()

        def send(session: Session) -> None:
            if not done.is_set():
                done.set()
                _outside_loops(lambda: self._app.enqueue_call(call))

        event.listen(session, "after_commit", send, once=True)
        event.listen(session, "after_rollback", forget, once=True)


class AsyncWithin:
    """The verbs of `Within` as coroutines, for an AsyncSession or AsyncConnection."""

    def __init__(self, app: Mainspring, target: Any) -> None:
        self._app, self._target = app, target
        if not hasattr(target, "run_sync"):
            raise TypeError(f"aio.within() takes a SQLAlchemy AsyncSession or AsyncConnection, not {target!r}")

    async def enqueue(self, func: Callable[P, R] | str, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Enqueue a call of a task, or of any importable callable."""
        return await self._do(lambda within: within.enqueue(func, *args, **kwargs))

    async def enqueue_call(self, call: TaskCall[R]) -> RunHandle[R]:
        """Enqueue a call made by `task.call(...)`."""
        return await self._do(lambda within: within.enqueue_call(call))

    async def enqueue_many(self, calls: Iterable[TaskCall[R]]) -> list[RunHandle[R]]:
        """Enqueue many calls."""
        return await self._do(lambda within: within.enqueue_many(calls))

    async def chain(self, calls: Sequence[TaskCall[Any]], *, group: str | None = None) -> list[RunHandle[Any]]:
        """Enqueue calls that run one after another, each once the one before has succeeded."""
        return await self._do(lambda within: within.chain(calls, group=group))

    async def gather(self, calls: Iterable[TaskCall[R]], *, return_exceptions: bool = False) -> RunHandle[list[R]]:
        """Enqueue calls, and a run that returns the list of their results."""
        return await self._do(lambda within: within.gather(calls, return_exceptions=return_exceptions))

    async def _do(self, work: Callable[[Within], R]) -> R:
        # Open the store and read its clock on a thread, so that the loop does not wait for a server.
        await asyncio.to_thread(self._app.now)
        return cast(R, await self._target.run_sync(lambda target: work(self._app.within(target))))


def _after_commit(target: Session | Connection, work: Callable[[], object]) -> None:
    """Call a function once a transaction has committed."""
    if isinstance(target, Session):
        event.listen(target, "after_commit", lambda session: _outside_loops(work), once=True)
    else:
        event.listen(target, "commit", lambda connection: _later(work, HAND_OVER_DELAY_SECONDS), once=True)


def _outside_loops(work: Callable[[], object]) -> None:
    """Call a function here, or on another thread if this one runs an event loop, which must not wait for a server."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        _later(work, 0.0)


def _later(work: Callable[[], object], seconds: float) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


def _hint(target: object) -> str:
    if hasattr(target, "run_sync"):
        return "; in async code write: await app.aio.within(session).enqueue(...)"
    if hasattr(target, "connect"):
        return "; begin a transaction first: with engine.begin() as connection: ..."
    return ""


def outbox_of(engine: Any, name: str) -> Any:
    """Return the outbox in a database; raise ConfigurationError for anything but an engine."""
    from mainspring.jobstores.sqlalchemy.joining.outbox import Outbox

    if not name.isidentifier():
        raise ConfigurationError(f"an app with an outbox needs a name that can name a table, not {name!r}")
    return Outbox(engine, name)
