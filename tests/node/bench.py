"""A node whose ticks are called by hand: no threads, no sleeping, time stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.run import Call, Report, Result, Run
from mainspring.core.validation import make_policy
from mainspring.executors.base import BaseExecutor
from mainspring.executors.execution import MayStart, failed, may_always_start
from mainspring.jobstores.base import JobStore
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink
from mainspring.testing.clock import VirtualClock
from mainspring.triggers.interval import IntervalTrigger


def work() -> None: ...


class HandExecutor(BaseExecutor):
    """Executes nothing: the test says how each run ends."""

    def __init__(self, slots: int = 10) -> None:
        self.slots = slots
        self.given: dict[str, tuple[Run, Callable[[Report], None]]] = {}
        self.cancelled: list[str] = []

    def submit(
        self, runs: Sequence[Run], report: Callable[[Report], None], may_start: MayStart = may_always_start
    ) -> None:
        for run in runs:
            assert run.id not in self.given
            self.given[run.id] = (run, report)

    def cancel(self, run_id: str) -> bool:
        self.cancelled.append(run_id)
        return True

    def end(self, run_id: str, error: BaseException | None = None, value: Any = None) -> None:
        run, report = self.given.pop(run_id)
        now = self.now()
        if error is None:
            report(Report(run, Result.RETURNED, value=value, started_at=now, finished_at=now))
        else:
            report(failed(run, error, now, now))

    def end_all(self) -> None:
        for run_id in list(self.given):
            self.end(run_id)


class Bench:
    """One node on one store."""

    def __init__(self, clock: VirtualClock, store: JobStore, slots: int = 10) -> None:
        self.clock = clock
        self.store = store
        self.executor = HandExecutor(slots)
        self.events: list[Any] = []
        listeners = Listeners()
        listeners.add(self.events.append)
        self.node = Node(
            {"default": self.executor}, clock=clock, timezone=UTC, events=RunEvents(listeners, zone=lambda: UTC)
        )
        self.link = self.node.links["default"] = StoreLink(self.node, "default", store)
        self.executor.now = self.node.elapsed

    def add(self, job_id: str = "j", seconds: float = 10, **options: Any) -> Job:
        policy = make_policy(
            DEFAULT_POLICY, **{k: options.pop(k) for k in ("retries", "backoff", "delivery") if k in options}
        )
        start = from_us(self.clock.now())
        trigger = IntervalTrigger(seconds=seconds, start_date=start, timezone="UTC")
        job = Job(job_id, Call(work, name="work"), trigger, at=self.clock.now(), policy=policy, **options)
        self.store.add_job(job)
        return job

    def codes(self) -> list[int]:
        codes = [event.code for event in self.events]
        self.events.clear()
        return codes
