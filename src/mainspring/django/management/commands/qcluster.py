"""`manage.py qcluster`: run a sentinel in the foreground, over worker processes, with the project's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils.autoreload import get_child_arguments

from mainspring.cli.dev import Files, Reloader
from mainspring.cli.worker import parse_queues
from mainspring.cluster.log_output import set_up_logging
from mainspring.cluster.sentinel import Sentinel
from mainspring.cluster.settings import Settings
from mainspring.django.conf import conf, read
from mainspring.django.importing.q_cluster import CLUSTER_VARIABLE
from mainspring.errors import MainspringError

__all__ = ["APP", "Command", "cluster_settings"]

APP: Final = "mainspring.django.app:app"
"""The path from which worker processes import the project's app."""
FATAL: Final = ("mainspring.E001", "mainspring.E002", "mainspring.E004", "mainspring.E007")


class Command(BaseCommand):
    """The command that executes runs and fires schedules."""

    help = "Execute enqueued tasks and fire schedules, in worker processes. Ctrl-C lets started tasks end."
    # The code below reads the messages about settings; checks of the whole project would run at every restart.
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--run-once", action="store_true", help="End when nothing is left to do.")
        parser.add_argument("-n", "--name", dest="cluster_name", help="The cluster (queue) to serve; see ALT_CLUSTERS.")
        parser.add_argument("--queues", help="Queues to serve, as in mail,default:4; all of the project's by default.")
        parser.add_argument("--processes", type=int, help="Worker processes.")
        parser.add_argument("--threads", type=int, help="Threads in each worker process.")
        parser.add_argument("--reload", action="store_true", help="Start again when a Python file changes.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        if options["cluster_name"]:  # the worker processes inherit it
            os.environ[CLUSTER_VARIABLE] = options["cluster_name"]
        if options["reload"]:
            self._run_again_and_again()
        try:
            made = cluster_settings(options)
            if is_private():
                run_here(made)
                return
            set_up_logging(made.log_level, made.log_format)
            sentinel = Sentinel(made)
        except (MainspringError, ValueError) as error:
            raise CommandError(str(error)) from error
        code = sentinel.run()
        if code:
            sys.exit(code)

    def _run_again_and_again(self) -> None:
        """Run this command without --reload in a child process, and replace that when a file changes."""
        command = [word for word in get_child_arguments() if word != "--reload"]
        sys.exit(Reloader(command, Files(Path(getattr(settings, "BASE_DIR", None) or Path.cwd()))).run())


def is_private() -> bool:
    """Return True if only this process sees enqueued runs: in an in-memory database or an open transaction."""
    alias = conf().alias
    if alias is None or alias not in connections.databases:
        return False
    connection = connections[alias]
    in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()
    return bool(connection.in_atomic_block or in_memory)


def run_here(made: Settings) -> None:
    """Execute the due runs in this thread, for a test; raise ValueError unless the cluster is to end by itself."""
    if not made.burst:
        raise ValueError(
            "worker processes cannot see this database, which is in memory or in an open transaction; in a test, use "
            "--run-once or mainspring.django.testing.run_queue()"
        )
    from mainspring.django.testing import run_queue  # django.setup() may be running when this module is imported

    run_queue(*(made.queues or ()))


def cluster_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings of a cluster: the project's, with the options of the command."""
    name = options.get("cluster_name")
    found = read(cluster=name) if name else conf()
    wrong = [message for message in found.messages if message.id in FATAL]
    if wrong:
        raise ValueError("\n".join(f"{message.msg}" for message in wrong))
    return Settings(
        app=APP,
        queues=_queues(options),
        processes=options.get("processes") or found.processes,
        threads=options.get("threads") or found.threads,
        schedule=found.schedule,
        burst=bool(options.get("run_once")),
        max_runs=found.max_runs,
        max_rss=found.max_rss,
        log_level=_log_level(options, found.log_level),
    )


def _queues(options: Mapping[str, Any]) -> dict[str, int | None] | None:
    """Return the queues to serve; None for all queues that the project declares."""
    if options.get("queues"):
        return parse_queues(options["queues"])
    name = options.get("cluster_name") or os.environ.get(CLUSTER_VARIABLE)
    if name:
        return parse_queues(name)
    others = (getattr(settings, "Q_CLUSTER", None) or {}).get("ALT_CLUSTERS") or {}
    if not others:
        return None
    # Those clusters are started by name, with their own settings.
    from mainspring.django.app import app  # django.setup() may be running when this module is imported

    return {queue: None for queue in app.declared_queues() if queue not in others}


def _log_level(options: Mapping[str, Any], level: str | None) -> str | None:
    """Return the level of the log on stderr; None if the project's LOGGING handles our loggers."""
    if "mainspring" in (getattr(settings, "LOGGING", None) or {}).get("loggers", {}):
        return None
    by_verbosity = {0: "error", 1: "info", 2: "info", 3: "debug"}
    return level.lower() if level else by_verbosity[options.get("verbosity", 1)]
