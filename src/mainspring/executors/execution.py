"""Turn the end of an execution into a report, in the same way for every executor."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Final

from mainspring.core.references import get_callable_name
from mainspring.core.run import Error, Report, Result, Run, describe
from mainspring.errors import RunTimeout
from mainspring.events import EVENT_RUN_STUCK

__all__ = [
    "Item",
    "MayStart",
    "OneTimeRight",
    "Reporter",
    "StopReason",
    "announce_stuck",
    "failed",
    "give_back",
    "is_reported",
    "mark_reported",
    "may_always_start",
    "may_end_now",
    "record",
    "shown",
    "starts",
    "stopped",
    "tell",
    "trim",
]

Reporter = Callable[[Report], None]
Notify = Callable[[int, Run, str], None]
MayStart = Callable[[Run], Result | None]
"""A function that returns why a run must no longer start, by the clock of its store, or None if it may start."""
Item = tuple[Run, Reporter, int, MayStart]
"""A run that an executor holds: the run, its reporter, when it was submitted, and the check before its start."""

_SUSPENDABLE: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MOST_EXCEPTIONS: Final = 100
_REPORTED: Final = "__mainspring_reported__"


class StopReason(Enum):
    """Why an executor stopped a run."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"


class OneTimeRight:
    """A right that only the first caller gets, from any thread."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = [True]

    def claim(self) -> bool:
        """Return True for the first caller, False for all others."""
        try:
            return self._left.pop()
        except IndexError:
            return False


def failed(run: Run, error: BaseException, started: int, finished: int) -> Report:
    """Make the report of a run that raised; never raise, even if the methods of the exception do."""
    trim(error)
    report = Report(run, Result.RAISED, None, error, record(error, finished, run.attempt), started, finished)
    _release(error)
    return report


def stopped(run: Run, stop: StopReason, error: BaseException | None, started: int, finished: int) -> Report:
    """Make the report of a run that was stopped; `error` is the exception that the stop raised in it."""
    if stop is StopReason.CANCEL:
        if error is not None:
            _release(error)
        return Report(run, Result.CANCELLED, None, None, None, started, finished)
    timeout = RunTimeout(run.policy.timeout)
    if error is not None:
        timeout.__traceback__ = trim(error)
        if is_reported(error):
            mark_reported(timeout)
    return failed(run, timeout, started, finished)


def may_always_start(run: Run) -> None:
    """Let any run start, for a caller without a store."""


def starts(item: Item, logger: logging.Logger) -> bool:
    """Return True if a run may start now; report it if it may not."""
    run, report, _, may_start = item
    refusal = may_start(run)
    if refusal is None:
        return True
    tell(report, Report(run, refusal), logger)
    return False


def give_back(items: Iterable[Item], logger: logging.Logger) -> None:
    """Report these runs as unstarted."""
    for item in items:
        tell(item[1], Report(item[0], Result.UNSTARTED), logger)


def tell(report: Reporter, message: Report, logger: logging.Logger) -> None:
    """Send a report; log an exception of the receiver, which must not harm the sender."""
    try:
        report(message)
    except BaseException:
        logger.exception("reporting run %s (%s) failed", message.run.id, message.result)


def announce_stuck(run: Run, stop: StopReason, where: str, stack: str, notify: Notify, logger: logging.Logger) -> None:
    """Log, and publish as an event, that a run did not end when it was stopped and that its slot is lost."""
    when = "when it was cancelled" if stop is StopReason.CANCEL else f"at its time-out of {run.policy.timeout:g} s"
    text = f"{shown(run)} did not end {when}; {where} is stuck"
    logger.error("%s%s", text, f":\n{stack}" if stack else "")
    try:
        notify(EVENT_RUN_STUCK, run, text)
    except BaseException:
        logger.exception("the listener for stuck runs failed")


def shown(run: Run) -> str:
    """Name a run and its function."""
    func = run.call.func
    return f"run {run.id} of {func if isinstance(func, str) else get_callable_name(func)}"


def may_end_now(run: Run, stop: StopReason) -> bool:
    """Return True if a run that goes on after it was stopped may be reported now, because nothing will restart it."""
    return stop is StopReason.CANCEL or not run.policy.wants_retry(run.failures + 1, RunTimeout(run.policy.timeout))


# An exception class may refuse to set attributes (a frozen dataclass does) or raise when code reads them. So use the
# attributes as BaseException defines them, and bypass the hooks of the exception's class.
_TRACEBACK: Final[Any] = BaseException.__dict__["__traceback__"]
_CAUSE: Final[Any] = BaseException.__dict__["__cause__"]
_CONTEXT: Final[Any] = BaseException.__dict__["__context__"]
_EXCEPTIONS: Final[Any] = BaseExceptionGroup.__dict__["exceptions"]


def record(error: BaseException, at: int, attempt: int) -> Error:
    """Describe an exception, even one whose own methods raise SystemExit."""
    try:
        return describe(error, at, attempt)
    except BaseException as broken:
        kind = type.__dict__["__qualname__"].__get__(type(error))
        return Error(kind, f"<describing it raised {type(broken).__name__}>", "", at, attempt)


def mark_reported(error: BaseException) -> None:
    """Mark an exception as known to the error reporters; the mark survives pickling."""
    vars_of: dict[str, Any] = object.__getattribute__(error, "__dict__")  # bypass the hooks of its class
    vars_of[_REPORTED] = True


def is_reported(error: BaseException | None) -> bool:
    """Return True if the error reporters already have this exception, so that they can ignore its log line."""
    return error is not None and _REPORTED in object.__getattribute__(error, "__dict__")


def trim(error: BaseException) -> TracebackType | None:
    """Drop mainspring's frames, which do not help the task's author, from a traceback; return the rest."""
    traceback: TracebackType | None = _TRACEBACK.__get__(error)
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    _TRACEBACK.__set__(error, traceback)
    return traceback


_OURS: Final = ("mainspring.executors.", "mainspring.app.middleware", "mainspring.app.declaring.")
"""The modules that stand between an executor and the task's function."""


def _is_ours(traceback: TracebackType) -> bool:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).startswith(_OURS)


def _release(error: BaseException) -> None:
    """Clear the frames that an exception holds, so that the task's local objects are freed with the report."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo and len(seen) < _MOST_EXCEPTIONS:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [_CAUSE.__get__(one), _CONTEXT.__get__(one)]
        if issubclass(type(one), BaseExceptionGroup):
            todo += _EXCEPTIONS.__get__(one)
        traceback: TracebackType | None = _TRACEBACK.__get__(one)
        while traceback is not None:
            frame = traceback.tb_frame
            # Skip suspended coroutines: clearing the frame would close one, which may be a live worker of some pool.
            if not frame.f_code.co_flags & _SUSPENDABLE:
                with suppress(RuntimeError):  # it is still executing
                    frame.clear()
            traceback = traceback.tb_next
