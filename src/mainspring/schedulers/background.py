"""A scheduler that runs beside the program's own work."""

from __future__ import annotations

from mainspring.schedulers.base import BaseScheduler

__all__ = ["BackgroundScheduler"]


class BackgroundScheduler(BaseScheduler):
    """Runs on threads of its own; `start` returns at once."""

    # APScheduler's option; here what has started is always let end, whatever it says.
    _options = frozenset({"daemon"})
