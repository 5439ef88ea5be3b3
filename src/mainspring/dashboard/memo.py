"""Shared answers that take long to compute: all visitors share an answer, for longer the more it cost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from mainspring.app import Mainspring

from mainspring.locks import free_in_children

__all__ = ["SharedFacts", "forget", "remembered", "remembered_soon", "timed"]

COST_FACTOR: Final = 100.0
"""Keep an answer this many times as long as it cost, so that none takes more than a hundredth of a core."""
MOST_SECONDS: Final = 60.0
"""The longest time to keep an answer for its cost."""
MOST_ANSWERS: Final = 200
STORE_SHARE: Final = 3.0
"""The most that an answer costs, as a multiple of the CPU time spent here: the store does a share of the work."""

T = TypeVar("T")
PATIENCE_SECONDS: Final = 0.08
"""The seconds that a page waits for secondary content."""
CLOSING_SECONDS: Final = 30.0
"""The seconds that a closing app waits for its current reads, which would open its store again."""

_lock = free_in_children(threading.Lock())
_make_readers = partial(ThreadPoolExecutor, 4, "mainspring-dashboard-reader")
_readers = _make_readers()
_going: dict[tuple[int, int, Hashable], Future[Any]] = {}
"""The current reads, by app and answers."""
_attended: WeakSet[Mainspring] = WeakSet()
"""The apps that wait for their reads when they close."""
_answers: WeakKeyDictionary[Mainspring, dict[Hashable, tuple[float, Any]]] = WeakKeyDictionary()


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `call`, and its cost in seconds, here and in the store."""
    began, spent = time.monotonic(), time.thread_time()
    answer = call()
    # If little CPU time was spent here, most of a long time was a wait for a core, which is not a cost.
    return answer, min(time.monotonic() - began, STORE_SHARE * (time.thread_time() - spent))


class SharedFacts:
    """Facts that all regions of a view share, or all views that are rendered at about the same time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reading one fact may need another
        self._known: dict[str, Any] = {}
        self._begun_at: int | None = None

    def begin(self, now: int) -> int:
        """Return the store's time before the first read; `now` is the time of the caller's read."""
        with self._lock:
            self._begun_at = now if self._begun_at is None else min(now, self._begun_at)
            return self._begun_at

    def once(self, name: str, read: Callable[[], T]) -> T:
        """Return the first result of `read`; concurrent callers wait for it."""
        with self._lock:
            if name not in self._known:
                self._known[name] = read()
            return cast("T", self._known[name])

    def __contains__(self, name: str) -> bool:
        """Return True if this fact was read."""
        return name in self._known


def remembered(app: Mainspring, key: Hashable, seconds: float, read: Callable[[], T]) -> T:
    """Return the recent answer under this key, or call `read`."""
    with _lock:
        known = _answers.setdefault(app, {})
        found = known.get(key)
    if _is_fresh(found):
        return cast("T", found[1])
    answer, cost = timed(read)
    ended = time.monotonic()
    with _lock:
        if len(known) >= MOST_ANSWERS:
            for old in [each for each, (until, _) in known.items() if until < ended] or list(known):
                del known[old]
        known[key] = ended + max(seconds, min(MOST_SECONDS, COST_FACTOR * cost)), answer
    return answer


def remembered_soon(
    app: Mainspring, key: Hashable, seconds: float, read: Callable[[], T], patience: float = PATIENCE_SECONDS
) -> T | None:
    """Return the answer of `read`, else the previous one, else None, after waiting at most `patience` seconds.

    `read` continues in another thread, and a later caller gets its answer.
    """
    with _lock:
        known = _answers.setdefault(app, {})
        found = known.get(key)
        if _is_fresh(found):
            return cast("T", found[1])
        name = id(app), id(known), key
        going = _going.get(name)
        if going is None:
            if app not in _attended:
                _attended.add(app)
                app._app_store.before_closing.append(partial(_finish_reads, id(app)))
            going = _going[name] = _readers.submit(_read_for, app, known, key, seconds, read)
    try:
        return cast("T", going.result(patience))
    except TimeoutError:
        return None if found is None else found[1]


def _is_fresh(found: tuple[float, Any] | None) -> TypeGuard[tuple[float, Any]]:
    return found is not None and time.monotonic() < found[0]


def _read_for(app: Mainspring, known: dict[Hashable, Any], key: Hashable, seconds: float, read: Callable[[], T]) -> T:
    try:
        return remembered(app, key, seconds, read)
    finally:
        with _lock:
            _going.pop((id(app), id(known), key), None)


def _finish_reads(app: int) -> None:
    """Wait for all reads of an app, given by its `id`; a read keeps the app alive, so the id stays unique."""
    with _lock:
        going = [future for (reader, _, _), future in _going.items() if reader == app]
    wait(going, CLOSING_SECONDS)


def _begin_anew() -> None:
    """Forget the reads and the readers in a forked child: those threads are the parent's, and nobody would read."""
    global _readers
    _going.clear()
    _readers = _make_readers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def forget(app: Mainspring) -> None:
    """Drop an app's answers, because a person has acted."""
    with _lock:
        _answers.pop(app, None)
