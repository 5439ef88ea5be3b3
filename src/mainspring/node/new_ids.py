"""Make unique ids of jobs and runs."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cache
from typing import Final

__all__ = ["new_job_id", "new_run_id", "new_run_ids"]

_UUID4_FIXED: Final = 4 << 76 | 2 << 62  # the version and the variant of RFC 4122
_UUID4_FREE: Final = (1 << 128) - 1 & ~(15 << 76 | 3 << 62)


def new_job_id() -> str:
    """Make a job id: a random uuid4 in hex, without the system call and the object of `uuid.uuid4`."""
    return f"{_random_bits()(128) & _UUID4_FREE | _UUID4_FIXED:032x}"


def new_run_id() -> str:
    """Make a unique run id that sorts by time, so that indexes stay small."""
    return f"{time.time_ns() // 1_000_000:012x}{_random_bits()(80):020x}"


def new_run_ids(count: int) -> list[str]:
    """Make several run ids at once."""
    start, size = f"{time.time_ns() // 1_000_000:012x}", count * 20
    ends = f"{_random_bits()(size * 4):0{size}x}" if count else ""
    return [start + ends[at : at + 20] for at in range(0, size, 20)]


@cache
def _random_bits() -> Callable[[int], int]:
    source = random.Random()
    if hasattr(os, "register_at_fork"):  # without a new seed, a forked child would make its parent's ids
        os.register_at_fork(after_in_child=source.seed)
    return source.getrandbits
