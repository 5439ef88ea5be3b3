"""`mainspring top`: jobs, queues, nodes and what happened last, live."""

from mainspring.cli.top.command import top

__all__ = ["top"]
