"""A dashboard that has read before a fork reads in the child, too."""

from __future__ import annotations

import os
import time

import pytest

from mainspring.dashboard.memo import remembered_soon
from tests.app.forking.test_forking import in_child
from tests.dashboard.shop import make_shop

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def test_a_child_has_readers_of_its_own_and_waits_for_no_others() -> None:
    app = make_shop("memory://")

    def check() -> bool:
        answer, began = remembered_soon(app, "later", 0.0, lambda: 2, patience=5.0), time.monotonic()
        app.close()
        return answer == 2 and time.monotonic() - began < 5.0

    try:
        assert remembered_soon(app, "before", 0.0, lambda: 1, patience=5.0) == 1
        assert in_child(check)
    finally:
        app.close()
