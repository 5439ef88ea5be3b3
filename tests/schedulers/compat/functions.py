"""Functions that jobs name by text."""

from __future__ import annotations

import threading

called = threading.Event()


def ring() -> str:
    called.set()
    return "ding"


def add(a: int, b: int = 2) -> int:
    return a + b


class Counter:
    def __init__(self) -> None:
        self.count = 0
        self.called = threading.Event()

    def up(self, by: int = 1) -> int:
        self.count += by
        self.called.set()
        return self.count

    @classmethod
    def make(cls) -> str:
        called.set()
        return cls.__name__
