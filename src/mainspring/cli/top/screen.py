"""The screen of `mainspring top`: its selected row, its keys, its drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mainspring.cli.common.output import COLOURS
from mainspring.cli.common.visible import visible
from mainspring.cli.top.snapshot import COLUMNS, SECTIONS, Row, Snapshot
from mainspring.errors import MainspringError, StoreUnavailable

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Screen"]

KEYS: Final = "tab section  up/down row  p pause/resume  r retry/run now  c cancel  s skip  space hold  q quit"
_CHOOSABLE: Final = ("queues", "jobs", "runs")
_ABOVE_AND_BELOW: Final = 3
"""Screen lines outside the sections: the title, the message, the keys."""


class Screen:
    """The user's selection, and the last message to the user."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self.section = "runs"
        self.held = False
        self.message = ""
        self._chosen: dict[str, str] = {}
        self._snapshot = Snapshot("", dict.fromkeys(SECTIONS, ()))

    def show(self, snapshot: Snapshot) -> None:
        """Show a new snapshot."""
        self._snapshot = snapshot

    # -- keys --------------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Act on a key; return False to quit."""
        self.message = ""
        if key == "q":
            return False
        if key in ("tab", "back"):
            step = 1 if key == "tab" else -1
            self.section = _CHOOSABLE[(_CHOOSABLE.index(self.section) + step) % len(_CHOOSABLE)]
        elif key in ("up", "k", "down", "j"):
            self._move(-1 if key in ("up", "k") else 1)
        elif key == " ":
            self.held = not self.held
        elif key in _ACTIONS:
            self._act(key)
        return True

    def _move(self, step: int) -> None:
        rows = self._snapshot.rows[self.section]
        if rows:
            place = self._place(rows)
            self._chosen[self.section] = rows[min(max(0, place + step), len(rows) - 1)].id

    def _place(self, rows: Sequence[Row]) -> int:
        chosen = self._chosen.get(self.section)
        return next((number for number, row in enumerate(rows) if row.id == chosen), 0)

    def _act(self, key: str) -> None:
        rows = self._snapshot.rows[self.section]
        act = _ACTIONS[key].get(self.section)
        if act is None or not rows:
            self.message = f"{key} does nothing to {self.section}; tab goes to another section"
            return
        row = rows[self._place(rows)]
        self._chosen[self.section] = row.id  # keep the row selected when it moves
        try:
            self.message = f"{act(self._app, row)} {visible(row.id)}"
        except StoreUnavailable:
            raise
        except (MainspringError, ValueError) as error:
            self.message = str(visible(str(error)))

    # -- drawing -----------------------------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> RenderableType:
        """Return the part of the screen that fits a terminal of this size."""
        parts: list[RenderableType] = [_line(f"mainspring  {self._snapshot.title}", "bold")]
        sizes = _share({section: len(self._snapshot.rows[section]) for section in SECTIONS}, height - _ABOVE_AND_BELOW)
        for section, size in sizes.items():
            parts.append(self._table(section, size, width))
        used = sum(size + 1 for size in sizes.values())
        parts += [Text()] * max(0, height - _ABOVE_AND_BELOW - used)
        parts.append(_line(self.message or ("held: space goes on" if self.held else ""), "yellow"))
        parts.append(_line(KEYS, "bright_black"))
        return Group(*parts)

    def _table(self, section: str, size: int, width: int) -> Table:
        table = Table(box=None, pad_edge=False, expand=True, show_header=True, header_style="bold", width=width)
        titles = COLUMNS[section]
        shown = [number for number, title in enumerate(titles) if width >= 80 or title in _NARROW]
        for title in (titles[number] for number in shown):
            mark = "> " if section == self.section and title == titles[0] else ""
            longest = 40 if title == "run" and width >= 100 else None
            table.add_column(
                f"{mark}{title}", no_wrap=True, overflow="ellipsis", ratio=_RATIOS.get(title), max_width=longest
            )
        rows = self._snapshot.rows[section]
        place = self._place(rows) if section == self.section else 0
        start = max(0, min(place - size + 1, len(rows) - size))
        for number, row in enumerate(rows[start : start + size], start):
            style = "reverse" if section == self.section and number == place else ""
            table.add_row(*(_cell(cell) for cell in (row.cells[number] for number in shown)), style=style)
        return table


_RATIOS: Final = {"queue": 1, "job": 1, "when": 1, "node": 1, "queues": 1, "call": 3, "says": 2}
"""The columns that share the space left by the others."""


_NARROW: Final = ("queue", "state", "waiting", "running", "job", "health", "how soon", "node", "status", "call", "made")
"""The columns that a narrow terminal shows."""


def _line(text: str, style: str) -> Text:
    return Text(str(visible(text)), style=style, no_wrap=True, overflow="ellipsis")


def _cell(text: str) -> Text:
    shown = " ".join(str(visible(text)).split())
    return Text(shown, style=COLOURS.get(shown, ""), no_wrap=True, overflow="ellipsis")


def _share(wanted: Mapping[str, int], height: int) -> dict[str, int]:
    """Share the lines of a screen among the sections, each with a title line; the runs get the rest.

    A very low screen shows only jobs and runs.
    """
    for most in (8, 5, 3, 2, 1):
        sizes = {section: min(number, most) for section, number in wanted.items() if section != "runs"}
        left = height - sum(size + 1 for size in sizes.values()) - 1
        if left >= min(wanted["runs"], 4):
            return {**sizes, "runs": max(0, min(left, wanted["runs"]))}
    return {"jobs": min(wanted["jobs"], 2), "runs": max(1, min(wanted["runs"], height - 5))}


# -- what keys do --------------------------------------------------------------------------------------------------


def _turn(row: Row, pause: Callable[[str], object], resume: Callable[[str], object]) -> str:
    """Pause a queue or a job, or resume it if it is paused."""
    act, done = (resume, "resumed") if row.state == "paused" else (pause, "paused")
    act(row.id)
    return done


def _skip(app: Mainspring, row: Row) -> str:
    app.skip_next(row.id)
    return "skipped the next fire of"


def _run_now(app: Mainspring, row: Row) -> str:
    app.run_now(row.id)
    return "enqueued"


def _retry(app: Mainspring, row: Row) -> str:
    app.retry(row.id)
    return "sent back"


def _cancel(app: Mainspring, row: Row) -> str:
    return "cancelled" if app.cancel(row.id) else "nothing to cancel: it has ended:"


_ACTIONS: Final[dict[str, dict[str, Callable[[Mainspring, Row], str]]]] = {
    "p": {
        "queues": lambda app, row: _turn(row, app.pause_queue, app.resume_queue),
        "jobs": lambda app, row: _turn(row, app.pause_job, app.resume_job),
    },
    "r": {"runs": _retry, "jobs": _run_now},
    "c": {"runs": _cancel},
    "s": {"jobs": _skip},
}
