"""Ids of jobs and runs: made, checked, pinned to a shard."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mainspring.errors import ConfigurationError

__all__ = ["check_id", "new_job_id", "new_run_id", "pin"]

_UUID4_FIXED: Final = 4 << 76 | 2 << 62  # the version and the variant of RFC 4122
_UUID4_FREE: Final = (1 << 128) - 1 & ~(15 << 76 | 3 << 62)


def new_job_id() -> str:
    """Make a job id: a random uuid4 in hex, without a system call and an object for each."""
    return f"{_random_bits()(128) & _UUID4_FREE | _UUID4_FIXED:032x}"


def new_run_id() -> str:
    """Make a run id that sorts by time, so that indexes stay small, and that nobody else makes."""
    return f"{time.time_ns() // 1_000_000:012x}{_random_bits()(80):020x}"


@cache
def _random_bits() -> Callable[[int], int]:
    source = random.Random()
    if hasattr(os, "register_at_fork"):  # else a forked child would make the same ids as its parent
        os.register_at_fork(after_in_child=source.seed)
    return source.getrandbits


def check_id(value: Any) -> str:
    """Check a job's id."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"id must be a text that is not empty, not {value!r}")
    if len(value) > 255:
        raise ValueError(f"id is {len(value)} characters long; at most 255 are kept")
    return value


def pin(shard: str, id: str) -> str:
    """Return an id whose jobs and runs, in a store of several shards, live where all others pinned to `shard` do.

    It is the id behind a tag in braces, `{tenant-7}report`, from which the shard can be read again.
    """
    if not isinstance(shard, str) or not shard or not {"{", "}"}.isdisjoint(shard):
        raise ConfigurationError(f"{shard!r} cannot be pinned to; name a shard by some text without braces")
    return f"{{{shard}}}{id}"
