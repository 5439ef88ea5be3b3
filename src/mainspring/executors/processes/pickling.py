"""Pickle calls, values and exceptions for a process pool and its children; errors name the part that cannot be sent."""

from __future__ import annotations

import builtins
import pickle
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

from msgspec.structs import replace

from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.references import get_callable_name
from mainspring.core.run import Call, Error, Run
from mainspring.errors import add_note
from mainspring.executors.current_run import RunNotes
from mainspring.executors.execution import record

__all__ = [
    "Reply",
    "dump_call",
    "dump_failure",
    "dump_value",
    "dump_words",
    "load_call",
    "load_reply",
    "take_words",
]

Reply = tuple[Any, BaseException | None, Error | None]
"""The answer of a child: a value, or an exception and its record."""


def dump_call(run: Run) -> bytes:
    """Turn a run's call into bytes, or raise PicklingError naming the part that cannot be sent."""
    call = run.call
    try:
        head = replace(
            run,
            call=Call("", name=call.name, task=call.task_name, headers=call.headers),
            policy=DEFAULT_POLICY,
            errors=(),
            log=(),
        )
        return _dump((call.func, call.args, dict(call.kwargs), head))
    except Exception as error:
        for name, part in _parts(call.func, call.args, call.kwargs):
            try:
                _dump(part)
            except Exception as reason:
                raise _cannot_cross(name, part, "to a child process", reason) from reason
        raise pickle.PicklingError(f"the call cannot be sent to a child process: {error}") from error


def load_call(data: bytes) -> tuple[Any, tuple[Any, ...], dict[str, Any], Run]:
    """Restore a call from bytes: its function, its arguments, and the run without them."""
    call: tuple[Any, tuple[Any, ...], dict[str, Any], Run] = pickle.loads(data)
    return call


def dump_words(live: RunNotes, lines: list[str]) -> bytes:
    """Turn the progress and data of a run and its new log lines into bytes."""
    return _dump((live.progress, live.data, lines))


def take_words(data: bytes, live: RunNotes) -> None:
    """Add the progress, data and log lines from a child to the notes of its run."""
    progress, document, lines = pickle.loads(data)
    live.progress = live.progress if progress is None else progress
    live.data = live.data if document is None else document
    for line in lines:
        live.write(line)
    live.changed = True


def dump_value(value: Any) -> bytes:
    """Turn the value of a call into bytes, or raise PicklingError."""
    try:
        return _dump((True, value))
    except Exception as error:
        raise _cannot_cross("the result", value, "back from the child process", error) from error


def dump_failure(error: BaseException, attempt: int) -> bytes:
    """Turn the exception of a call into bytes: always its record, and the exception itself if it can be pickled."""
    return _dump((False, _dump_exception(error), record(error, 0, attempt)))


def load_reply(data: bytes, pid: int) -> Reply:
    """Restore the reply of a child from bytes; if this process cannot restore it, return an error for the run."""
    try:
        returned, first, *rest = pickle.loads(data)
    except BaseException as error:
        problem = _cannot_cross("the result", None, "back from the child process", error)
        return None, problem, record(problem, 0, 0)
    if returned:
        return first, None, None
    described: Error = rest[0]
    exception = _load_exception(first, described)
    add_note(exception, f"In child process {pid}:\n{described.traceback}")
    return None, exception, described


def _dump(value: Any) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def _parts(
    func: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    yield f"the function {func if isinstance(func, str) else get_callable_name(func)}", func
    for number, value in enumerate(args, 1):
        yield f"positional argument {number}", value
    for name, value in kwargs.items():
        yield f"argument {name!r}", value


def _cannot_cross(name: str, part: Any, where: str, reason: BaseException) -> pickle.PicklingError:
    kind = "" if part is None or callable(part) else f" (of type {type(part).__qualname__})"
    return pickle.PicklingError(f"{name}{kind} cannot be sent {where}: {reason}")


# Python pickles an exception as a call of its class with `args`. That fails or doubles the text if `__init__` formats
# a message or takes other arguments. So compare the copy; if it differs, rebuild the exception without `__init__`.


def _dump_exception(error: BaseException) -> bytes | None:
    forms: tuple[Callable[[], tuple[Any, ...]], ...] = (
        lambda: (error,),
        lambda: (type(error), error.args, error.__dict__),
        lambda: (type(error), (_text(error),), {}),
    )
    for form in forms:
        try:
            data = _dump(form())
            copy = _build(pickle.loads(data))
            if type(copy) is type(error) and _text(copy) == _text(error):
                return data
        except BaseException:
            continue
    return None


def _load_exception(data: bytes | None, described: Error) -> BaseException:
    if data is not None:
        try:
            return _build(pickle.loads(data))
        except BaseException:
            pass  # its class cannot be imported here
    return RuntimeError(f"{described.type}: {described.message}")


def _build(form: tuple[Any, ...]) -> BaseException:
    if len(form) == 1:
        whole: BaseException = form[0]
        return whole
    cls, args, state = form
    error: BaseException = cls.__new__(cls, *args)
    standard = next(base for base in cls.__mro__ if base.__module__ == builtins.__name__)
    standard.__init__(error, *args)
    error.__dict__.update(state)
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return type(broken).__name__
