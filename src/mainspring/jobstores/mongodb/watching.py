"""Listen for changes of a collection: by a change stream, or where there is none, by looking every second."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from mainspring.jobstores.mongodb.server import Document
from mainspring.jobstores.split import ChangeSignal

__all__ = ["follow"]

AWAIT_MS: Final = 500
LOOK_SECONDS: Final = 1.0
_NO_STREAMS: Final = (40573, 59, 115)
"""The codes of a server without a replica set, or without change streams at all."""


def follow(
    collection: Collection[Document], wanted: Sequence[dict[str, Any]], changes: ChangeSignal, stopped: threading.Event
) -> None:
    """Call `changes.stir` for each change that matches, until the event is set."""
    try:
        with collection.watch([*wanted, {"$project": {"_id": 1}}], max_await_time_ms=AWAIT_MS) as stream:
            changes.stir()  # something may have changed before the stream was open
            while not stopped.is_set() and stream.alive:
                if stream.try_next() is not None:
                    changes.stir()
    except OperationFailure as error:
        if error.code not in _NO_STREAMS:
            raise
        while not stopped.wait(LOOK_SECONDS):
            changes.stir()
