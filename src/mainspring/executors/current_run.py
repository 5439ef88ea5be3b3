"""`current_run()` lets a task read its run, report progress and data, and keep its log lines with the run."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar, overload

import msgspec
from msgspec.structs import replace

from mainspring.core.run import Beat, Run
from mainspring.core.stored.settling import LOG_LINES
from mainspring.errors import MainspringError
from mainspring.locks import free_in_children

__all__ = [
    "CURRENT",
    "RUN_LOG_HANDLER",
    "CurrentRun",
    "NotInRun",
    "NotesSink",
    "RunLogHandler",
    "RunNotes",
    "current_run",
    "keep_logs",
    "release_logs",
]

T = TypeVar("T")

LOG_CHARS: Final = 256 * 1024
TEXT_CHARS: Final = 4 * 1024
DATA_BYTES: Final = 64 * 1024
DATA_LEVELS: Final = 32
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class NotInRun(MainspringError, RuntimeError):
    """The code was called directly, not by an executor, so there is no current run."""

    def __str__(self) -> str:
        return (
            "no run is being executed here; current_run() works inside a task that a worker executes, "
            "current_run(None) gives None where the task is called directly"
        )


class RunNotes:
    """The progress, data and log lines that a run has reported so far."""

    __slots__ = ("_size", "changed", "data", "lines", "progress", "run", "unsent")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.progress: Any = None
        self.data: Any = None
        self.lines: deque[str] = deque()
        self.unsent: list[str] = []
        self.changed = False
        self._size = 0

    def write(self, line: str) -> None:
        """Keep a log line; drop the oldest ones beyond the limits."""
        line = line[:TEXT_CHARS]
        self.lines.append(line)
        self._size += len(line)
        while len(self.lines) > LOG_LINES or self._size > LOG_CHARS:
            self._size -= len(self.lines.popleft())
        self.unsent.append(line)
        del self.unsent[:-LOG_LINES]
        self.changed = True

    def beat(self) -> Beat:
        """Return a heartbeat with the changes since the last one."""
        self.changed = False
        lines, self.unsent = self.unsent, []
        return Beat(self.run.id, str(self.run.token), self.progress, self.data, tuple(lines))

    def final(self, run: Run) -> Run:
        """Return the run with everything that it has reported."""
        return replace(
            run,
            progress=run.progress if self.progress is None else self.progress,
            data=run.data if self.data is None else self.data,
            log=(*run.log, *self.lines)[-LOG_LINES:],
        )


class NotesSink(Protocol):
    """A receiver that takes a run's progress, data and log lines to its node, or into the pipe to the node."""

    def notes_of(self, run: Run) -> RunNotes:
        """Return the notes of a run."""

    def notes_changed(self, notes: RunNotes) -> None:
        """Pass on that the notes of a run have changed."""

    def inputs(self, run: Run) -> list[Any]:
        """Return the results of the runs that a run came after."""


CURRENT: ContextVar[tuple[Run, Any] | None] = ContextVar("mainspring_current", default=None)


class CurrentRun:
    """The run that executes the calling code."""

    __slots__ = ("_run", "_sink")

    def __init__(self, run: Run, sink: NotesSink) -> None:
        self._run, self._sink = run, sink

    @property
    def id(self) -> str:
        """The run's id. It stays the same over retries, so other systems can use it as an idempotency key."""
        return self._run.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.attempt

    @property
    def job_id(self) -> str | None:
        """The job that fired, if one did."""
        return self._run.job_id

    @property
    def headers(self) -> dict[str, str]:
        """Texts that integrations added when the call was enqueued, such as a trace context."""
        return self._run.headers

    @property
    def record(self) -> Run:
        """The run as it was when it was claimed."""
        return self._run

    @property
    def inputs(self) -> list[Any]:
        """The results of the runs that this one came after, read from the store at each access.

        They are in the order of `after`. The item of a run that did not succeed is its error.
        """
        return self._sink.inputs(self._run)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Report the progress of the run; the node stores it within a second, or with the outcome."""
        told = {
            "done": _number(done),
            "total": None if total is None else _number(total),
            "text": str(text)[:TEXT_CHARS],
        }
        notes = self._sink.notes_of(self._run)
        notes.progress = told
        notes.changed = True
        self._sink.notes_changed(notes)

    @property
    def data(self) -> dict[str, Any]:
        """The run's document as it was last set, by this attempt or an earlier one."""
        notes = self._sink.notes_of(self._run)
        return dict(notes.data if notes.data is not None else self._run.data or {})

    def update(self, **changes: Any) -> None:
        """Change fields of the run's document: JSON-like data of up to 64 KiB that the store keeps with the run."""
        data = {**self.data, **changes}
        _check_document(data, changes)
        notes = self._sink.notes_of(self._run)
        notes.data = data
        notes.changed = True
        self._sink.notes_changed(notes)

    def log(self, line: str) -> None:
        """Add a line to the run's log; lines that the task writes with `logging` are added automatically."""
        notes = self._sink.notes_of(self._run)
        notes.write(str(line))
        self._sink.notes_changed(notes)


