"""The life of a worker process: functions called at its start and stop, and resources kept open in between."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mainspring.app.declaring.dependencies import Provider, enter_async, opened
from mainspring.core.references import get_callable_name, iscoroutinefunction_partial
from mainspring.node.events.awaiting import Awaiter, is_awaitable

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

__all__ = ["Lifespan"]

CLOSE_SECONDS: Final = 10.0
"""Wait this long for resources of the event loop to close."""

log = logging.getLogger("mainspring.app")


class Lifespan:
    """Opens the resources of one app's tasks when this process starts to work, and closes them in reverse order."""

    def __init__(self, awaiter: Awaiter) -> None:
        self._awaiter = awaiter
        self._starting: list[Callable[[], Any]] = []
        self._stopping: list[Callable[[], Any]] = []
        self._resources: dict[Callable[..., Any], Provider] = {}
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._stack: ExitStack | None = None
        self._values: dict[Callable[..., Any], Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: LoopResources | None = None
        self._started = False

    def add(self, providers: Iterable[Provider]) -> None:
        """Add the resources among some providers and the providers that they need."""
        for each in providers:
            self.add(each.needs.values())
            if each.is_resource:
                self._resources.setdefault(each.func, each)

    def on_start(self, func: Callable[[], Any]) -> None:
        """Call a function when a worker starts."""
        self._starting.append(_callable(func))

    def on_stop(self, func: Callable[[], Any]) -> None:
        """Call a function when a worker stops; the function added last is called first."""
        self._stopping.append(_callable(func))

    @property
    def needs_loop(self) -> bool:
        """Whether any function or resource here is a coroutine function."""
        return any(map(iscoroutinefunction_partial, (*self._starting, *self._stopping)))

    # -- the worker ------------------------------------------------------------------------------------------------

    def open(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call the functions, then open the resources; coroutines run on the worker's loop."""
        self._check_process()
        for func in self._starting:
            self._call(func)
        for each in self._resources.values():
            if not each.is_async:
                self.get(each)
        held = [each for each in self._resources.values() if each.is_async]
        if held and loop is not None:
            self._loop, self._keeper = loop, LoopResources(loop, held, self)
            self._values |= self._keeper.open()
        self._started = True

    def close(self) -> None:
        """Close the resources that are open in this process; errors are logged."""
        if self._pid != os.getpid():  # the resources belong to the process that forked this one
            return self._forget()
        with self._lock:
            keeper, stack = self._keeper, self._stack
            self._keeper = self._stack = self._loop = None
            self._values.clear()
        for close in (None if keeper is None else keeper.close, None if stack is None else stack.close):
            if close is not None:
                _logged(close, "a resource of the worker did not close")
        atexit.unregister(self.close)

    def stop(self) -> None:
        """Close the resources at the end of a worker, then call the functions."""
        self.close()
        started, self._started = self._started, False
        for func in reversed(self._stopping) if started else ():
            _logged(partial(self._call, func), f"{get_callable_name(func)} failed at the stop of the worker")

    # -- resources -------------------------------------------------------------------------------------------------

    def get(self, provider: Provider) -> Any:
        """Return a resource; open it if this process has not yet, for example in a process for a single run."""
        self._check_process()
        if provider.func in self._values:
            return self._values[provider.func]
        with self._lock:
            if provider.func not in self._values:
                if self._stack is None:
                    self._stack = ExitStack()
                    atexit.register(self.close)
                needs = {name: self.get(each) for name, each in provider.needs.items()}
                self._values[provider.func] = opened(provider, self._stack, needs)
            return self._values[provider.func]

    def holds(self, provider: Provider) -> bool:
        """Return True if a resource is open on the event loop of the caller."""
        import asyncio

        return self._loop is asyncio.get_running_loop() and provider.func in self._values

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # a fork copied the resources, and two processes cannot share a connection
            self._forget()

    def _call(self, func: Callable[[], Any]) -> None:
        value = func()
        if is_awaitable(value):
            self._awaiter.finish(value)


class LoopResources:
    """Resources of an event loop. The same asyncio task opens and closes them, because cancel scopes require that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, providers: list[Provider], lifespan: Lifespan) -> None:
        self._loop, self._providers, self._lifespan = loop, providers, lifespan
        self._done: Future[None] | None = None
        self._end: asyncio.Event | None = None

    def open(self) -> dict[Callable[..., Any], Any]:
        """Open all resources; raise the error of the first that fails."""
        import asyncio
        from concurrent.futures import Future

        ready: Future[dict[Callable[..., Any], Any]] = Future()
        self._done = asyncio.run_coroutine_threadsafe(self._live(ready), self._loop)
        return ready.result()

    async def _live(self, ready: Future[dict[Callable[..., Any], Any]]) -> None:
        import asyncio

        self._end = asyncio.Event()
        async with AsyncExitStack() as stack:
            values: dict[Callable[..., Any], Any] = {}
            try:
                for each in self._providers:
                    await enter_async(each, stack, values, self._lifespan)
            except BaseException as error:
                ready.set_exception(error)
                return
            ready.set_result(values)
            await self._end.wait()

    def close(self) -> None:
        """Close all resources, if the loop still runs."""
        if self._loop.is_running() and self._end is not None and self._done is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._done.result(CLOSE_SECONDS)


def _callable(func: Any) -> Callable[[], Any]:
    if not callable(func):
        raise TypeError(f"a worker calls a function, not {func!r}")
    return func  # type: ignore[no-any-return]


def _logged(act: Callable[[], Any], complaint: str) -> None:
    try:
        act()
    except Exception:
        log.exception(complaint)
