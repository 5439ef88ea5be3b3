"""Functions that are called around enqueueing and executing: signals, middleware, error reporters."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mainspring.core.references import iscoroutinefunction_partial
from mainspring.executors.current_run import CURRENT, CurrentRun
from mainspring.executors.execution import mark_reported
from mainspring.node.events.awaiting import Awaiter, CallNext, is_awaitable, resolve

__all__ = ["SIGNALS", "Middleware", "error_reporters"]

SIGNALS: Final = ("pre_enqueue", "pre_execute", "post_execute", "post_spawn")
REPORTERS: Final = "mainspring.error_reporters"
_INNER: Final = "__mainspring_inner__"

log = logging.getLogger("mainspring.app")

Reporter = Callable[[BaseException, Any], object]


@functools.cache
def error_reporters() -> tuple[Reporter, ...]:
    """Return the error reporters; each takes the exception and the run, and returns False if it does nothing."""
    from importlib.metadata import entry_points

    found = []
    for point in entry_points(group=REPORTERS):
        try:
            found.append(point.load())
        except Exception as error:
            if point.extras and isinstance(error, ModuleNotFoundError):
                continue  # its extra is not installed
            log.exception("the error reporter %r cannot be loaded and is ignored", point.name)
    return tuple(dict.fromkeys(found))  # several packages may name the same reporter


class Middleware:
    """Middleware around every execution, outermost first, and listeners to signals. All may be coroutine functions."""

    def __init__(self, awaiter: Awaiter | None = None) -> None:
        self._awaiter = awaiter or Awaiter()
        self._around: list[Callable[..., Any]] = []
        self.signals: dict[str, list[Callable[..., Any]]] = {name: [] for name in SIGNALS}
        """The functions that listen to each signal."""

    def share(self, other: Middleware) -> None:
        """Share the functions and signals of another Middleware from now on."""
        self._awaiter, self._around, self.signals = other._awaiter, other._around, other.signals

    def add(self, func: Callable[..., Any]) -> None:
        """Add a function as the innermost middleware."""
        if not callable(func):
            raise TypeError(f"middleware is a function of (run, call_next), not {func!r}")
        self._around.append(func)

    def add_signal(self, name: str, callback: Callable[..., Any]) -> None:
        """Call a function at each occurrence of a signal."""
        if not callable(callback):
            raise TypeError(f"a listener must be callable, not {callback!r}")
        self.signals[name].append(callback)

    @property
    def needs_loop(self) -> bool:
        """Whether any of the functions is a coroutine function."""
        return any(map(iscoroutinefunction_partial, itertools.chain(self._around, *self.signals.values())))

    def emit(self, name: str, *args: Any) -> None:
        """Call the listeners. An error of a `pre_` listener prevents the act; other errors are only logged."""
        for callback in self.signals[name]:
            try:
                self._call(callback, *args)
            except Exception:
                if name.startswith("pre_"):
                    raise
                log.exception("a listener to %s failed", name)

    async def emit_async(self, name: str, *args: Any) -> None:
        """Do the same as `emit`, on this event loop."""
        for callback in self.signals[name]:
            try:
                await resolve(callback, *args)
            except Exception:
                if name.startswith("pre_"):
                    raise
                log.exception("a listener to %s failed", name)

    def around(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function inside all middleware, or the function itself if there is none."""
        func = getattr(func, _INNER, func)  # in memory, a retried run already has its function wrapped
        bare = not (self._around or self.signals["pre_execute"] or self.signals["post_execute"])
        if bare and not error_reporters():
            return func
        if iscoroutinefunction_partial(func):
            made = self._async_wrapper(func)
        else:
            made = self._reporting_wrapper(func) if bare else self._wrapper(func)
        setattr(made, _INNER, func)
        return made

    def _reporting_wrapper(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that reports its errors, for an app without middleware; its calls cost hardly more."""

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return func(*args, **kwargs)
            except BaseException as error:
                self.report(error, _current())
                raise

        return call

    def _wrapper(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            run = _current()
            self.emit("pre_execute", run)
            call_next: Callable[[], Any] = functools.partial(func, *args, **kwargs)
            for layer in reversed(self._around):
                call_next = functools.partial(self._pass_through, layer, run, call_next)
            try:
                value = call_next()
            except BaseException as error:
                self.emit("post_execute", run, None, error)
                self.report(error, run)
                raise
            self.emit("post_execute", run, value, None)
            return value

        return call

    def _async_wrapper(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        async def call(*args: Any, **kwargs: Any) -> Any:
            run = _current()
            if self.signals["pre_execute"]:
                await self.emit_async("pre_execute", run)
            call_next: Callable[[], Any] = functools.partial(resolve, func, *args, **kwargs)
            for layer in reversed(self._around):
                call_next = functools.partial(resolve, layer, run, call_next)
            try:
                value = await call_next()
            except BaseException as error:
                await self.emit_async("post_execute", run, None, error)
                for report in error_reporters():
                    with _reporting(error) as reported:
                        reported(await resolve(report, error, run))
                raise
            if self.signals["post_execute"]:
                await self.emit_async("post_execute", run, value, None)
            return value

        return call

    def report(self, error: BaseException, run: CurrentRun | None) -> None:
        """Pass a failure to the error reporters."""
        for report in error_reporters():
            with _reporting(error) as reported:
                reported(self._call(report, error, run))

    def _pass_through(self, layer: Callable[..., Any], run: CurrentRun | None, call: Callable[[], Any]) -> Any:
        """Call one layer of middleware around a plain function."""
        call_next = CallNext(call)
        value = layer(run, call_next)
        return self._awaiter.finish(value, call_next) if is_awaitable(value) else value

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        value = callback(*args)
        return self._awaiter.finish(value) if is_awaitable(value) else value


@contextmanager
def _reporting(error: BaseException) -> Iterator[Callable[[Any], None]]:
    def reported(answer: Any) -> None:
        if answer is not False:  # a reporter that is not set up returns False
            mark_reported(error)

    try:
        yield reported
    except Exception:
        log.exception("an error reporter failed")


def _current() -> CurrentRun | None:
    found = CURRENT.get()
    return None if found is None else CurrentRun(*found)
