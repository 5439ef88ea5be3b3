"""`mainspring import`: the command, the stores of APScheduler 3, and its pickles."""

from mainspring.cli.importing.command import import_

__all__ = ["import_"]
