"""`mainspring top`: show jobs, queues, nodes and the latest events, live."""

from mainspring.cli.top.command import top

__all__ = ["top"]
