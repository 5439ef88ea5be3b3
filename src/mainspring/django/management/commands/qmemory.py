"""`manage.py qmemory`: show the memory of the worker processes, as they announce it."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser

from mainspring.cli.common.output import Column, echo, table
from mainspring.jobstores.base import NodeInfo

__all__ = ["Command"]

PAUSE_SECONDS: Final = 5.0
"""Seconds between two prints: a node announces its memory with each heartbeat."""


class Command(BaseCommand):
    """The command that prints the memory of each cluster, and optionally of its workers."""

    help = "Watch the memory of clusters; Ctrl-C ends it."

    requires_system_checks: tuple[str, ...] = ()  # `manage.py check` reports problems once, instead of every command

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--run-once", action="store_true", help="Print it once.")
        parser.add_argument("--workers", action="store_true", help="Show each worker process.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the memory once, or every few seconds."""
        from mainspring.django.app import app

        try:
            while True:
                _print([node for node in app.nodes() if node.state != "silent"], each=options["workers"])
                if options["run_once"]:
                    return
                time.sleep(PAUSE_SECONDS)
        except KeyboardInterrupt:
            return


def _print(nodes: list[NodeInfo], *, each: bool) -> None:
    clusters: dict[str, list[NodeInfo]] = defaultdict(list)
    for node in nodes:
        clusters[node.cluster or node.id].append(node)
    rows = []
    for name, workers in sorted(clusters.items()):
        rows.append([name, str(len(workers)), _megabytes(sum(node.rss for node in workers))])
        if each:
            rows += [[f"  {node.host}:{node.pid}", "", _megabytes(node.rss)] for node in workers]
    if rows:
        table((Column("cluster", cut=True), Column("workers", right=True), Column("memory", right=True)), rows)
    else:
        echo("no cluster is running; start one: manage.py qcluster")


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size else "?"
