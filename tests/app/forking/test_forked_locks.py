"""A child that is forked while threads of its parent hold locks of ours waits for none of them."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.jobstores.sqlalchemy.sqlite import forks
from tests.app.forking.test_forking import double, in_child
from tests.app.kit import LIMIT

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
STORES = pytest.mark.parametrize("url", ["memory", "sqlite", "postgresql", "mariadb", "redis"], indirect=True)


def our_locks() -> list[Any]:
    """Return every lock in an object, a class or a module of ours, except those that a fork waits for."""
    awaited = {*map(id, forks._turns), id(forks.readers._lock), id(forks.readers._changed)}
    found: dict[int, Any] = {}
    for owner in gc.get_objects():
        # Not `isinstance`: a lazy object of another package would come to life, and an error of a test may resist.
        kind = type(owner)
        try:
            place = owner if issubclass(kind, type) else kind
            module = owner.get("__name__") if kind is dict else place.__module__
        except Exception:  # a class of a test that does not say its name
            continue
        if not isinstance(module, str) or not module.startswith("mainspring."):
            continue
        if kind is dict:
            values = list(owner.values())
        elif issubclass(kind, type):
            # Before Python 3.12, functools.cached_property has a lock for all objects of a class.
            values = [getattr(each, "lock", None) for each in vars(owner).values()]
        else:
            values = list((getattr(owner, "__dict__", None) or {}).values())
        found |= {id(each): each for each in values if issubclass(type(each), LOCKS) and id(each) not in awaited}
    return list(found.values())


@contextmanager
def held(locks: list[Any]) -> Iterator[None]:
    """Let another thread hold all these locks."""
    ready, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        taken = [lock for lock in locks if lock.acquire(blocking=False)]
        ready.set()
        go_on.wait(LIMIT)
        for lock in taken:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    assert ready.wait(LIMIT)
    try:
        yield
    finally:
        go_on.set()
        holder.join()


@STORES
def test_a_child_works_though_its_parent_held_every_lock(app: Mainspring) -> None:
    task = app.task(double)
    handle = task.enqueue(1)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 2

    def check() -> bool:
        theirs = task.enqueue(2)
        app.start(work=True)
        done = theirs.result(timeout=LIMIT) == 4
        app.close()
        return done

    with held(our_locks()):
        assert in_child(check)


@STORES
def test_a_child_opens_a_store_that_its_parent_has_not_opened_yet(app: Mainspring) -> None:
    task = app.task(double)
    assert app.store is not None  # made, and connected to nothing yet
    with held(our_locks()):
        assert in_child(lambda: bool(task.enqueue(2).id))
