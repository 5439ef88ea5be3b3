"""`mainspring nodes`: list the processes that work on a store; quiet, resume or stop them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import FAILED, CommandFailed, command
from mainspring.cli.common.output import Column, ago, echo, print_json, table
from mainspring.cli.common.target import json_option, on_app, opened, target_options, why_option
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import duration
from mainspring.errors import NodeNotFound

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobstores.base import NodeInfo

__all__ = ["node_cells", "node_data", "nodes"]


@click.group(invoke_without_command=True)
@json_option
@target_options
@click.pass_context
def nodes(context: click.Context, as_json: bool, where: str | None, name: str) -> None:
    """Show the nodes of a store: the queues that they serve, and when each sent its last heartbeat.

    \b
    Examples:
      mainspring nodes --app shop:app
      mainspring nodes quiet web-1:2101 --app shop:app
    """
    if context.invoked_subcommand is None:
        _list(as_json, where, name)


def _list(as_json: bool, where: str | None, name: str) -> None:
    with opened(where, name) as app:
        found, now = sorted(app.nodes(), key=lambda node: (node.host, node.pid)), app.now()
    if as_json:
        print_json([node_data(node, now) for node in found])
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
            rows.append([node.host, str(node.pid), *node_cells(node, now), node.version, "; ".join(says)])
        table(columns, rows)
    else:
        click.echo(f"no node is alive\nTry: {command('doctor')}", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)


def node_data(node: NodeInfo, now: int) -> dict[str, Any]:
    """Return a node as data."""
    return {
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


def node_cells(node: NodeInfo, now: int) -> list[str]:
    """Return the cells of a node: state, uptime, last heartbeat, queues."""
    served = ", ".join(node.queues) or "none: it only schedules"
    return [node.state, duration(now - node.started_at), ago(now - node.beat_at), served]


# -- orders ----------------------------------------------------------------------------------------------------------


def _ordering(func: Any) -> Any:
    return click.argument("node", metavar="NODE")(why_option(on_app(func)))


def _order(app: Mainspring, give: Callable[[str], list[str]], node: str) -> None:
    """Give an order, and print which nodes follow it and when."""
    try:
        found = give(node)
    except NodeNotFound as error:
        raise CommandFailed(str(error), command("nodes")) from None
    processes = "1 process follows" if len(found) == 1 else f"{len(found)} processes follow"
    echo(f"{processes} within {app.lease / 3:.0f} s: {', '.join(visible(each) for each in found)}")


@nodes.command()
@_ordering
def quiet(app: Mainspring, node: str) -> None:
    """Let a node fire and claim nothing until it is resumed; its started runs go on.

    NODE is HOST:PID of a process or of a sentinel, or the id of a node. All worker processes of a sentinel follow
    together.

    \b
    Example:
      mainspring nodes quiet web-1:2101 --why "deploy at noon" --app shop:app
    """
    _order(app, app.quiet_node, node)


@nodes.command()
@_ordering
def resume(app: Mainspring, node: str) -> None:
    """Let a quiet node fire and claim again.

    \b
    Example:
      mainspring nodes resume web-1:2101 --app shop:app
    """
    _order(app, app.resume_node, node)


@nodes.command()
@_ordering
def stop(app: Mainspring, node: str) -> None:
    """Let a node finish its started runs, give back the others, and end.

    A `mainspring worker` ends as after a first SIGTERM. A process that called app.start() goes on without its node.

    \b
    Example:
      mainspring nodes stop web-1:2101 --app shop:app
    """
    _order(app, app.stop_node, node)
