"""What the tests of the app share."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from mainspring import Mainspring

KEY = "a key of 32 bytes for the tests"
LIMIT = 90.0
"""Seconds that something may take before the test calls it lost."""

MakeApp = Callable[..., Mainspring]

LOCAL = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
EVERYWHERE = pytest.mark.parametrize("url", ["memory", "sqlite", "postgresql", "redis"], indirect=True)
LASTING = pytest.mark.parametrize("url", ["sqlite", "postgresql", "redis"], indirect=True)


class Gate:
    """Holds a task until the test lets it go, and tells the test that it is there."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self._reached.set()
        assert self._opened.wait(LIMIT)

    def reached(self) -> None:
        assert self._reached.wait(LIMIT)

    def open(self) -> None:
        self._opened.set()
