"""A start that fails leaves nothing behind, and may be tried again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.executors import current_run
from mainspring.executors.threads.pool import ThreadPoolExecutor
from tests.app.kit import LIMIT, LOCAL


def fails(*args: Any, **options: Any) -> None:
    raise ConnectionError("the store is away")


@LOCAL
@pytest.mark.parametrize("late", [False, True], ids=["schedules", "executors"])
def test_a_start_that_fails_leaves_nothing_behind(app: Mainspring, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def work() -> int:
        return 5

    app.schedule("interval", hours=1)(work)
    if late:
        monkeypatch.setattr(ThreadPoolExecutor, "start", fails)
    else:
        monkeypatch.setattr(app.jobs, "reconcile", fails)
    before = set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(ConnectionError):
            app.start(work=True)
    for thread in set(threading.enumerate()) - before:
        if thread.name.endswith("-loop"):
            thread.join(LIMIT)
            assert not thread.is_alive()
    assert not current_run._keeping
    assert app.node is None

    monkeypatch.undo()
    app.start(work=True)
    assert work.enqueue().result(timeout=LIMIT) == 5
