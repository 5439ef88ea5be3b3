"""No wake-up is lost between a thread that goes to sleep and somebody who adds a run."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from mainspring.core.run import Result
from mainspring.executors.execution import Item, may_always_start
from mainspring.executors.threads.worker_threads import WorkerThread, WorkerThreads, take_back, take_run
from tests.executors import tasks
from tests.executors.helpers import Reports, make_run, wait_until


class Collectors(WorkerThreads[WorkerThread]):
    """Threads that only collect what they take."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(size, "collector", logging.getLogger("crew"))
        self.taken: list[Item] = []

    def member(self) -> WorkerThread:
        return WorkerThread()

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
    crew = Collectors()
    crew.idle = idle = Idle()
    first, second = make_item(), make_item()
    setattr(idle, moment, lambda: crew.put([second]))
    crew.put([first])
    wait_until(lambda: crew.taken == [first, second])
    crew.close()
    crew.join()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crew_closed_while_a_thread_falls_asleep_ends(moment: str) -> None:
    crew = Collectors()
    crew.idle = idle = Idle()
    setattr(idle, moment, crew.close)
    crew.put([make_item()])
    crew.join()
    assert crew.closed
    assert crew.members[0].thread is not None
    assert not crew.members[0].thread.is_alive()


def test_runs_put_into_a_closed_crew_are_given_back() -> None:
    crew = Collectors()
    crew.close()
    reports = Reports()
    crew.put([make_item(reports)])
    assert [report.result for report in reports.all] == [Result.UNSTARTED]


def test_a_thread_whose_work_breaks_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    crew = Collectors()
    real, broken = crew.serve, iter([True])

    def serve(member: WorkerThread) -> None:
        if next(broken, False):
            raise RuntimeError("a mistake of ours")
        real(member)

    crew.serve = serve  # type: ignore[method-assign]
    item = make_item()
    crew.put([item])
    wait_until(lambda: crew.taken == [item])
    assert "had to begin anew" in caplog.text
    crew.close()
    crew.join()


def test_a_system_without_threads_leaves_runs_to_be_withdrawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    crew = Collectors()
    item = make_item()
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", refuse)
        crew.put([item])
    assert "cannot start thread" in caplog.text
    assert take_back(crew.items, None) == [item[0]]
    crew.put([item])
    wait_until(lambda: crew.taken == [item])
    crew.close()
    crew.join()


def test_one_run_is_taken_out_by_its_id_and_the_others_stay() -> None:
    crew = Collectors()
    items = [make_item() for _ in range(3)]
    crew.items.extend(items)
    assert take_run(crew.items, items[1][0].id) is items[1]
    assert take_run(crew.items, items[1][0].id) is None
    assert list(crew.items) == [items[0], items[2]]
