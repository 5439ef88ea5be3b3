"""No wake-up is lost: what is enqueued while a worker looks is found, and its own process is told at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.core.lanes import Want
from mainspring.core.run import Call, Run, Status
from mainspring.executors.debug import DebugExecutor
from mainspring.jobstores.base import ClaimedRuns
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink
from tests.app.kit import LIMIT, LOCAL


class Late(MemoryJobStore):
    """Has a run added, and its node told, after a claim has looked and before it returns."""

    link: StoreLink
    late: Run | None = None

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        claimed = super().claim(wants, node=node, token=token, lease=lease)
        if self.late is not None:
            self.add_runs([self.late])
            self.late = None
            self.link.wake()
        return claimed


def test_a_run_that_is_added_while_a_worker_looks_is_found_at_its_next_tick() -> None:
    store, executor = Late(), DebugExecutor()
    executor.start(None, "here")
    node = Node({"here": executor}, queues={"default": None}, prepare=lambda run: replace(run, executor="here"))
    store.link = link = node.add_store("default", store)
    now = store.beat()
    store.late = Run(id="late", call=Call(str), queue="default", created_at=now, run_at=now)
    link.worker.look_everywhere()
    link.worker()
    link.worker()
    link.worker()
    assert [run and run.status for run in store.get_runs(["late"])] == [Status.SUCCEEDED]


@LOCAL
def test_a_worker_is_told_by_its_own_process_of_what_it_enqueued(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = threading.Event()

    def deaf(cursor: int, timeout: float) -> int:
        silence.wait(timeout)
        return cursor

    monkeypatch.setattr(app.store, "wait", deaf)

    @app.task
    def double(number: int) -> int:
        return number * 2

    app.start(work=True)
    try:
        assert [double.enqueue(number).result(timeout=LIMIT) for number in range(5)] == [0, 2, 4, 6, 8]
    finally:
        silence.set()
