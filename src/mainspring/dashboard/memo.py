"""Answers that are dear to compute, kept for a moment and shared by all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["forget", "remembered"]

COST_FACTOR: Final = 20.0
"""Keep an answer this many times as long as it took: what is dear is asked for less often."""
MOST_ANSWERS: Final = 200

T = TypeVar("T")

_lock = threading.Lock()
_answers: WeakKeyDictionary[Mainspring, dict[Hashable, tuple[float, Any]]] = WeakKeyDictionary()


def remembered(app: Mainspring, key: Hashable, seconds: float, read: Callable[[], T]) -> T:
    """Return what `read` has said under this key lately, or ask it."""
    with _lock:
        known = _answers.setdefault(app, {})
        found = known.get(key)
    began = time.monotonic()
    if found is not None and began < found[0]:
        answer: T = found[1]
        return answer
    answer = read()
    ended = time.monotonic()
    with _lock:
        if len(known) >= MOST_ANSWERS:
            for old in [each for each, (until, _) in known.items() if until < ended] or list(known):
                del known[old]
        known[key] = ended + max(seconds, COST_FACTOR * (ended - began)), answer
    return answer


def forget(app: Mainspring) -> None:
    """Ask anew next time: somebody has acted."""
    with _lock:
        _answers.pop(app, None)
