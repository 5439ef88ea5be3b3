"""Waiting for several stores at once."""

from __future__ import annotations

import threading

import pytest

from mainspring.jobstores.split import changes
from mainspring.jobstores.split.changes import StoreWatch


class Source:
    """What a store tells of its changes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.cursor = 1
        self.fails = False
        self.asked = threading.Event()

    def wait(self, cursor: int, timeout: float) -> int:
        with self.changed:
            self.asked.set()
            if self.fails:
                raise ConnectionError("the store is away")
            self.changed.wait_for(lambda: self.cursor != cursor or self.fails, timeout)
            return self.cursor

    def change(self) -> None:
        with self.changed:
            self.cursor += 1
            self.changed.notify_all()

    def fail(self, fails: bool) -> None:
        with self.changed:
            self.fails = fails
            self.changed.notify_all()


def seen_by_now(watch: StoreWatch) -> int:
    """Return a cursor after which nothing is on its way."""
    cursor = watch.wait(0, 0)
    while (later := watch.wait(cursor, 0.2)) != cursor:
        cursor = later
    return cursor


@pytest.mark.parametrize("which", [0, 1])
def test_a_change_of_either_store_wakes(which: int) -> None:
    sources = Source(), Source()
    watch = StoreWatch([source.wait for source in sources])
    cursor = seen_by_now(watch)
    sources[which].change()
    assert watch.wait(cursor, 30) != cursor
    watch.stop()


def test_a_store_that_fails_is_listened_to_again_and_its_return_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PAUSE_SECONDS", 0.01)
    source = Source()
    watch = StoreWatch([source.wait])
    seen_by_now(watch)
    source.fail(True)
    source.asked.clear()
    assert source.asked.wait(30)
    source.fail(False)
    source.change()
    cursor = seen_by_now(watch)
    source.change()
    assert watch.wait(cursor, 30) != cursor
    watch.stop()


def test_it_can_be_stopped_and_used_again() -> None:
    before = set(threading.enumerate())
    source = Source()
    watch = StoreWatch([source.wait])
    cursor = seen_by_now(watch)
    watch.stop()
    source.change()
    watch.join()
    cursor = seen_by_now(watch)
    source.change()
    assert watch.wait(cursor, 30) != cursor
    watch.stop()
    source.change()
    watch.join()
    assert set(threading.enumerate()) <= before
