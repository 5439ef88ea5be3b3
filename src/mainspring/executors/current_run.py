"""What a task can know and say about the run it is in: `current_run()`, and the log lines it writes."""

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
from mainspring.errors import MainspringError

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
    "keeps_logs",
    "release_logs",
]

T = TypeVar("T")

LOG_LINES: Final = 1000
LOG_CHARS: Final = 256 * 1024
TEXT_CHARS: Final = 4 * 1024
DATA_BYTES: Final = 64 * 1024
DATA_LEVELS: Final = 32
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class NotInRun(MainspringError, RuntimeError):
    """There is no run here: the code was called directly, not by an executor."""

    def __str__(self) -> str:
        return (
            "no run is being executed here; current_run() works inside a task that a worker executes, "
            "current_run(None) gives None where the task is called directly"
        )


class RunNotes:
    """What a run has said of itself while it is executed: progress, data, log lines."""

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
        """Keep a log line; past the limits the oldest go."""
        line = line[:TEXT_CHARS]
        self.lines.append(line)
        self._size += len(line)
        while len(self.lines) > LOG_LINES or self._size > LOG_CHARS:
            self._size -= len(self.lines.popleft())
        self.unsent.append(line)
        del self.unsent[:-LOG_LINES]
        self.changed = True

    def beat(self) -> Beat:
        """Return a sign of life that carries what is new."""
        self.changed = False
        lines, self.unsent = self.unsent, []
        return Beat(self.run.id, str(self.run.token), self.progress, self.data, tuple(lines))

    def final(self, run: Run) -> Run:
        """Return the run with all that it has said."""
        return replace(
            run,
            progress=run.progress if self.progress is None else self.progress,
            data=run.data if self.data is None else self.data,
            log=(*run.log, *self.lines)[-LOG_LINES:],
        )


class NotesSink(Protocol):
    """Where a run's words go: its node, or the pipe to it."""

    def live(self, run: Run) -> RunNotes:
        """Return what the run has said so far."""

    def said(self, live: RunNotes) -> None:
        """Take notice that the run has said something."""


CURRENT: ContextVar[tuple[Run, Any] | None] = ContextVar("mainspring_current", default=None)


class CurrentRun:
    """The run that this code is part of."""

    __slots__ = ("_run", "_teller")

    def __init__(self, run: Run, teller: NotesSink) -> None:
        self._run, self._teller = run, teller

    @property
    def id(self) -> str:
        """The run's id: stable over retries, so it can serve other systems as an idempotency key."""
        return self._run.id

    @property
    def attempt(self) -> int:
        """Which start this is, from 1."""
        return self._run.attempt

    @property
    def job_id(self) -> str | None:
        """The job that fired, if one did."""
        return self._run.job_id

    @property
    def record(self) -> Run:
        """The run as it was when it was claimed."""
        return self._run

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the run has got; it is stored within a second or with the outcome."""
        told = {
            "done": _number(done),
            "total": None if total is None else _number(total),
            "text": str(text)[:TEXT_CHARS],
        }
        live = self._teller.live(self._run)
        live.progress = told
        live.changed = True
        self._teller.said(live)

    @property
    def data(self) -> dict[str, Any]:
        """The run's document, as it was last set (also by an earlier attempt)."""
        live = self._teller.live(self._run)
        return dict(live.data if live.data is not None else self._run.data or {})

    def update(self, **changes: Any) -> None:
        """Change fields of the run's document: plain data such as JSON can hold, up to 64 KiB, kept with the run."""
        data = {**self.data, **changes}
        _check_document(data, changes)
        live = self._teller.live(self._run)
        live.data = data
        live.changed = True
        self._teller.said(live)

    def log(self, line: str) -> None:
        """Add a line to the run's log; what the task writes with `logging` is added by itself."""
        live = self._teller.live(self._run)
        live.write(str(line))
        self._teller.said(live)


def _number(value: Any) -> int | float:
    """Return a plain number of any kind of it: numpy's float, too, is one, but not to whoever stores it."""
    if not isinstance(value, int | float):
        raise TypeError(f"progress is told in numbers, not {value!r}")
    return int(value) if isinstance(value, int) else float(value)


def _check_document(data: dict[str, Any], changes: dict[str, Any]) -> None:
    """Raise where the mistake is made; later there is nobody to tell."""
    for name, value in changes.items():
        problem = _not_plain(value, 0)
        if problem:
            raise TypeError(f"{name} must be plain data such as JSON can hold, but has {problem}")
    size = len(msgspec.msgpack.encode(data))
    if size > DATA_BYTES:
        raise ValueError(f"the run's data would have {size:,} bytes; at most {DATA_BYTES:,} are kept")


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
            return f"the key {odd!r}, which is no text"
        return next(filter(None, (_not_plain(item, depth + 1) for item in value.values())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_plain(item, depth + 1) for item in value)), "")
    return f"a {type(value).__qualname__}"


@overload
def current_run() -> CurrentRun: ...


@overload
def current_run(default: T, /) -> CurrentRun | T: ...


def current_run(*default: Any) -> Any:
    """Return the run that the calling code is part of; if there is none, the default, or raise NotInRun."""
    found = CURRENT.get()
    if found is not None:
        return CurrentRun(*found)
    if not default:
        raise NotInRun
    return default[0]


class RunLogHandler(logging.Handler):
    """Keeps the log lines that a task writes with its run.

    It is no handler of any logger: a handler on the root logger would switch off Python's last-resort output and turn
    a later `basicConfig()` into a no-op. `keep_logs` has every logger pass its records by instead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record if it comes from inside a run."""
        found = CURRENT.get()
        if found is None or record.name.startswith("mainspring."):
            return
        try:
            run, teller = found
            live = teller.live(run)
            traceback = record.exc_text
            live.write(self.format(record))
            record.exc_text = traceback  # a formatter of the user's would take ours for its own
            teller.said(live)
        except Exception:
            self.handleError(record)


RUN_LOG_HANDLER: Final = RunLogHandler()
"""The one keeper, so that several workers in one process keep each line once."""
_keeping = 0
_is_watching = False
_lock = threading.Lock()


def keep_logs() -> None:
    """Keep what tasks write with `logging` from now on, until `release_logs` was called as often."""
    global _keeping
    with _lock:
        _keeping += 1
        _watch_loggers()


def release_logs() -> None:
    """End what one `keep_logs` began."""
    global _keeping
    with _lock:
        _keeping -= 1


def keeps_logs() -> bool:
    """Tell whether the log lines of runs are kept in this process."""
    return _keeping > 0


def _watch_loggers() -> None:
    """Show the keeper every record that a logger passes on to its handlers, after the logger's own filters.

    This stays for the life of the process: other packages wrap the same method, and to restore it could undo theirs.
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
