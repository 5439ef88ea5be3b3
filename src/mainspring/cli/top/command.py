"""`mainspring top`: show a store live, and act on the chosen row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from mainspring.cli.common.output import Column, echo, print_json, table
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.visible import visible
from mainspring.cli.top.keys import Keyboard, has_terminal
from mainspring.cli.top.snapshot import COLUMNS, SECTIONS, Snapshot, take
from mainspring.errors import StoreUnavailable

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["print_once", "top", "watch"]

_CUT: Final = ("queue", "job", "when", "node", "queues", "call", "says")


@click.command()
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print it once, as without a terminal.")
@json_option
@on_app
def top(app: Mainspring, interval: float, once: bool, as_json: bool) -> None:
    """Watch queues, jobs, nodes and what happened last, and act on them by single keys.

    Tab goes to the next section, the arrow keys (or j and k) to another row. p pauses or resumes a queue or a job, r
    sends a run back or runs a job now, c cancels a run, s skips the next fire of a job, space holds, q quits. Without a
    terminal it prints once.

    \b
    Example:
      mainspring top --app shop:app
    """
    if as_json:
        return print_json(take(app).to_json())
    if once or not has_terminal():
        return print_once(take(app))
    return watch(app, interval)


def print_once(snapshot: Snapshot) -> None:
    """Print a snapshot as tables."""
    echo(str(visible(snapshot.title)))
    for section in SECTIONS:
        rows = snapshot.rows[section]
        if rows:
            echo()
            columns = [Column(title, cut=title in _CUT) for title in COLUMNS[section]]
            table(columns, [row.cells for row in rows])


def watch(app: Mainspring, interval: float) -> None:
    """Show an app live in this terminal until the user quits."""
    from rich.console import Console
    from rich.live import Live

    from mainspring.cli.top.screen import Screen

    console, screen = Console(), Screen(app)
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        due = 0.0
        try:
            while True:
                try:
                    if not screen.held and time.monotonic() >= due:
                        screen.show(take(app))
                        due = time.monotonic() + interval
                except StoreUnavailable as error:
                    screen.message = f"the store does not answer: {visible(str(error))}"
                    due = time.monotonic() + interval
                live.update(screen.draw(console.width, console.height), refresh=True)
                key = keyboard.read(max(0.05, due - time.monotonic()))
                if key is None:
                    continue
                try:
                    if not screen.press(key):
                        return
                    due = 0.0 if not screen.held else due
                except StoreUnavailable as error:
                    screen.message = f"the store does not answer: {visible(str(error))}"
        except KeyboardInterrupt:
            return
