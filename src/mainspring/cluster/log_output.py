"""Write the log of the command line: lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Final

from mainspring.contrib.logging import RunContext

__all__ = ["JsonFormatter", "TextFormatter", "has_colours", "set_up_logging"]

_FACTS: Final = ("run_id", "task", "job_id", "queue", "attempt", "status", "took")
"""The attributes of a log record of `mainspring.runs` that describe its run."""
_COLOURS: Final = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31;1", "DEBUG": "2"}


def set_up_logging(level: str | None, form: str = "text") -> None:
    """Log to stderr, if a level is given."""
    if level is None:
        return
    handler = logging.StreamHandler()
    if form == "json":
        handler.addFilter(RunContext())  # makes the lines of tasks and of their libraries name the run, too
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(coloured=has_colours()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def has_colours() -> bool:
    """Return True if stderr is a terminal and the user has not switched colours off."""
    return sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")


class TextFormatter(logging.Formatter):
    """A formatter for `time [process] LEVEL logger: message`; `brief` leaves out the date, process and logger.

    It escapes control characters of terminals, since an attacker may have written an error's message.
    """

    def __init__(self, *, coloured: bool = False, brief: bool = False) -> None:
        long = "%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s"
        super().__init__("%(asctime)s %(levelname)-7s %(message)s" if brief else long, "%H:%M:%S" if brief else None)
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        lines = super().format(record).split("\n")
        text = "\n".join(line if line.isprintable() else "".join(map(_shown, line)) for line in lines)
        colour = _COLOURS.get(record.levelname) if self._coloured else None
        return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def _shown(character: str) -> str:
    kept = character.isprintable() or character == "\t"
    return character if kept else character.encode("unicode_escape").decode()


class JsonFormatter(logging.Formatter):
    """A formatter for one JSON object per line: time, level, logger, process, message, and the facts about a run."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        found |= {name: getattr(record, name) for name in _FACTS if getattr(record, name, None) is not None}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)
