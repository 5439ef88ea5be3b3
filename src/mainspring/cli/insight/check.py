"""`mainspring check`: fail a deploy whose code would strand stored jobs or runs."""

from __future__ import annotations

import sys

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed
from mainspring.cli.common.output import print_json
from mainspring.cli.common.target import json_option, load_app, opened, target_of, target_options

__all__ = ["check"]


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option(
    "--beside", multiple=True, metavar="MODULE:APP", help="Another app on the same store, which keeps its own work; "
    "may be repeated.",
)  # fmt: skip
@target_options
@json_option
def check(target: str | None, beside: tuple[str, ...], where: str | None, name: str, as_json: bool) -> None:
    """Compare the stored jobs, runs and schedules with the code of an app; change nothing.

    Ends with 1 if the code lacks a task that is stored, does not take stored arguments, cannot read a record, or no
    longer declares a schedule; with 3 if the store does not answer. A store that is not there yet is fine.

    \b
    Example:
      mainspring check shop:app && ./deploy.sh
      mainspring check shop:app --beside blog:app
    """
    import msgspec

    from mainspring.app.insight.checking import check_code
    from mainspring.app.insight.doctor import Finding, Mark
    from mainspring.cli.insight.doctor import show_findings
    from mainspring.jobstores.opening import absent_file

    place = target_of(target or where)
    if "://" in place:
        raise CommandFailed("a URL has no code to compare with; name the app", "mainspring check MODULE:APP", USAGE)
    others = [load_app(each) for each in beside]
    with opened(place, name, must_exist=False) as app:
        absent = absent_file(app.url)
        findings = (
            check_code(app, others)
            if absent is None
            else [Finding(Mark.OK, "store", f"there is no file {absent} yet, so nothing can be stranded")]
        )
    if as_json:
        print_json(msgspec.to_builtins(findings))
    else:
        show_findings(findings)
    sys.exit(FAILED if any(each.mark == Mark.PROBLEM for each in findings) else 0)
