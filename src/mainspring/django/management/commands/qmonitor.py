"""`manage.py qmonitor`: show queues, schedules, clusters and the latest events, live."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from mainspring.cli.top.command import print_once, watch
from mainspring.cli.top.keys import has_terminal
from mainspring.cli.top.snapshot import take

__all__ = ["Command"]


class Command(BaseCommand):
    """The command that shows the project's app live, as `mainspring top` does."""

    help = "Watch clusters, queues and tasks, and act on them by single keys; q quits."

    requires_system_checks: tuple[str, ...] = ()  # `manage.py check` reports problems once, instead of every command

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--run-once", action="store_true", help="Print it once, as without a terminal.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show the live screen."""
        from mainspring.django.app import app

        if options["run_once"] or not has_terminal():
            print_once(take(app))
        else:
            watch(app, 1.0)
