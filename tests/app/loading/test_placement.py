"""Finding what a run calls is noted for whoever watches, since importing it may end the process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.placement import Workplace
from mainspring.core.lanes import PROCESSES_EXECUTOR, THREADS_EXECUTOR
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run
from mainspring.core.waiting.flows import COLLECT_TASK
from mainspring.errors import TaskNotFound
from mainspring.executors.scoreboard import make_board

NAME = "module_of_this_test"
NOTES = f"""
import sys
sys.{NAME}()
def f(): ...
def wait(failures): return 1.0
"""


class Place:
    """A workplace that executes nothing, its board, and who was on it whenever the module was imported."""

    def __init__(self, folder: Path) -> None:
        self.app = Mainspring(f"sqlite:///{folder}/jobs.db", secret_key="a key of the tests, long enough to sign")
        self.place = Workplace(self.app)
        self.place.board = make_board(10)
        self.place.executors[PROCESSES_EXECUTOR] = self.place.executors[THREADS_EXECUTOR]
        self.seen: list[list[str]] = []

    def imported(self) -> None:
        self.seen.append(self.noted())

    def noted(self) -> list[str]:
        assert self.place.board is not None
        return [posted.run_id for posted in self.place.board.read(())]

    def close(self) -> None:
        assert self.place.board is not None
        self.place.board.close()
        self.app.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / f"{NAME}.py").write_text(NOTES)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(Place(tmp_path)) as place:
        monkeypatch.setattr(sys, NAME, place.imported, raising=False)
        yield place
    sys.modules.pop(NAME, None)


def make_run(func: Any, run_id: str = "a run", **fields: Any) -> Run:
    return Run(id=run_id, call=Call(func, (), {}, "f"), **{"policy": Policy(), **fields})


def test_whose_code_is_being_imported_is_on_the_board_until_it_is(here: Place) -> None:
    prepared = here.place.prepare(make_run(f"{NAME}:f"))
    assert (here.seen, here.noted()) == ([["a run"]], [])
    assert prepared.executor == THREADS_EXECUTOR


def test_whose_back_off_is_being_imported_is_on_the_board_until_it_is(here: Place) -> None:
    run = make_run(len, policy=Policy(retries=1, backoff=f"{NAME}:wait"))
    wait: Any = here.place.prepare(run).policy.backoff
    assert (wait(1), here.seen, here.noted()) == (1.0, [["a run"]], [])


def test_what_cannot_be_found_leaves_nothing_on_the_board(here: Place) -> None:
    with pytest.raises(TaskNotFound):
        here.place.prepare(make_run(f"{NAME}:g"))
    assert here.noted() == []


def test_what_is_known_is_not_noted(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(f"{NAME}:f", policy=Policy(retries=1, backoff=f"{NAME}:wait"))
    here.place.prepare(run)
    monkeypatch.setattr(here.place, "_look_up_noted", None)
    func: Any = here.place.prepare(run).call.func
    assert inspect.unwrap(func) is sys.modules[NAME].f


def test_the_code_of_a_run_that_crashed_is_imported_only_where_it_runs_alone(here: Place) -> None:
    prepared = here.place.prepare(make_run(f"{NAME}:f", crashes=1))
    assert (prepared.executor, prepared.call.func, here.seen) == (PROCESSES_EXECUTOR, f"{NAME}:f", [])


@pytest.mark.parametrize("name", ["no_module_of_this_test:f", "no_package_of_this_test.module:f", "json:nothing"])
def test_a_run_that_crashed_is_left_to_others_where_its_code_is_not_known(here: Place, name: str) -> None:
    with pytest.raises(TaskNotFound):
        here.place.prepare(make_run(name, crashes=1))


@pytest.mark.parametrize("imported", [True, False])
def test_a_task_that_crashed_runs_alone_where_another_process_finds_it(here: Place, imported: bool) -> None:
    @here.app.task(name="mine")
    def mine() -> None: ...

    place = Workplace(here.app, imported=imported)
    place.executors[PROCESSES_EXECUTOR] = place.executors[THREADS_EXECUTOR]
    here.app.task(name="theirs")(len)
    crashed = {name: place.prepare(make_run(name, crashes=1)).executor for name in ("mine", "theirs", COLLECT_TASK)}
    assert crashed == {
        "mine": PROCESSES_EXECUTOR if imported else THREADS_EXECUTOR,
        "theirs": PROCESSES_EXECUTOR,
        COLLECT_TASK: PROCESSES_EXECUTOR,
    }
    assert place.prepare(make_run("mine")).executor == THREADS_EXECUTOR
