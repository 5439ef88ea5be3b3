"""The cost of an answer: its readers pause in proportion to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["timed"]

STORE_SHARE: Final = 3.0
"""The most that an answer costs, as a multiple of the CPU time spent here: the store does a share of the work."""

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `call`, and its cost in seconds, here and in the store."""
    began, spent = time.monotonic(), time.thread_time()
    answer = call()
    # If little CPU time was spent here, most of a long time was a wait for a core, which is not a cost.
    return answer, min(time.monotonic() - began, STORE_SHARE * (time.thread_time() - spent))
