"""`app.aio`: the app's verbs for async code. One decorator over a small thread pool keeps every signature and type."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from mainspring.app import Mainspring
from mainspring.app.declaring.task import TaskCall
from mainspring.app.flows.flow import Flow
from mainspring.app.handle import RunHandle
from mainspring.core.job import Job
from mainspring.core.run import Status
from mainspring.core.showing.run_view import RunView
from mainspring.errors import RunCancelled, RunFailed
from mainspring.jobstores.base import QueueInfo
from mainspring.node.events.awaiting import CALLER_LOOP

if TYPE_CHECKING:
    from mainspring.app.enqueuing.transactions import AsyncWithin

__all__ = ["AsyncFace", "AsyncFlow"]

P = ParamSpec("P")
R = TypeVar("R")


def _awaitable(
    verb: Callable[Concatenate[Mainspring, P], R],
) -> Callable[Concatenate[AsyncFace, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def call(self: AsyncFace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        context.run(CALLER_LOOP.set, loop)  # listeners that are coroutine functions run on this loop
        work: Callable[[], R] = functools.partial(context.run, verb, self._app, *args, **kwargs)
        return await self._off_loop(work)  # type: ignore[no-any-return]

    return call


def _threads(pool: ThreadPoolExecutor) -> Callable[[Callable[[], Any]], Awaitable[Any]]:
    """Return a function that makes blocking calls on the threads of a pool."""
    return lambda work: asyncio.get_running_loop().run_in_executor(pool, work)


def _jobs(app: Mainspring) -> list[Job]:
    """Return all jobs by next run time, paused ones last."""
    return app.jobs()


def _queues(app: Mainspring) -> list[QueueInfo]:
    """Return the queues that hold unfinished runs, are paused, or are declared by this app."""
    return app.queues()


def _gather(app: Mainspring, calls: Iterable[TaskCall[Any]], return_exceptions: bool) -> RunHandle[list[Any]]:
    return app.gather(calls, return_exceptions=return_exceptions)


def _on_flow(app: Mainspring, verb: Callable[[], R]) -> R:
    """Call a verb of a flow; `_awaitable` passes the app, which the verb does not need."""
    return verb()


class AsyncFlow:
    """A flow for async code: the same calls and verbs, awaitable where they use the store."""

    def __init__(self, face: AsyncFace, flow: Flow) -> None:
        self._face, self._flow = face, flow

    @property
    def id(self) -> str:
        """The flow's id."""
        return self._flow.id

    @property
    def known(self) -> bool:
        """Whether the store already had the flow, by its name or by the unique key of its first call."""
        return self._flow.known

    def add(self, call: TaskCall[R], *, after: Any = None, on: str = "success") -> RunHandle[R]:
        """Add a call, as `Flow.add` does."""
        return self._flow.add(call, after=after, on=on)

    def signal(self, name: str) -> RunHandle[Any]:
        """Add a signal, as `Flow.signal` does."""
        return self._flow.signal(name)

    async def __aenter__(self) -> Self:
        self._flow.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._face.on_flow(functools.partial(self._flow.__exit__, kind, error, trace))

    async def runs(self) -> list[RunView]:
        """Return the runs of the flow that the store still has, in the order in which they were added."""
        return await self._face.on_flow(lambda: self._flow.runs)

    async def wait(self, timeout: float | None = None) -> list[RunView]:
        """Wait until all runs of the flow have ended in any way; return them, or raise TimeoutError."""
        ids = await self._face.on_flow(self._flow.ids)
        return await self._face.wait(ids, timeout)

    async def counts(self) -> dict[Status, int]:
        """Return the number of runs of the flow in each status, including joins."""
        return await self._face.on_flow(self._flow.counts)

    async def status(self) -> Status:
        """Return the status of the whole flow, as `Flow.status` does."""
        return await self._face.on_flow(self._flow.status)

    async def cancel(self) -> int:
        """Cancel all unfinished runs of the flow, and stop those that run; return how many there were."""
        return await self._face.on_flow(self._flow.cancel)

    async def retry(self) -> int:
        """Send back all runs of the flow that failed or were cancelled; return how many."""
        return await self._face.on_flow(self._flow.retry)


