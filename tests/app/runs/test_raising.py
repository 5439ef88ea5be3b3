"""Whatever a task raises fails its run, and nothing else, wherever it is executed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.errors import RunCancelled, RunFailed
from tests.app.kit import LIMIT, LOCAL
from tests.executors.hostile import KINDS, raise_hostile, raise_hostile_later

pytestmark = LOCAL

PLACES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "thread": (raise_hostile, {}),
    "loop": (raise_hostile_later, {}),
    "process": (raise_hostile, {"isolation": "process"}),
    "inline": (raise_hostile, {"inline": True}),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_a_task_raises_ends_its_run_and_no_other(
    app: Mainspring, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    func, options = PLACES[place]
    task = app.task(retries=1, backoff=(0.0,))(func).options(**options)
    good = app.task(len).options(**options)
    app.start(work=True)
    with caplog.at_level(logging.CRITICAL, "mainspring"):
        runs = {kind: task.enqueue(kind) for kind in KINDS}
        for run in runs.values():
            with suppress(RunFailed, RunCancelled):
                run.result(timeout=LIMIT)
        ended = {kind: run.fetch() for kind, run in runs.items()}
    assert {kind for kind, run in ended.items() if run.status is not Status.FAILED} <= {"bad cancel"}
    assert ended["frozen"].failures == 2
    assert ended["frozen"].error is not None
    assert ended["frozen"].error.message == "code 7"
    assert good.enqueue("four").result(timeout=LIMIT) == 4
