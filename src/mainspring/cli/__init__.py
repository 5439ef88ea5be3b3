"""The command line: one module per group of verbs, each imported when it is called."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

from mainspring import __version__
from mainspring.cli.common import OUTPUT_ERRORS
from mainspring.cli.common.verbs import VerbGroup

__all__ = ["main"]

_VERBS: Final = {
    "broken": ("mainspring.cli.broken", "broken", "List, restore or discard records that were set aside."),
    "check": ("mainspring.cli.insight.check", "check", "Fail a deploy whose code would strand stored work."),
    "cron": ("mainspring.cli.insight.cron", "cron", "Say what a crontab expression means."),
    "status": ("mainspring.cli.status", "status", "Show queues, nodes and counts of a store."),
    "doctor": ("mainspring.cli.insight.doctor", "doctor", "Say what is wrong with an app or a store, and what to do."),
    "worker": ("mainspring.cli.worker", "worker", "Execute the runs of an app's queues, in worker processes."),
    "init": ("mainspring.cli.init", "init", "Write a small app to begin with."),
    "dev": ("mainspring.cli.dev", "dev", "Work and schedule in one process, which starts again when a file changes."),
    "completion": ("mainspring.cli.completion", "completion", "Have a shell complete verbs and options."),
    "demo": ("mainspring.cli.demo", "demo", "Watch a small shop at work, in one process."),
    "enqueue": ("mainspring.cli.calling", "enqueue", "Have a task called by a worker."),
    "call": ("mainspring.cli.calling", "call", "Have a task called by a worker, and wait for its result."),
    "db": ("mainspring.cli.db", "db", "Check the records of a store, migrate it, delete runs past their retention."),
    "move": ("mainspring.cli.move", "move", "Move jobs and runs to another store, while nodes work."),
    "top": ("mainspring.cli.top", "top", "Watch jobs, queues, nodes and runs live, and act on them."),
    "runs": ("mainspring.cli.runs", "runs", "Find runs; retry, cancel, change, delete or wait for them."),
    "jobs": (
        "mainspring.cli.jobs",
        "jobs",
        "Look at jobs; add, edit, pause, resume, skip, remove them, or run them now.",
    ),
    "queues": ("mainspring.cli.queues", "queues", "Show the runs that wait in queues; pause, resume or purge queues."),
    "nodes": ("mainspring.cli.nodes", "nodes", "Show the nodes of a store; make them quiet or stop them."),
    "simulate": ("mainspring.cli.insight.simulate", "simulate", "Show what the schedules would do in the days ahead."),
    "audit": ("mainspring.cli.insight.audit", "audit", "Show who did what, when and why."),
    "explain": ("mainspring.cli.insight.explain", "explain", "Say why something has or has not run, and what to do."),
    "tasks": ("mainspring.cli.tasks", "tasks", "Show the tasks of an app."),
    "errors": ("mainspring.cli.insight.errors", "errors", "Group failed runs by their error."),
    "import": ("mainspring.cli.importing", "import_", "Take over the jobs of APScheduler 3."),
    "dashboard": ("mainspring.cli.dashboard", "dashboard", "See and steer everything in a browser."),
    "tracker": ("mainspring.cli.tracker", "tracker", "Look into the tables of status trackers."),
}


class _Verbs(VerbGroup):
    """A group that finds verbs without importing all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, name, _ = _VERBS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, _VERBS[verb][2]) for verb in sorted(_VERBS)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            from mainspring.cli.common.habits import with_habit

            raise with_habit(error) from None
        except OSError as error:
            if error.errno not in OUTPUT_ERRORS:
                raise
            with suppress(OSError, ValueError):  # flushing the buffer would fail again when Python exits
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.ClickException(f"the output cannot be written: {error.strerror}") from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from mainspring.cli.common.habits import with_habit

            raise with_habit(error) from None


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring")
def main() -> None:
    """Schedule, queue, run and track jobs.

    Exit codes: 0 all went well, 1 it failed or nothing was found, 2 the command was wrong, 3 the store does not answer.
    """
