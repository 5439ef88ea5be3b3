"""Check the ids of jobs and runs, and pin them to a shard. `node.new_ids` makes new ones."""

from __future__ import annotations

import re
from typing import Any, Final

from mainspring.errors import ConfigurationError

__all__ = ["FOLLOW_UP", "NAME_CHARS", "check_id", "check_name", "check_run_id", "check_text", "pin"]

NAME_CHARS: Final = 255
"""The longest name that a store keeps, in characters."""

FOLLOW_UP: Final = re.compile(r"~(?:!?[0-9]*|hook[0-9]*)\Z")
"""The suffix of an id that marks a hook or a part of a flow (a step, a join or the marker)."""


def check_id(value: Any) -> str:
    """Return a job's id; raise TypeError or ValueError if it is not a text of 1 to 255 characters a store can keep."""
    return check_text("id", check_name("id", value))


def check_name(what: str, value: Any, most: int = NAME_CHARS) -> str:
    """Return a name; raise TypeError if it is empty or not a text, ValueError if it is longer than `most`.

    `what` names the value in the error.
    """
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what} must be a non-empty string, not {value!r}")
    if len(value) > most:
        raise ValueError(f"{what} has {len(value)} characters; at most {most} are kept")
    return value


def check_text(name: str, value: str) -> str:
    """Return a text that stores look records up by; raise ValueError if not every store can keep it."""
    if "\0" in value:
        raise ValueError(f"{name} holds a NUL character, which not every store can keep: {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} holds half a character, which no store can keep: {value!r}") from None
    return value


def check_run_id(value: str) -> str:
    """Return the id that a caller chose for a run; raise ValueError if it looks like another run's step or hook."""
    if FOLLOW_UP.search(value) is not None:
        raise ValueError(f"an id cannot end like that of a step (~1) or a hook (~hook) of another run: {value!r}")
    return check_text("id", value)


def pin(shard: str, id: str) -> str:
    """Pin an id to a shard: a store with several shards keeps all ids pinned to the same one together.

    The result is the id with the shard in braces before it, for example `{tenant-7}report`. An id that already has
    that tag stays as it is.
    """
    if not isinstance(shard, str) or not shard or not {"{", "}"}.isdisjoint(shard):
        raise ConfigurationError(f"{shard!r} cannot be pinned to; name a shard by some text without braces")
    tag = f"{{{shard}}}"
    return id if id.startswith(tag) else tag + id