class AsyncFace:
    """The verbs of an app for async code."""

    def __init__(self, app: Mainspring, off_loop: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None) -> None:
        self._app = app
        self._off_loop = off_loop or _threads(ThreadPoolExecutor(4, "mainspring-aio"))
        self.pid = os.getpid()

    @overload
    async def enqueue(self, func: str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]: ...

    @overload
    async def enqueue(
        self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...

    @overload
    async def enqueue(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...

    async def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Enqueue a call of a task, or of any importable callable."""
        return await self.enqueue_call(self._app.as_task(func).call(*args, **kwargs))

    def within(self, target: Any) -> AsyncWithin:
        """Return the verbs that enqueue inside the transaction of an AsyncSession or AsyncConnection."""
        from mainspring.app.enqueuing.transactions import AsyncWithin  # slow: it imports SQLAlchemy's ORM

        return AsyncWithin(self._app, target)

    async def wait(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait until all these runs have ended in any way; return them, or raise TimeoutError."""
        return await self._app.runs.wait_async(handles, timeout)

    def lifespan(self, work: bool = False, **options: Any) -> Callable[..., AbstractAsyncContextManager[None]]:
        """Return a lifespan for an ASGI framework: `FastAPI(lifespan=app.aio.lifespan(work=True))`.

        The lifespan starts and stops the app together with the web process. It takes the options of `start`.
        """

        @asynccontextmanager
        async def live(web: object = None) -> AsyncIterator[None]:
            await self._app.aio.start(work, **options)  # not `self`: a server may have forked since
            try:
                yield
            finally:
                await self._app.aio.close()

        return live

    enqueue_call = _awaitable(Mainspring.enqueue_call)
    enqueue_many = _awaitable(Mainspring.enqueue_many)

    @overload
    async def gather(
        self, calls: Iterable[TaskCall[R]], *, return_exceptions: Literal[False] = False
    ) -> RunHandle[list[R]]: ...

    @overload
    async def gather(
        self, calls: Iterable[TaskCall[R]], *, return_exceptions: bool
    ) -> RunHandle[list[R | RunFailed | RunCancelled]]: ...

    async def gather(self, calls: Iterable[TaskCall[Any]], *, return_exceptions: bool = False) -> RunHandle[list[Any]]:
        """Enqueue calls, and a run that comes after all of them and returns the list of their results."""
        return await self._gather(calls, return_exceptions)

    def flow(self, name: str | None = None, *, shard: str | None = None) -> AsyncFlow:
        """Make a flow: `async with app.aio.flow() as flow: flow.add(...)`."""
        return AsyncFlow(self, self._app.flow(name, shard=shard))

    async def get_flow(self, flow_id: str) -> AsyncFlow:
        """Return a flow by its id; raise RunNotFound."""
        return AsyncFlow(self, await self._get_flow(flow_id))

    _gather = _awaitable(_gather)
    _get_flow = _awaitable(Mainspring.get_flow)
    on_flow = _awaitable(_on_flow)
    chain = _awaitable(Mainspring.chain)
    signal = _awaitable(Mainspring.signal)
    get = _awaitable(Mainspring.get)
    find = _awaitable(Mainspring.find)
    count = _awaitable(Mainspring.count)
    cancel = _awaitable(Mainspring.cancel)
    search = _awaitable(Mainspring.search)
    count_up_to = _awaitable(Mainspring.count_up_to)
    recent = _awaitable(Mainspring.recent)
    retry = _awaitable(Mainspring.retry)
    again = _awaitable(Mainspring.again)
    move = _awaitable(Mainspring.move)
    postpone = _awaitable(Mainspring.postpone)
    prioritize = _awaitable(Mainspring.prioritize)
    delete = _awaitable(Mainspring.delete)
    add_job = _awaitable(Mainspring.add_job)
    jobs = _awaitable(_jobs)
    get_job = _awaitable(Mainspring.get_job)
    modify_job = _awaitable(Mainspring.modify_job)
    reschedule_job = _awaitable(Mainspring.reschedule_job)
    pause_job = _awaitable(Mainspring.pause_job)
    resume_job = _awaitable(Mainspring.resume_job)
    remove_job = _awaitable(Mainspring.remove_job)
    run_now = _awaitable(Mainspring.run_now)
    skip_next = _awaitable(Mainspring.skip_next)
    preview = _awaitable(Mainspring.preview)
    fires = _awaitable(Mainspring.fires)
    backfill = _awaitable(Mainspring.backfill)
    differences = _awaitable(Mainspring.differences)
    adopt = _awaitable(Mainspring.adopt)
    reconcile = _awaitable(Mainspring.reconcile)
    queues = _awaitable(_queues)
    pause_queue = _awaitable(Mainspring.pause_queue)
    resume_queue = _awaitable(Mainspring.resume_queue)
    limit_queue = _awaitable(Mainspring.limit_queue)
    set_limit = _awaitable(Mainspring.set_limit)
    limits = _awaitable(Mainspring.limits)
    purge = _awaitable(Mainspring.purge)
    explain = _awaitable(Mainspring.explain)
    story = _awaitable(Mainspring.story)
    health = _awaitable(Mainspring.health)
    healths = _awaitable(Mainspring.healths)
    audit = _awaitable(Mainspring.audit)
    simulate = _awaitable(Mainspring.simulate)
    mark = _awaitable(Mainspring.mark)
    marks = _awaitable(Mainspring.marks)
    errors = _awaitable(Mainspring.errors)
    error = _awaitable(Mainspring.error)
    metrics = _awaitable(Mainspring.metrics)
    task_figures = _awaitable(Mainspring.task_figures)
    store_figures = _awaitable(Mainspring.store_figures)
    lost_nodes = _awaitable(Mainspring.lost_nodes)
    eta = _awaitable(Mainspring.eta)
    flow_graph = _awaitable(Mainspring.flow_graph)
    flow_graphs = _awaitable(Mainspring.flow_graphs)
    apply = _awaitable(Mainspring.apply)
    bulk = _awaitable(Mainspring.bulk)
    stop_bulk = _awaitable(Mainspring.stop_bulk)
    changes = _awaitable(Mainspring.changes)
    nodes = _awaitable(Mainspring.nodes)
    quiet_node = _awaitable(Mainspring.quiet_node)
    resume_node = _awaitable(Mainspring.resume_node)
    stop_node = _awaitable(Mainspring.stop_node)
    counters = _awaitable(Mainspring.counters)
    broken = _awaitable(Mainspring.broken)
    restore = _awaitable(Mainspring.restore)
    discard = _awaitable(Mainspring.discard)
    move_to = _awaitable(Mainspring.move_to)
    start = _awaitable(Mainspring.start)
    stop = _awaitable(Mainspring.stop)
    close = _awaitable(Mainspring.close)
