"""An app that was started before a fork is stopped in the child, and can be started there."""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.node.new_ids import new_run_id
from tests.app.kit import KEY, LIMIT, MakeApp

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(check: Callable[[], bool]) -> bool:
    """Fork, ask the child, and tell what it said."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            timer = threading.Timer(LIMIT, _give_up)
            timer.daemon = True
            timer.start()
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _give_up() -> None:
    """Show where the child hangs, and end it."""
    faulthandler.dump_traceback()
    os._exit(2)


def double(number: int) -> int:
    return number * 2


@pytest.fixture
def app(make_app: MakeApp, tmp_path: Path) -> Mainspring:
    return make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)


def test_an_app_started_before_a_fork_is_stopped_in_the_child(app: Mainspring) -> None:
    app.start(work=True)
    assert in_child(lambda: not app.running and app.node is None)
    assert app.running


def test_a_child_may_enqueue_and_the_parent_executes(app: Mainspring) -> None:
    task = app.task(double)
    app.start(work=True)
    assert in_child(lambda: task.enqueue(21).result(timeout=LIMIT) == 42)


def test_a_child_may_start_the_app_anew(app: Mainspring) -> None:
    task = app.task(double)
    app.start(work=True)

    def check() -> bool:
        app.start(work=True, queues=["child"])
        done = task.options(queue="child").enqueue(21).result(timeout=LIMIT) == 42
        nodes = len(app.nodes())
        app.close()
        return done and nodes == 2

    assert in_child(check)
    assert task.enqueue(1).result(timeout=LIMIT) == 2


def test_the_child_of_a_child_knows_it_too(app: Mainspring) -> None:
    app.start()
    assert in_child(lambda: in_child(lambda: not app.running))


def test_a_fork_in_the_middle_of_a_write_leaves_the_child_able_to_write(app: Mainspring) -> None:
    task = app.task(double)
    task.enqueue(1)
    writing, go_on = threading.Event(), threading.Event()

    def work(tx: object) -> None:
        writing.set()
        go_on.wait(LIMIT)

    writer = threading.Thread(target=app.store._write, args=(work,))  # type: ignore[attr-defined]
    writer.start()
    assert writing.wait(LIMIT)
    threading.Timer(0.2, go_on.set).start()
    assert in_child(lambda: len(task.enqueue(2).id) > 0)
    writer.join()
    assert app.count() == 2


def test_a_child_makes_other_ids_than_its_parent(tmp_path: Path) -> None:
    new_run_id()  # from here on, a fork would copy what the next ids end with
    made = tmp_path / "ids"

    def make() -> bool:
        made.write_text(" ".join(new_run_id()[12:] for _ in range(500)))
        return True

    assert in_child(make)
    theirs, ours = set(made.read_text().split()), {new_run_id()[12:] for _ in range(500)}
    assert (len(theirs), len(ours), theirs & ours) == (500, 500, set())
