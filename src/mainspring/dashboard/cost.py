"""What an answer costs: whoever asks for it pauses in proportion to that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["timed"]

STORE_SHARE: Final = 3.0
"""An answer costs at most this many times the CPU time that is spent on it here: a store has its part."""

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what `call` returns, and the seconds that it cost, here and in the store."""
    began, spent = time.monotonic(), time.thread_time()
    answer = call()
    # Most of a long time is a wait for a core if little of it was spent here: that is no cost.
    return answer, min(time.monotonic() - began, STORE_SHARE * (time.thread_time() - spent))
