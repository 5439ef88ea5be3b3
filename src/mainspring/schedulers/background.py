"""A scheduler that runs in the background of a program."""

from __future__ import annotations

from mainspring.schedulers.base import BaseScheduler

__all__ = ["BackgroundScheduler"]


class BackgroundScheduler(BaseScheduler):
    """Runs on threads of its own; `start` returns at once."""

    # APScheduler's option. It changes nothing here: started runs always end before the program does.
    _options = frozenset({"daemon"})
