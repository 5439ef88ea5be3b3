"""Print for people and programs: JSON, relative times, and tables that fit a terminal but stay whole in a pipe."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, Final, NamedTuple, TypeVar

import click

from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import duration, took

__all__ = ["Column", "ago", "echo", "fields", "length", "print_json", "table", "with_progress"]

NARROWEST_COLUMN_CHARS: Final = 16
"""The least number of characters that a shortened column keeps."""
GAP: Final = "  "
COLOURS: Final = {
    "succeeded": "green", "running": "blue", "failed": "red", "missed": "yellow", "broken": "magenta",
    "retrying": "yellow", "cancelled": "bright_black", "paused": "yellow", "silent": "red", "unserved": "red",
    "up": "green", "late": "yellow", "down": "red",
}  # fmt: skip

Item = TypeVar("Item")


class Column(NamedTuple):
    """A column of a table; a narrow terminal may shorten or omit it."""

    title: str
    right: bool = False
    cut: bool = False
    optional: bool = False


def echo(text: str = "") -> None:
    """Print a line; use colours only on a terminal and without NO_COLOR."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)


def print_json(value: Any) -> None:
    """Print a value as JSON; print types that JSON lacks as text."""
    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    known = value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value))
    return value if known else str(value)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under titles: shortened to the width of a terminal, complete in a pipe."""
    lines = [[" ".join(str(visible(cell)).split()) for cell in row] for row in rows]
    widths = [max(map(_width, texts)) for texts in zip([c.title for c in columns], *lines, strict=True)]
    shown = list(range(len(columns)))
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        shown = _fit(columns, widths, room)
        if _total(widths, shown) > room:
            return _blocks(columns, lines)
    for number, line in enumerate([[column.title for column in columns], *lines]):
        cells = [_cell(line[index], widths[index], columns[index], title=not number) for index in shown]
        echo(GAP.join(cells).rstrip())
    return None


def _fit(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Omit and narrow columns until a line fits; return the columns to show."""
    shown = list(range(len(columns)))
    while True:
        least = [
            min(width, NARROWEST_COLUMN_CHARS) if column.cut else width
            for column, width in zip(columns, widths, strict=True)
        ]
        droppable = [index for index in shown if columns[index].optional]
        if _total(least, shown) <= room or not droppable:
            break
        shown.remove(droppable[-1])
    for index in sorted((index for index in shown if columns[index].cut), key=lambda index: -widths[index]):
        over = _total(widths, shown) - room
        if over > 0:
            widths[index] = max(least[index], widths[index] - over)
    return shown


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[index] for index in shown) + len(GAP) * (len(shown) - 1)


def _blocks(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    """Print each row as several lines, for a terminal that is too narrow for a table."""
    for line in lines:
        fields([(column.title, cell) for column, cell in zip(columns, line, strict=True) if cell])
        echo()


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    wide = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        echo(f"{name:<{wide}}  {_coloured(str(visible(value)))}")


def _cell(text: str, width: int, column: Column, *, title: bool) -> str:
    if _width(text) > width:
        while text and _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    padding = " " * (width - _width(text))
    text = click.style(text, bold=True) if title else _coloured(text)
    return padding + text if column.right else text + padding


def _coloured(text: str) -> str:
    return click.style(text, fg=COLOURS[text]) if text in COLOURS else text


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # it knows which characters take two columns; slow to import

    return cell_len(text)


def ago(us: int) -> str:
    """Return the age of an instant, in its largest unit."""
    words = duration(us).split()
    return f"{words[0]} {words[1]} ago" if us >= 500_000 else "now"


def length(seconds: float | None) -> str:
    """Return a duration as text."""
    return "" if seconds is None else took(round(seconds * 1e6))


def with_progress(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield items under a progress bar, which only a terminal shows."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield from items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield from bar
