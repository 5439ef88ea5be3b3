"""Group failed runs by their error: the exception's type, and the innermost place in the user's code. Pure."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from mainspring.core.showing.filters import arguments_of
from mainspring.core.showing.run_view import RunError, RunView

__all__ = [
    "ErrorGroup",
    "ErrorPage",
    "Frame",
    "folded",
    "frames_of",
    "group_errors",
    "in_common",
    "key_of",
    "name_of",
    "place_of",
    "with_counts",
]

GROUP_RUN_IDS: Final = 5
SHARE_IN_COMMON: Final = 0.9
"""Mention a value that at least this share of the failures has in common."""
VALUE_CHARS: Final = 80
TYPE_CHARS: Final = 110
PLACE_CHARS: Final = 80
"""The longest place in a counter's name: type and place together have to fit 200 characters."""
BACKSLASH: Final = "\\"
_FRAME: Final = re.compile(r'^  File "(.+)", line \d+, in (.+)$', re.MULTILINE)
_OTHERS: Final = re.compile(r"[\\/](site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]|^<frozen ")
_FRAMES: Final = re.compile(r'((?:^  File ".+", line \d+, in .+\n(?:    .*\n)*)+)', re.MULTILINE)
_WHOLE_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)\n((?:    .*\n)*)', re.MULTILINE)
_PACKAGE: Final = re.compile(r".*[\\/](?:site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]([^\\/.]+)")
_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package: this file is two folders below it."""


@dataclass(slots=True)
class ErrorGroup:
    """Failures of one kind: their number, the newest of them, the tasks in which they occurred."""

    type: str
    place: str
    """`file:function`, the innermost in the user's code. It has no line number: edits elsewhere would change it."""
    newest: RunError
    oldest: RunError
    count: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    run_ids: list[str] = field(default_factory=list)
    """The ids of the newest failed runs."""
    times: list[datetime] = field(default_factory=list)
    """When each run failed, the newest first."""
    starts: int = 0
    """How many starts of these runs failed."""
    runs: list[RunView] = field(default_factory=list)
    """The runs, in the order in which they were given."""
    counted: list[tuple[datetime, int]] = field(default_factory=list)
    """The number of such failures in each step of time, from counters, which outlive runs; empty steps are left out."""

    @property
    def key(self) -> str:
        """A short name of the group, the same in every process."""
        return key_of(self.type, self.place)


class ErrorPage(NamedTuple):
    """The groups of errors, the newest first; `complete` says that they include every failed run."""

    groups: list[ErrorGroup]
    looked_through: int
    complete: bool


class Frame(NamedTuple):
    """One frame of a traceback; `package` is empty for the user's own code."""

    path: str
    line: int
    function: str
    source: str
    package: str


def key_of(type: str, place: str) -> str:
    """Return the key of a group: twelve characters that stand for the exception's type and the place."""
    return hashlib.blake2b(name_of(type, place).encode("utf-8", "replace"), digest_size=6).hexdigest()


def name_of(type: str, place: str) -> str:
    """Return the name under which errors of a type at a place are counted."""
    return f"{type[:TYPE_CHARS]}\n{place[:PLACE_CHARS]}"


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
        group.starts += len(run.errors)
        group.runs.append(run)
        group.times.append(last.at)
        group.newest = max(group.newest, last, key=lambda error: error.at)
        group.oldest = min(group.oldest, last, key=lambda error: error.at)
        group.tasks[run.task] = group.tasks.get(run.task, 0) + 1
        if len(group.run_ids) < GROUP_RUN_IDS:
            group.run_ids.append(run.id)
    return sorted(groups.values(), key=lambda group: (-group.count, group.type, group.place))


def with_counts(groups: list[ErrorGroup], counted: Mapping[str, Sequence[tuple[datetime, int]]]) -> list[ErrorGroup]:
    """Return groups with the counts of counters added, plus the groups whose runs the store no longer keeps."""
    known = {name_of(group.type, group.place): group for group in groups}
    for name, steps in counted.items():
        if not steps or not name:
            continue
        kind, _, place = name.partition("\n")
        if name not in known:
            last = RunError(kind, "", "", steps[-1][0], 0)
            known[name] = ErrorGroup(kind, place, last, RunError(kind, "", "", steps[0][0], 0))
        group = known[name]
        group.counted = list(steps)
        group.count = max(group.count, sum(number for _, number in steps))
        # A counter knows only the step, a run the exact time. So use the runs as long as all of them are kept.
        if steps[0][0] < group.oldest.at and sum(number for _, number in steps) > len(group.times):
            group.oldest = RunError(kind, group.oldest.message, "", steps[0][0], 0)
    return list(known.values())


def place_of(traceback: str) -> str:
    """Return `file:function` of the innermost frame in the user's code, or else of the innermost frame of all."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _OTHERS.search(frame[0])] or frames
    if not own:
        return ""
    path, function = own[-1]
    return f"{path.replace(BACKSLASH, '/').rpartition('/')[2]}:{function}"


def frames_of(traceback: str) -> list[Frame]:
    """Return the frames of a traceback, the outermost first; the frames of a cause come before those of its effect."""
    return [
        Frame(
            found[1],
            int(found[2]),
            found[3],
            found[4].strip().partition("\n")[0],
            _package(found[1]) if _is_library(found[1]) else "",
        )
        for found in _WHOLE_FRAME.finditer(traceback)
    ]


def in_common(
    runs: Sequence[RunView], function_of: Callable[[RunView], Callable[..., Any] | None]
) -> list[tuple[str, str]]:
    """Return the values that nearly all of these runs share: task, queue, job, node, message, arguments."""
    seen: Counter[tuple[str, str]] = Counter()
    for run in runs:
        facts = {("task", run.task), ("queue", run.queue)}
        facts |= {(name, value) for name, value in (("job", run.job_id), ("node", run.node)) if value}
        if run.errors:
            facts.add(("message", run.errors[-1].message))
        for name, value in arguments_of(run, function_of(run)).items():
            if not name.isdigit():
                facts.add((f"arg.{name}", repr(value)))
        seen.update({(name, value) for name, value in facts if value and len(value) <= VALUE_CHARS})
    order = {name: number for number, name in enumerate(("task", "job", "queue", "message", "node"))}
    shared = [fact for fact, number in seen.items() if number >= SHARE_IN_COMMON * len(runs)]
    return sorted(shared, key=lambda fact: (order.get(fact[0], len(order)), fact))


def folded(traceback: str) -> str:
    """Return a traceback in which one line replaces each group of library frames; the user's frames stay whole."""
    if all(_is_library(path) for path, _ in _FRAME.findall(traceback)):
        return traceback
    return _FRAMES.sub(lambda found: _fold(found[0]), traceback)


def _fold(frames: str) -> str:
    lines: list[str] = []
    packages: list[str] = []
    for frame in [*_WHOLE_FRAME.finditer(frames), None]:
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
