"""Listen for changes of a collection with a change stream; without one, assume a change every second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from mainspring.jobstores.mongodb.server import Document

__all__ = ["follow"]

AWAIT_MS: Final = 500
LOOK_SECONDS: Final = 1.0
_NO_STREAMS: Final = (40573, 59, 115)
"""The error codes of a server that is not in a replica set, or has no change streams at all."""


def follow(
    collection: Collection[Document],
    steps: Sequence[dict[str, Any]],
    tell: Callable[[Document | None], None],
    stopped: threading.Event,
) -> None:
    """Call `tell` with each change that passes the steps, until the event is set.

    Call it with None when anything may have changed unseen: at first, and every second on a server without streams.
    """
    try:
        with collection.watch(steps, max_await_time_ms=AWAIT_MS) as stream:
            tell(None)  # a change may have come before the stream was open
            while not stopped.is_set() and stream.alive:
                change = stream.try_next()
                if change is not None:
                    tell(dict(change))
    except OperationFailure as error:
        if error.code not in _NO_STREAMS:
            raise
        while not stopped.wait(LOOK_SECONDS):
            tell(None)
