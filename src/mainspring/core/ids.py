"""Ids of jobs and runs: checked, pinned to a shard. `node.new_ids` makes them."""

from __future__ import annotations

import re
from typing import Any, Final

from mainspring.errors import ConfigurationError

__all__ = ["FOLLOW_UP", "NAME_CHARS", "check_id", "check_name", "check_run_id", "check_text", "pin"]

NAME_CHARS: Final = 255
"""Characters that a name may have at most."""

FOLLOW_UP: Final = re.compile(r"~(?:!?[0-9]*|hook[0-9]*)\Z")
"""The end of the id of a part of a flow (a step, a join, the marker), or of a hook."""


def check_id(value: Any) -> str:
    """Check a job's id."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"id must be a text that is not empty, not {value!r}")
    if len(value) > 255:
        raise ValueError(f"id is {len(value)} characters long; at most 255 are kept")
    return check_text("id", value)


def check_name(what: str, value: Any, most: int = NAME_CHARS) -> str:
    """Check a name that somebody gives: a text that is not empty and not too long."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what} must be a text that is not empty, not {value!r}")
    if len(value) > most:
        raise ValueError(f"{what} has {len(value)} characters; at most {most} are kept")
    return value


def check_text(name: str, value: str) -> str:
    """Check a text by which stores find things."""
    if "\0" in value:
        raise ValueError(f"{name} holds a NUL character, which not every store can keep: {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} holds half a character, which no store can keep: {value!r}") from None
    return value


def check_run_id(value: str) -> str:
    """Check an id that a caller gives a run: it must not look like the id of a part of another run's flow."""
    if FOLLOW_UP.search(value) is not None:
        raise ValueError(f"an id cannot end like that of a step (~1) or a hook (~hook) of another run: {value!r}")
    return check_text("id", value)


def pin(shard: str, id: str) -> str:
    """Return an id that is pinned to `shard`: in a store of several shards, all ids pinned to one live together.

    It is the id behind a tag in braces, `{tenant-7}report`, from which the shard can be read again; an id that has that
    tag already stays as it is.
    """
    if not isinstance(shard, str) or not shard or not {"{", "}"}.isdisjoint(shard):
        raise ConfigurationError(f"{shard!r} cannot be pinned to; name a shard by some text without braces")
    tag = f"{{{shard}}}"
    return id if id.startswith(tag) else tag + id
