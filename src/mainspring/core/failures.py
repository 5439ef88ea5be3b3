"""Group failed runs by their error: the exception's type, and the innermost place in the user's own code. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mainspring.core.run_view import RunError, RunView

__all__ = ["ErrorGroup", "folded", "group_errors", "place_of"]

GROUP_RUN_IDS: Final = 5
BACKSLASH: Final = "\\"
_FRAME: Final = re.compile(r'^  File "(.+)", line \d+, in (.+)$', re.MULTILINE)
_OTHERS: Final = re.compile(r"[\\/](site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]|^<frozen ")
_FRAMES: Final = re.compile(r'((?:^  File ".+", line \d+, in .+\n(?:    .*\n)*)+)', re.MULTILINE)
_ONE_FRAME: Final = re.compile(r'^  File "(.+)", line \d+, in .+\n(?:    .*\n)*', re.MULTILINE)
_PACKAGE: Final = re.compile(r".*[\\/](?:site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]([^\\/.]+)")
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(slots=True)
class ErrorGroup:
    """Failures of one kind: their number, the newest of them, the tasks in which they occurred."""

    type: str
    place: str
    """`file:function`, the innermost of the user's own; without a line, which edits elsewhere would change."""
    newest: RunError
    oldest: RunError
    count: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    run_ids: list[str] = field(default_factory=list)
    """The ids of the newest of them."""


def group_errors(runs: Iterable[RunView]) -> list[ErrorGroup]:
    """Return the groups of the last errors of runs, the most frequent first."""
    groups: dict[tuple[str, str], ErrorGroup] = {}
    for run in runs:
        if not run.errors:
            continue
        last = run.errors[-1]
        place = place_of(last.traceback)
        group = groups.setdefault((last.type, place), ErrorGroup(last.type, place, last, last))
        group.count += 1
        group.newest = max(group.newest, last, key=lambda error: error.at)
        group.oldest = min(group.oldest, last, key=lambda error: error.at)
        group.tasks[run.task] = group.tasks.get(run.task, 0) + 1
        if len(group.run_ids) < GROUP_RUN_IDS:
            group.run_ids.append(run.id)
    return sorted(groups.values(), key=lambda group: (-group.count, group.type, group.place))


def place_of(traceback: str) -> str:
    """Return `file:function` of the innermost frame of the user's own code, or of any code if there is none."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _OTHERS.search(frame[0])] or frames
    if not own:
        return ""
    path, function = own[-1]
    return f"{path.replace(BACKSLASH, '/').rpartition('/')[2]}:{function}"


def folded(traceback: str) -> str:
    """Return a traceback with the frames of libraries folded into one line each time, and the user's own left whole."""
    if all(_is_library(path) for path, _ in _FRAME.findall(traceback)):
        return traceback
    return _FRAMES.sub(lambda found: _fold(found[0]), traceback)


def _fold(frames: str) -> str:
    lines: list[str] = []
    packages: list[str] = []
    for frame in [*_ONE_FRAME.finditer(frames), None]:
        if frame is not None and _is_library(frame[1]):
            packages.append(_package(frame[1]))
            continue
        if packages:
            number = len(packages)
            names = ", ".join(dict.fromkeys(packages))
            lines.append(f"  ... {number} frame{'s' * (number > 1)} in {names} ...\n")
            packages = []
        if frame is not None:
            lines.append(frame[0])
    return "".join(lines)


def _is_library(path: str) -> bool:
    return path.startswith(_OURS) or _OTHERS.search(path) is not None


def _package(path: str) -> str:
    if path.startswith(_OURS):
        return "mainspring"
    found = _PACKAGE.match(path)
    return found[1] if found is not None else "the import system"
