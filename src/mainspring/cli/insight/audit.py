"""`mainspring audit`: who did what, when and why."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed, command
from mainspring.cli.common.output import Column, print_json, table
from mainspring.cli.common.target import json_option, opened, target_options

if TYPE_CHECKING:
    from mainspring.app.insight.acting import AuditEntry

__all__ = ["audit"]

KINDS = ("run", "job", "queue", "node")
_DID: Final = {
    "cancel": "cancelled", "retry": "retried", "delete": "deleted", "purge": "purged", "run_now": "ran now",
    "pause_queue": "paused", "resume_queue": "resumed", "pause_job": "paused", "resume_job": "resumed",
    "modify_job": "changed", "remove_job": "removed", "backfill": "backfilled",
    "limit_queue": "limited", "set_limit": "limited",
    "quiet_node": "made quiet", "resume_node": "resumed", "stop_node": "stopped",
}  # fmt: skip
"""Acts in plain words; JSON uses the app's verbs."""


@click.command()
@click.argument("subject", metavar="[KIND:NAME]", required=False)
@click.option("--since", "hours", default=None, type=click.FloatRange(min=0), metavar="HOURS", help="How far back.")
@click.option("-n", "--number", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@json_option
@target_options
def audit(subject: str | None, hours: float | None, number: int, as_json: bool, where: str | None, name: str) -> None:
    """Show who did what, when and why: pauses, cancels, retries, changes; newest first.

    KIND:NAME shows what was done to one thing, such as queue:mail, job:nightly or run:ID.

    \b
    Examples:
      mainspring audit --app shop:app
      mainspring audit queue:mail --since 24 --app shop:app
    """
    kind, colon, target = (subject or "").partition(":")
    if subject is not None and (kind not in KINDS or not colon or not target):
        raise CommandFailed(f"{subject!r} names no run, job, queue or node; write queue:mail", command("audit"), USAGE)
    wanted: dict[str, Any] = {} if subject is None else {"kind": kind, "target": target}
    with opened(where, name) as app:
        found = app.audit(since=None if hours is None else timedelta(hours=hours), limit=number, **wanted)
    if as_json:
        print_json([{key: value for key, value in entry._asdict().items() if key != "record"} for entry in found])
    elif found:
        columns = (
            Column("when"), Column("who", cut=True), Column("did"), Column("to", cut=True), Column("why", cut=True),
        )  # fmt: skip
        table(columns, [_row(entry) for entry in found])
    else:
        click.echo("nobody did anything that is kept", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)


def _row(entry: AuditEntry) -> tuple[str, ...]:
    target = f"{entry.kind}:{entry.target}"
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S %Z}",
        entry.by,
        _DID.get(entry.verb, entry.verb.replace("_", " ")),
        target,
        entry.why,
    )
