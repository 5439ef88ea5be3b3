"""Tracebacks for people: the frames of the user's code first, library frames folded into one line. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mainspring.core.showing.failures import Frame, frames_of

__all__ = ["TraceLine", "trace_lines"]

_CHAIN: Final = re.compile(
    r"\n(The above exception was the direct cause of the following exception:"
    r"|During handling of the above exception, another exception occurred:)\n"
)
MOST_LINES: Final = 60
PATH_PARTS: Final = 3
"""The number of path parts to show: enough to find the file."""


class TraceLine(NamedTuple):
    """One line: `cls` is own, hot, lib or empty; a frame has a path, a line number and a function, others have text."""

    cls: str
    text: str = ""
    path: str = ""
    line: int = 0
    function: str = ""
    error: str = ""


def trace_lines(traceback: str, type: str, message: str) -> list[TraceLine]:
    """Return the lines of a traceback to show: the last exception with its frames, then its causes."""
    *causes, last = _CHAIN.split(traceback)[::2] if traceback else [""]
    lines = _frame_lines(frames_of(f"{last}\n"))
    lines.append(TraceLine("", text=message, error=type))
    for cause in reversed(causes):
        lines.append(TraceLine("lib", text=_cause(cause)))
    return lines if len(lines) <= MOST_LINES else [*lines[:10], TraceLine("lib", text="…"), *lines[-MOST_LINES:]]


def _frame_lines(frames: list[Frame]) -> list[TraceLine]:
    own = [number for number, frame in enumerate(frames) if not frame.package]
    hot = own[-1] if own else len(frames) - 1
    lines: list[TraceLine] = []
    folded: list[str] = []
    for number, frame in enumerate(frames):
        if frame.package and own:
            folded.append(frame.package)
            continue
        lines += _folded(folded)
        folded = []
        cls = "own hot" if number == hot else "own"
        lines.append(TraceLine(cls, path=_short(frame.path), line=frame.line, function=frame.function))
        if frame.source:
            lines.append(TraceLine(cls, text=f"    {frame.source}"))
    return lines + _folded(folded)


def _folded(packages: list[str]) -> list[TraceLine]:
    if not packages:
        return []
    number = len(packages)
    words = f"  … {number} frame{'s' * (number != 1)} of {', '.join(dict.fromkeys(packages))}"
    return [TraceLine("lib", text=words)]


def _cause(text: str) -> str:
    said = [line for line in text.rstrip().splitlines() if line and not line.startswith(" ")]
    frames = frames_of(f"{text}\n")
    packages = ", ".join(dict.fromkeys(frame.package for frame in frames if frame.package))
    through = f", through {len(frames)} frame{'s' * (len(frames) != 1)}" if frames else ""
    through += f" of {packages}" if packages else ""
    return f"  caused by {said[-1][:300] if said else 'another error'}{through}"


def _short(path: str) -> str:
    parts = path.replace("\\", "/").split("/")
    return "/".join(parts[-PATH_PARTS:]) if len(parts) > PATH_PARTS + 1 else path
