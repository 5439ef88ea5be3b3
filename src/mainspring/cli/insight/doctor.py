"""`mainspring doctor`: say what survives a crash, what is wrong, and what to do."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from mainspring.cli.common.failing import FAILED, UNREACHABLE, CommandFailed
from mainspring.cli.common.output import echo, print_json
from mainspring.cli.common.target import json_option, opened, target_of, target_options
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import several
from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.app.insight.doctor import Diagnosis, Finding

__all__ = ["doctor", "show_findings"]

_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("target", metavar="[MODULE:APP|URL]", required=False)
@target_options
@click.option("--require", default=None, help="A level below which it is a problem: durable, replicated(2).")
@json_option
def doctor(target: str | None, where: str | None, name: str, require: str | None, as_json: bool) -> None:
    """Say what is wrong with an app, or with the store at a URL, and what to do; change nothing.

    Ends with 1 if there is a problem, with 3 if the store does not answer.

    \b
    Example:
      mainspring doctor shop:app
    """
    import msgspec

    from mainspring.app.insight.doctor import diagnose
    from mainspring.jobstores.health import check_requirement

    try:
        if require is not None:
            check_requirement(require)
    except MainspringError as error:
        raise CommandFailed(str(error)) from error
    place = target_of(target or where)
    url = "://" in place
    with opened(place, name, must_exist=False, needs_key=False) as app:
        found = diagnose(app, code=not url, require=require, path=None if url else place, alone=True)
    if as_json:
        print_json({**msgspec.to_builtins(found), "ok": found.ok})
    else:
        _show(found)
    sys.exit(UNREACHABLE if not found.reachable else 0 if found.ok else FAILED)


def _show(found: Diagnosis) -> None:
    show_findings(found.findings)
    words = [several(found.count(mark), mark) for mark in ("problem", "warning")]
    click.echo(f"{found.level}; {', '.join(words)}")


def show_findings(findings: Iterable[Finding]) -> None:
    """Print findings, each with its advice."""
    for finding in findings:
        mark = click.style(f"{finding.mark:<7}", fg=_COLOURS[finding.mark])
        echo(f"{mark}  {_paragraph(finding)}")


def _paragraph(finding: Finding) -> str:
    """Lay out a finding beside its mark, with its advice below."""
    # Do not wrap lines in a pipe, so that grep finds whole sentences.
    width = max(40, shutil.get_terminal_size().columns - 21) if sys.stdout.isatty() else sys.maxsize
    wrap = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    lines = wrap(_one_line(finding.text))
    if finding.advice:
        lines += wrap(f"-> {_one_line(finding.advice)}", subsequent_indent="   ")
    return f"{finding.subject:<10}  " + ("\n" + " " * 21).join(lines)


def _one_line(text: str) -> str:
    return str(visible(" ".join(text.split())))
