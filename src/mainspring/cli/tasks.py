"""`mainspring tasks`: show the tasks that an app knows."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.failing import USAGE, CommandFailed
from mainspring.cli.common.output import Column, print_json, table
from mainspring.cli.common.target import json_option, opened, target_of, target_options
from mainspring.core.showing.redaction import parameters_text

if TYPE_CHECKING:
    from mainspring.app.declaring.task import Task

__all__ = ["tasks"]


@click.command()
@json_option
@target_options
def tasks(as_json: bool, where: str | None, name: str) -> None:
    """Show the tasks of an app with their parameters and options; the store is not needed.

    \b
    Example:
      mainspring tasks --app shop:app
    """
    target = target_of(where)
    if "://" in target:
        raise CommandFailed(
            "a store does not know the tasks of its app; name the app", "mainspring tasks --app MODULE:APP", USAGE
        )
    with opened(target, name, must_exist=False, needs_key=False) as app:
        own = [task for task in app.tasks if not task.name.startswith("mainspring:")]
        found = [_to_json(task) for task in sorted(own, key=lambda task: task.name)]
    if as_json:
        print_json(found)
    elif found:
        columns = (
            Column("task"), Column("queue"), Column("retries", right=True), Column("timeout", right=True),
            Column("parameters", cut=True, optional=True), Column("about", cut=True, optional=True),
        )  # fmt: skip
        table(columns, [_row(task) for task in found])
    else:
        raise CommandFailed("the app has no tasks; is the module imported that declares them?", "mainspring worker -h")


def _row(task: dict[str, Any]) -> list[str]:
    timeout = "" if task["timeout"] is None else f"{task['timeout']:g} s"
    return [task["name"], task["queue"], str(task["retries"]), timeout, task["parameters"], task["about"]]


def _to_json(task: Task[..., Any]) -> dict[str, Any]:
    policy = task.defaults.policy
    return {
        "name": task.name,
        "queue": task.defaults.queue,
        "retries": policy.retries,
        "timeout": policy.timeout,
        "priority": policy.priority,
        "async": task.is_async,
        "parameters": parameters_text(task.func, annotations=False),
        "about": (inspect.getdoc(task.func) or "").partition("\n")[0],
    }
