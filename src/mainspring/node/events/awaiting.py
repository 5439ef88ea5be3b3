"""Await callbacks that are coroutine functions on behalf of code that cannot await.

Listeners, signals and middleware may be plain functions or coroutine functions. On an event loop, a coroutine is simply
awaited. Any other thread hands it to a loop: the loop of the caller that awaits this call (`app.aio`), else the
worker's loop, else one that this process keeps for the purpose.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeGuard

if TYPE_CHECKING:
    import asyncio

from mainspring.locks import free_in_children

__all__ = ["CALLER_LOOP", "Awaiter", "CallNext", "is_awaitable", "resolve"]

STEP_SECONDS: Final = 0.2
"""Wait in steps this long: a time-out cannot interrupt a thread that sleeps in C."""
MOST_UNFINISHED_CALLS: Final = 1000
"""Make the publishing thread wait a moment before the next event while this many listeners are unfinished."""
HELD_UP_SECONDS: Final = 1.0
"""Make the publishing thread wait for at most this long."""
JOIN_SECONDS: Final = 5.0
"""Wait for unfinished listeners for at most this long."""

CALLER_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("mainspring_caller_loop", default=None)
"""The loop on which a caller awaits the work of this thread."""

Outcome = tuple[Any, BaseException | None]

log = logging.getLogger("mainspring.events")


def is_awaitable(value: Any) -> TypeGuard[Awaitable[Any]]:
    """Return True if a callback returned something that must be awaited."""
    return value is not None and hasattr(value, "__await__")


async def resolve(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and await its result if it is a coroutine function."""
    value = func(*args, **kwargs)
    while is_awaitable(value):
        value = await value
    return value


class Awaiter:
    """Awaits the coroutines that the callbacks of one app or scheduler return."""

    def __init__(self, find_loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None) -> None:
        self._find_loop = find_loop
        self._unfinished: set[object] = set()
        self._lock = free_in_children(threading.RLock())
        self._changed = free_in_children(threading.Condition(self._lock))

    def finish(self, awaitable: Awaitable[Any], call_next: CallNext | None = None) -> Any:
        """Wait until an awaitable has ended on its loop; return its value or raise its exception.

        Meanwhile, this thread makes the calls that the awaitable requests through `call_next`.
        """
        events: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        if call_next is not None:
            call_next.requests = events
        future = self._start(awaitable)
        future.add_done_callback(lambda _: events.put(None))
        try:
            stopped = _serve(events)
        except BaseException:  # a time-out, or another exception raised in this thread
            future.cancel()
            raise
        value, error = future.result()
        if stopped is not None:
            raise stopped
        if error is not None:
            raise error
        return value

    def spawn(self, awaitable: Awaitable[Any], event: object) -> None:
        """Let a loop await a listener, and return at once: a listener must not hold up the publishing thread."""
        import asyncio

        running = asyncio._get_running_loop()
        with self._lock:
            if running is None:
                self._changed.wait_for(lambda: len(self._unfinished) < MOST_UNFINISHED_CALLS, HELD_UP_SECONDS)
            self._unfinished.add(awaitable)
        coroutine = self._listen(awaitable, event)
        if running is not None:
            running.create_task(coroutine)
        else:
            self._start(coroutine)

    async def _listen(self, awaitable: Awaitable[Any], event: object) -> None:
        try:
            await awaitable
        except BaseException as error:
            log.error("a listener failed at %r", event, exc_info=error)
        finally:
            with self._lock:
                self._unfinished.discard(awaitable)
                self._changed.notify_all()

    def join(self) -> None:
        """Wait a few seconds for unfinished listeners, unless this thread runs an event loop."""
        if not self._unfinished:
            return
        import asyncio

        if asyncio._get_running_loop() is not None:
            return
        with self._lock:
            if not self._changed.wait_for(lambda: not self._unfinished, JOIN_SECONDS):
                log.warning("%s listeners have not ended in %g s", len(self._unfinished), JOIN_SECONDS)

    def _start(self, awaitable: Awaitable[Any]) -> Future[Outcome]:
        import asyncio  # costs 40 ms, and only programs with coroutine functions need it

        outcome, here = _outcome(awaitable), asyncio._get_running_loop()
        for find in (CALLER_LOOP.get, self._find_loop, _background_loop):
            loop = find()
            if loop is None or not loop.is_running():
                continue
            if loop is here:  # this loop stands still while its thread waits
                break
            try:
                return asyncio.run_coroutine_threadsafe(outcome, loop)
            except RuntimeError:  # closed since we looked
                continue
        return _run_in_thread(outcome)