def _number(value: Any) -> int | float:
    """Convert a number to a plain int or float: stores cannot pack a numpy number."""
    if not isinstance(value, int | float):
        raise TypeError(f"progress takes numbers, not {value!r}")
    return int(value) if isinstance(value, int) else float(value)


def _check_document(data: dict[str, Any], changes: dict[str, Any]) -> None:
    """Raise an error for a wrong document now, in the task: later no caller would see it."""
    for name, value in changes.items():
        problem = _not_plain(value, 0)
        if problem:
            raise TypeError(f"{name} must be JSON-like data, but contains {problem}")
    size = len(msgspec.msgpack.encode(data))
    if size > DATA_BYTES:
        raise ValueError(f"the run's data would take {size:,} bytes; the limit is {DATA_BYTES:,}")


def _not_plain(value: Any, depth: int) -> str:
    if value is None or isinstance(value, bool | float):
        return ""
    if isinstance(value, str):
        return "" if value.isascii() or not _SURROGATES.search(value) else "half a character (a lone surrogate)"
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**63 else f"the integer {value}, which is beyond 64 bits"
    if depth > DATA_LEVELS:
        return f"more than {DATA_LEVELS} levels"
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            return f"the key {odd!r}, which is not a string"
        return next(filter(None, (_not_plain(item, depth + 1) for item in value.values())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_plain(item, depth + 1) for item in value)), "")
    return f"a {type(value).__qualname__}"


@overload
def current_run() -> CurrentRun: ...


@overload
def current_run(default: T, /) -> CurrentRun | T: ...


def current_run(*default: Any) -> Any:
    """Return the run that executes the calling code. Outside a run, return the default, or else raise NotInRun."""
    found = CURRENT.get()
    if found is not None:
        return CurrentRun(*found)
    if not default:
        raise NotInRun
    return default[0]


class RunLogHandler(logging.Handler):
    """A handler that adds the log lines of a task to its run.

    No logger has this handler: on the root logger, it would switch off Python's last-resort output and turn a later
    `basicConfig()` into a no-op. Instead, `keep_logs` makes every logger pass its records to this handler.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that was logged inside a run."""
        found = CURRENT.get()
        if found is None or record.name.startswith("mainspring."):
            return
        try:
            run, sink = found
            notes = sink.notes_of(run)
            traceback = record.exc_text
            notes.write(self.format(record))
            record.exc_text = traceback  # otherwise the user's formatter would reuse our text
            sink.notes_changed(notes)
        except Exception:
            self.handleError(record)


RUN_LOG_HANDLER: Final = RunLogHandler()
"""The only handler of the process, so that several workers in it keep each line once."""
_keeping = 0
_is_watching = False
_lock = free_in_children(threading.Lock())


def keep_logs() -> None:
    """Keep the log lines of tasks from now on, until `release_logs` has been called as often as this."""
    global _keeping
    with _lock:
        _keeping += 1
        _watch_loggers()


def release_logs() -> None:
    """Undo one call of `keep_logs`."""
    global _keeping
    with _lock:
        _keeping -= 1


def _watch_loggers() -> None:
    """Pass every record that a logger gives to its handlers to our handler, too, after the logger's filters.

    This stays for the life of the process: other packages wrap the same method, and restoring it could undo theirs.
    """
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
    call_handlers = logging.Logger.callHandlers

    def call_handlers_and_keep(self: logging.Logger, record: logging.LogRecord) -> None:
        if _keeping:
            RUN_LOG_HANDLER.handle(record)
        call_handlers(self, record)

    logging.Logger.callHandlers = call_handlers_and_keep  # type: ignore[method-assign]
