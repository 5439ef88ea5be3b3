"""A scheduler that runs in the background of another program."""

from __future__ import annotations

from mainspring.schedulers.base import BaseScheduler

__all__ = ["BackgroundScheduler"]


class BackgroundScheduler(BaseScheduler):
    """A scheduler on its own threads; `start` returns at once."""

    # APScheduler's option. It has no effect here: started runs always end before the program does.
    _options = frozenset({"daemon"})