def _serve(events: queue.SimpleQueue[_Request | None]) -> BaseException | None:
    """Make the requested calls until there are no more; return an exit that one of them raised."""
    stopped = None
    while True:
        try:
            request = events.get(timeout=STEP_SECONDS)
        except queue.Empty:
            continue
        if request is None:
            return stopped
        stopped = request.serve() or stopped
        if stopped is not None:
            # Inside an event loop an exit would end the loop, so the middleware sees a cancellation.
            request.cancel()


class CallNext:
    """The `call_next` of middleware around a plain function.

    In the run's thread, it calls the function. On an event loop, it returns an awaitable, and the run's thread makes
    the call. So a plain function never blocks the loop, and a time-out can interrupt it in the run's thread.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self._thread = call, threading.get_ident()
        self.requests: queue.SimpleQueue[_Request | None] | None = None

    def __call__(self) -> Any:
        """Call the next layer, or return an awaitable of its result."""
        return self._call() if threading.get_ident() == self._thread else self._ask()

    async def _ask(self) -> Any:
        import asyncio

        if self.requests is None:
            raise RuntimeError(
                "a function that is not a coroutine function called call_next() outside the thread of its run"
            )
        loop = asyncio.get_running_loop()
        request = _Request(self._call, loop, loop.create_future(), asyncio.current_task())
        self.requests.put(request)
        return await request.answer


class _Request:
    """A call that a coroutine on an event loop asks the run's thread to make."""

    def __init__(
        self,
        call: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
        task: asyncio.Task[Any] | None,
    ) -> None:
        self._call, self._loop, self.answer, self._task = call, loop, answer, task

    def serve(self) -> BaseException | None:
        """Make the call and pass on its result; return an exception that must not be raised inside an event loop."""
        value: Any = None
        error: Exception | None = None
        try:
            value = self._call()
        except StopIteration as stop:  # a future cannot hold a StopIteration
            error = RuntimeError(f"the task raised {stop!r}")
            error.__cause__ = stop
        except Exception as raised:
            error = raised
        except BaseException as stopped:
            return stopped
        self._loop.call_soon_threadsafe(self._answer, value, error)
        return None

    def cancel(self) -> None:
        """Cancel the coroutine that asked."""
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _answer(self, value: Any, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)


async def _outcome(awaitable: Awaitable[Any]) -> Outcome:
    """Await something without raising: a SystemExit would end the loop."""
    try:
        value: Any = awaitable
        while is_awaitable(value):
            value = await value
        return value, None
    except BaseException as error:
        return None, error


def _run_in_thread(coroutine: Coroutine[Any, Any, Outcome]) -> Future[Outcome]:
    """Run a coroutine to its end in a new thread, on a new loop."""
    import asyncio

    future: Future[Outcome] = Future()
    context = copy_context()

    def run() -> None:
        future.set_result(context.run(asyncio.run, coroutine))

    threading.Thread(target=run, name="mainspring-callback", daemon=True).start()
    return future


_background: tuple[int, asyncio.AbstractEventLoop] | None = None
_background_lock = free_in_children(threading.Lock())


def _background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that this process keeps for callbacks; a forked child makes its own."""
    global _background
    import asyncio

    with _background_lock:
        if _background is None or _background[0] != os.getpid():
            started: Future[asyncio.AbstractEventLoop] = Future()

            async def serve() -> None:
                started.set_result(asyncio.get_running_loop())
                await asyncio.Event().wait()

            threading.Thread(target=lambda: asyncio.run(serve()), name="mainspring-callbacks", daemon=True).start()
            _background = os.getpid(), started.result()
        return _background[1]
