"""`mainspring doctor`: what survives, what is wrong, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final

import click

from mainspring.cli.visible import visible
from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.app.doctor import Diagnosis, Finding

__all__ = ["doctor"]

_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("where", metavar="MODULE:APP|URL")
@click.option("--name", default="mainspring", show_default=True, help="The app's name, if WHERE is a URL.")
@click.option("--require", default=None, help="A level below which it is a problem: durable, replicated(2).")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(where: str, name: str, require: str | None, as_json: bool) -> None:
    """Say what is wrong with an app, or with the store at a URL, and what to do; change nothing.

    Ends with 1 if there is a problem.
    """
    import msgspec

    from mainspring.app import Mainspring
    from mainspring.app.doctor import diagnose
    from mainspring.app.locating import find_app
    from mainspring.jobstores.health import check_requirement

    try:
        if require is not None:
            check_requirement(require)
        url = "://" in where
        with Mainspring(where, name=name) if url else find_app(where) as app:
            found = diagnose(app, code=not url, require=require, path=None if url else where)
    except (MainspringError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({**msgspec.to_builtins(found), "ok": found.ok}, indent=2))
    else:
        _show(found)
    sys.exit(0 if found.ok else 1)


def _show(found: Diagnosis) -> None:
    plain = bool(os.environ.get("NO_COLOR")) or None  # None: colours on a terminal only
    for finding in found.findings:
        mark = click.style(f"{finding.mark:<7}", fg=_COLOURS[finding.mark])
        click.echo(f"{mark}  {_paragraph(finding)}", color=False if plain else None)
    counts = {mark: found.count(mark) for mark in ("problem", "warning")}
    words = [f"{number} {mark}{'s' * (number != 1)}" for mark, number in counts.items()]
    click.echo(f"{found.level}; {', '.join(words)}")


def _paragraph(finding: Finding) -> str:
    """Lay out a finding beside its mark, its advice below."""
    # A pipe is as wide as its lines, so that grep finds whole sentences.
    width = max(40, shutil.get_terminal_size().columns - 21) if sys.stdout.isatty() else sys.maxsize
    lines = textwrap.wrap(_one_line(finding.text), width, break_long_words=False, break_on_hyphens=False)
    if finding.advice:
        lines += textwrap.wrap(
            f"-> {_one_line(finding.advice)}",
            width,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return f"{finding.subject:<10}  " + ("\n" + " " * 21).join(lines)


def _one_line(text: str) -> str:
    return str(visible(" ".join(text.split())))
