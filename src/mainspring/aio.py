"""`app.aio`: the app's verbs, awaitable. One decorator over a small thread pool keeps every signature and its types."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from mainspring.app import Mainspring
from mainspring.app.handle import RunHandle
from mainspring.core.job import Job
from mainspring.core.run_view import RunView
from mainspring.jobstores.base import QueueInfo
from mainspring.node.awaiting import CALLER_LOOP

__all__ = ["AsyncFace"]

P = ParamSpec("P")
R = TypeVar("R")


def _awaitable(
    verb: Callable[Concatenate[Mainspring, P], R],
) -> Callable[Concatenate[AsyncFace, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def call(self: AsyncFace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        context.run(CALLER_LOOP.set, loop)  # coroutine functions that listen are awaited here, not there
        return await loop.run_in_executor(
            self._threads, functools.partial(context.run, verb, self._app, *args, **kwargs)
        )

    return call


def _jobs(app: Mainspring) -> list[Job]:
    """Return all jobs by next run time, paused ones last."""
    return app.jobs()


def _queues(app: Mainspring) -> list[QueueInfo]:
    """Return the queues that hold unfinished runs, are paused, or are declared by this app."""
    return app.queues()


class AsyncFace:
    """The verbs of an app for async code."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(4, "mainspring-aio")
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

    async def wait(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait until all these runs have ended, however they did; raise TimeoutError."""
        return await self._app.runs.wait_async(handles, timeout)

    enqueue_call = _awaitable(Mainspring.enqueue_call)
    enqueue_many = _awaitable(Mainspring.enqueue_many)
    chain = _awaitable(Mainspring.chain)
    gather = _awaitable(Mainspring.gather)
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
    eta = _awaitable(Mainspring.eta)
    flow = _awaitable(Mainspring.flow)
    flows = _awaitable(Mainspring.flows)
    apply = _awaitable(Mainspring.apply)
    bulk = _awaitable(Mainspring.bulk)
    stop_bulk = _awaitable(Mainspring.stop_bulk)
    changes = _awaitable(Mainspring.changes)
    nodes = _awaitable(Mainspring.nodes)
    counters = _awaitable(Mainspring.counters)
    broken = _awaitable(Mainspring.broken)
    restore = _awaitable(Mainspring.restore)
    discard = _awaitable(Mainspring.discard)
    start = _awaitable(Mainspring.start)
    stop = _awaitable(Mainspring.stop)
    close = _awaitable(Mainspring.close)
