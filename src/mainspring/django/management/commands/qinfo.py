"""`manage.py qinfo`: show the clusters, the settings in use, or the ids of the clusters."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from mainspring import __version__
from mainspring.cli.status import gather, show
from mainspring.core.showing.redaction import without_password
from mainspring.django.conf import conf

__all__ = ["Command"]

_HIDDEN = ("secret_key", "messages")


class Command(BaseCommand):
    """The command that shows the project's app once, as `mainspring status` does."""

    help = "Show queues, schedules, clusters and counts."

    requires_system_checks: tuple[str, ...] = ()  # `manage.py check` reports problems once, instead of every command

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--config", action="store_true", help="Print the settings in use, with notes.")
        parser.add_argument("--ids", action="store_true", help="Print the ids of the running clusters.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show the requested information."""
        from mainspring.django.app import app

        if options["config"]:
            self._config()
        elif options["ids"]:
            for cluster in sorted({node.cluster or node.id for node in app.nodes() if node.state != "silent"}):
                self.stdout.write(cluster)
        else:
            show(gather(app))

    def _config(self) -> None:
        found = conf()
        self.stdout.write(f"version: {__version__}")
        for name in found.__struct_fields__:
            value = getattr(found, name)
            if name not in _HIDDEN and value not in (None, (), {}):
                self.stdout.write(f"{name}: {without_password(value) if name == 'url' else value}")
        for message in found.messages:
            self.stdout.write(f"{message.id}: {message.msg}")
