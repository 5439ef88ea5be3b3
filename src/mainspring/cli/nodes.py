"""`mainspring nodes`: list the processes that work on a store."""

from __future__ import annotations

import click

from mainspring.app.doctor import duration
from mainspring.cli.common.output import Column, ago, print_json, table
from mainspring.cli.common.target import FAILED, command, json_option, opened, target_options

__all__ = ["nodes"]


@click.command()
@json_option
@target_options
def nodes(as_json: bool, where: str | None, name: str) -> None:
    """Show the processes that take part: which queues they serve, and when they were last heard.

    \b
    Example:
      mainspring nodes --app shop:app
    """
    with opened(where, name) as app:
        found, now = sorted(app.nodes(), key=lambda node: (node.host, node.pid)), app.now()
    if as_json:
        print_json(
            [
                {
                    "id": node.id,
                    "host": node.host,
                    "pid": node.pid,
                    "state": node.state,
                    "queues": list(node.queues),
                    "version": node.version,
                    "uptime_seconds": max(0, now - node.started_at) / 1e6,
                    "heard_seconds_ago": max(0, now - node.beat_at) / 1e6,
                    "missing": list(node.missing),
                    "stuck": node.stuck,
                }
                for node in found
            ]
        )
    elif found:
        columns = (
            Column("host", cut=True), Column("pid", right=True), Column("state"), Column("up", right=True),
            Column("heard", right=True), Column("queues", cut=True), Column("version", optional=True),
            Column("says", cut=True, optional=True),
        )  # fmt: skip
        rows = []
        for node in found:
            says = [f"does not know {', '.join(node.missing)}"] if node.missing else []
            says += [f"{node.stuck} threads are stuck"] if node.stuck else []
            up, heard = duration(now - node.started_at), ago(now - node.beat_at)
            served = ", ".join(node.queues) or "none: it only schedules"
            rows.append([node.host, str(node.pid), node.state, up, heard, served, node.version, "; ".join(says)])
        table(columns, rows)
    else:
        click.echo(f"no node is alive\nTry: {command('doctor')}", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)
