"""Waiting in tests for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["until"]

SECONDS = 120.0
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "it did not come true", *, despite: type[Exception] | None = None) -> T:
    """Look until there is something to see, and return it; an error of the kind `despite` means: not yet."""
    deadline = time.monotonic() + SECONDS
    while True:
        with suppress(*([] if despite is None else [despite])):
            if found := look():
                return found
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
