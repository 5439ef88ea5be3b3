"""`manage.py mainspring_import_django_q`: take over the contents of django-q's tables."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

__all__ = ["Command"]


class Command(BaseCommand):
    """The command that takes over queued and finished tasks, and schedules unless both use one table."""

    help = (
        "Take over the tasks in django-q's tables. Stop its cluster first. Without --write it only says what it would "
        "do. Pickles are read without importing or calling anything that they name."
    )

    requires_system_checks: tuple[str, ...] = ()  # `manage.py check` reports problems once, instead of every command

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--write", action="store_true", help="Do it, not only say it.")
        parser.add_argument("--database", help="The alias of django-q's database; by default that of the store.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Take over the data, or report what would be taken over."""
        from mainspring.django.conf import conf  # these modules read the settings
        from mainspring.django.importing.django_q import Importer
        from mainspring.django.models import Schedule

        importer = Importer(options["database"] or conf().alias or "default", write=options["write"])
        counts = {
            "queued": importer.take_queued(),
            "finished": importer.take_finished(),
            "schedules": importer.take_schedules(Schedule),
        }
        for line in importer.refused:
            self.stderr.write(f"refused: {line}")
        words = ", ".join(f"{number} {what}" for what, number in counts.items())
        self.stdout.write(f"{'taken over' if options['write'] else 'would be taken over'}: {words}")
        self.stdout.write(f"refused: {len(importer.refused)}")
        if not options["write"]:
            self.stdout.write("nothing is written yet; to do it: manage.py mainspring_import_django_q --write")
        if importer.refused:
            sys.exit(1)
