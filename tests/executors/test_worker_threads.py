"""No wake-up is lost between a thread that goes to sleep and somebody who adds a run."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from mainspring.core.run import Result
from mainspring.executors.execution import Item, may_always_start
from mainspring.executors.threads.worker_threads import WorkerThread, WorkerThreads, cancel_waiting
from tests.executors import tasks
from tests.executors.helpers import Reports, make_run, wait_until


class Collectors(WorkerThreads[WorkerThread]):
    """Threads that only collect what they take."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(size, "collector", logging.getLogger("threads"))
        self.taken: list[Item] = []

    def member(self) -> WorkerThread:
        return WorkerThread()

    def cancel_started(self, run_id: str) -> bool:
        return False

    def serve(self, member: WorkerThread) -> None:
        while not self.closed:
            if self.items:
                self.taken.append(self.items.popleft())
            else:
                self.park(member)


class Idle(list[Any]):
    """Lets something happen when a thread says that it is idle."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def append(self, member: Any) -> None:
        before, self.before = self.before, None
        if before:
            before()
        super().append(member)
        after, self.after = self.after, None
        if after:
            after()


def make_item(reports: Reports | None = None) -> Item:
    return (make_run(tasks.nothing), reports or Reports(), 0, may_always_start)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_added_while_a_thread_falls_asleep_is_taken(moment: str) -> None:
    threads = Collectors()
    threads.idle = idle = Idle()
    first, second = make_item(), make_item()
    setattr(idle, moment, lambda: threads.put([second]))
    threads.put([first])
    wait_until(lambda: threads.taken == [first, second])
    threads.close()
    threads.join()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_threads_closed_while_a_thread_falls_asleep_ends(moment: str) -> None:
    threads = Collectors()
    threads.idle = idle = Idle()
    setattr(idle, moment, threads.close)
    threads.put([make_item()])
    threads.join()
    assert threads.closed
    assert threads.members[0].thread is not None
    assert not threads.members[0].thread.is_alive()


def test_runs_put_into_closed_threads_are_given_back() -> None:
    threads = Collectors()
    threads.close()
    reports = Reports()
    threads.put([make_item(reports)])
    assert [report.result for report in reports.all] == [Result.UNSTARTED]


def test_a_thread_whose_work_breaks_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    threads = Collectors()
    real, broken = threads.serve, iter([True])

    def serve(member: WorkerThread) -> None:
        if next(broken, False):
            raise RuntimeError("a mistake of ours")
        real(member)

    threads.serve = serve  # type: ignore[method-assign]
    item = make_item()
    threads.put([item])
    wait_until(lambda: threads.taken == [item])
    assert "failed and starts again" in caplog.text
    threads.close()
    threads.join()


def test_a_system_without_threads_leaves_runs_to_be_withdrawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    threads = Collectors()
    item = make_item()
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", refuse)
        threads.put([item])
    assert "cannot start thread" in caplog.text
    assert threads.withdraw(None) == [item[0]]
    threads.put([item])
    wait_until(lambda: threads.taken == [item])
    threads.close()
    threads.join()


def test_one_waiting_run_is_cancelled_by_its_id_and_the_others_stay() -> None:
    threads, reports = Collectors(), Reports()
    items = [make_item(reports) for _ in range(3)]
    threads.items.extend(items)
    assert cancel_waiting(threads.items, items[1][0].id, logging.getLogger("threads"))
    assert not cancel_waiting(threads.items, items[1][0].id, logging.getLogger("threads"))
    assert list(threads.items) == [items[0], items[2]]
    assert [(report.run, report.result) for report in reports.all] == [(items[1][0], Result.CANCELLED)]
