"""Tell from an error of a Redis server whether the server did nothing, and why."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

__all__ = ["CONNECTION", "PASSING", "REFUSALS", "refusal"]

CONNECTION: Final = (RedisConnectionError, RedisTimeoutError, OSError)
# The first word of each error by which the server says that it did nothing, and its explanation.
REFUSALS: Final = {
    "READONLY": "is a read-only replica; connect to the primary",
    "LOADING": "is still loading its data",
    "BUSY": "is busy with a script of somebody else's",
    "OOM": "is out of memory; raise maxmemory or delete data",
    "MASTERDOWN": "is a replica that has lost its primary",
    "MISCONF": "refuses writes because it could not save to disk",
    "NOREPLICAS": "refuses writes because too few replicas are connected",
    "CLUSTERDOWN": "belongs to a Redis Cluster that is down",
    "TRYAGAIN": "is moving these keys to another server",
    "NOPERM": "does not permit this user to do that",
    "NOAUTH": "wants a password",
    "WRONGPASS": "refuses the user name and password",
    "MOVED": "has given these keys to another server",
    "ASK": "is moving these keys to another server",
}
# Before version 8, redis-py identifies these errors by their class alone.
_KINDS: Final[dict[type[BaseException], str]] = {
    AskError: "ASK",
    BusyLoadingError: "LOADING",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    MovedError: "MOVED",
    NoPermissionError: "NOPERM",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}
_INSIDE: Final = re.compile(r"Error running script .*-(READONLY|OOM|MISCONF|MASTERDOWN|NOREPLICAS) ")
PASSING: Final = frozenset(
    ["READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"]
)
"""The refusals that end without our help, for example when another server takes over."""


def refusal(error: BaseException) -> str:
    """Return the key of REFUSALS for an error by which the server says that it did nothing; '' for any other."""
    said = str(error)
    # redis-py removes the first word from the errors that it knows. A server before version 7 puts the word inside a
    # text about the script.
    inside = _INSIDE.search(said)
    words = (said.partition(" ")[0], inside and inside[1], _KINDS.get(type(error)))
    return next((word for word in words if word in REFUSALS), "") or ""
