"""`mainspring explain`: say in a sentence why something has or has not run, and what to do."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import FAILED, command
from mainspring.cli.common.output import echo, fields, print_json
from mainspring.cli.common.target import json_option, on_app
from mainspring.cli.common.visible import visible

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.insight.explanation import Explanation
    from mainspring.core.insight.story import Episode

__all__ = ["explain"]

PARTS_SHOWN: Final = 5
"""The number of problems to show, the most pressing first; JSON has them all."""


@click.command()
@click.argument("subject", metavar="[RUN|JOB|QUEUE|NODE]", required=False)
@click.option("-b", "--brief", is_flag=True, help="Print the sentence only.")
@json_option
@on_app
def explain(app: Mainspring, subject: str | None, brief: bool, as_json: bool) -> None:
    """Say why a run, a job, a queue or a node stands as it does; without one, what needs you.

    Where a name means several things, say which: queue:mail. Ends with 1 if there is nothing of that name, or, without
    a name, if something needs you.

    \b
    Examples:
      mainspring explain --app shop:app
      mainspring explain nightly_report --app shop:app
      mainspring explain queue:mail --app shop:app
    """
    told = app.explain(subject)
    story = app.story(told.id) if told.kind == "run" and not brief else ()
    if as_json:
        print_json({**told.to_dict(), "story": [_to_json(each) for each in story]})
    else:
        _show(told, story, brief)
    if told.state in ("unknown", "needs you"):
        raise click.exceptions.Exit(FAILED)


def _to_json(episode: Episode) -> dict[str, Any]:
    import msgspec

    return {**msgspec.structs.asdict(episode), "seconds": episode.seconds}


def _show(told: Explanation, story: tuple[Episode, ...], brief: bool) -> None:
    if told.parts:
        echo(f"{len(told.parts)} thing{'s need' if len(told.parts) != 1 else ' needs'} you")
        for part in told.parts[:PARTS_SHOWN]:
            about = part.about if part.ids else f"{part.kind} {part.id}"
            echo(f"\n{click.style(str(visible(about)), bold=True)}\n{_wrapped(part.sentence)}")
            _actions(part)
        if len(told.parts) > PARTS_SHOWN:
            echo(f"\n{len(told.parts) - PARTS_SHOWN:,} more: {command('explain --json')}")
        return
    echo(_wrapped(told.sentence))
    if brief:
        return
    if told.facts:
        echo()
        fields([(fact.name, fact.value) for fact in told.facts])
    if len(story) > 1:
        echo("\nwhat happened")
        for episode in story:
            echo(f"  {episode.since:%Y-%m-%d %H:%M:%S}  {visible(episode.text)}")
    _actions(told)


def _actions(told: Explanation) -> None:
    for action in told.actions:
        words = f"mainspring {action}" if action.startswith("worker ") else command(action)  # it already names the app
        echo(click.style(f"-> {visible(words)}", fg="cyan"))


def _wrapped(text: str) -> str:
    """Return a sentence that is wrapped on a terminal, and one line in a pipe."""
    shown = str(visible(" ".join(text.split())))
    if not sys.stdout.isatty():
        return shown
    width = max(40, shutil.get_terminal_size().columns)
    return "\n".join(textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False))
