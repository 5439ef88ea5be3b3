"""What a task can know and say about the run it is in: `current_run()`, and the log lines it writes."""

from __future__ import annotations

import logging
from collections import deque
from contextvars import ContextVar
from typing import Any, Final, Protocol

from msgspec.structs import replace

from mainspring.errors import MainspringError
from mainspring.run import Beat, Run

__all__ = ["CURRENT", "CurrentRun", "Live", "LogKeeper", "NotInRun", "Teller", "current_run"]

LOG_LINES: Final = 1000
LOG_SIZE: Final = 256 * 1024
TEXT_LIMIT: Final = 4 * 1024


class NotInRun(MainspringError, RuntimeError):
    """There is no run here: the code was called directly, not by an executor."""

    def __str__(self) -> str:
        return "no run is being executed here; current_run() works inside a task that a worker executes"


class Live:
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
        line = line[:TEXT_LIMIT]
        self.lines.append(line)
        self._size += len(line)
        while len(self.lines) > LOG_LINES or self._size > LOG_SIZE:
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


class Teller(Protocol):
    """Where a run's words go: its node, or the pipe to it."""

    def live(self, run: Run) -> Live:
        """Return what the run has said so far."""

    def said(self, live: Live) -> None:
        """Take notice that the run has said something."""


CURRENT: ContextVar[tuple[Run, Any] | None] = ContextVar("mainspring_current", default=None)


class CurrentRun:
    """The run that this code is part of."""

    __slots__ = ("_run", "_teller")

    def __init__(self, run: Run, teller: Teller) -> None:
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
        live = self._teller.live(self._run)
        live.progress = {"done": done, "total": total, "text": str(text)[:TEXT_LIMIT]}
        live.changed = True
        self._teller.said(live)

    @property
    def data(self) -> dict[str, Any]:
        """The run's document, as it was last set (also by an earlier attempt)."""
        live = self._teller.live(self._run)
        return dict(live.data if live.data is not None else self._run.data or {})

    def update(self, **changes: Any) -> None:
        """Change fields of the run's document; it must stay plain data, and is kept with the run."""
        data = {**self.data, **changes}
        live = self._teller.live(self._run)
        live.data = data
        live.changed = True
        self._teller.said(live)

    def log(self, line: str) -> None:
        """Add a line to the run's log; what the task writes with `logging` is added by itself."""
        live = self._teller.live(self._run)
        live.write(str(line))
        self._teller.said(live)


def current_run() -> CurrentRun:
    """Return the run that the calling code is part of; raise NotInRun if there is none."""
    found = CURRENT.get()
    if found is None:
        raise NotInRun
    return CurrentRun(*found)


class LogKeeper(logging.Handler):
    """Keeps the log lines that a task writes with its run."""

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
            live.write(self.format(record))
            teller.said(live)
        except Exception:
            self.handleError(record)
