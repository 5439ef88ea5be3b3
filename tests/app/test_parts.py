"""The parts of an app: `app.runs`, `app.jobs`, `app.queues`; the short verbs of the app are theirs."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, __version__
from mainspring.app.jobs import Jobs
from mainspring.app.queues import Queues
from mainspring.app.runs import Runs
from mainspring.core.run import Status
from tests.app.kit import LIMIT, MakeApp

SHORT_VERBS: dict[str, Any] = {
    "find": Runs.find,
    "cancel": Runs.cancel,
    "wait": Runs.wait,
    "add_job": Jobs.add,
    "reschedule_job": Jobs.reschedule,
    "preview": Jobs.preview,
    "pause_queue": Queues.pause,
}


def double(number: int) -> int:
    return number * 2


@pytest.mark.parametrize("name", SHORT_VERBS)
def test_a_short_verb_has_the_signature_and_the_docstring_of_its_part(name: str) -> None:
    short = getattr(Mainspring, name)
    assert inspect.signature(short) == inspect.signature(SHORT_VERBS[name])
    assert inspect.getdoc(short) == inspect.getdoc(SHORT_VERBS[name])


def test_the_parts_list_when_they_are_called(make_app: MakeApp) -> None:
    app = make_app(queues=["mail"])
    app.jobs.add(double, "interval", hours=1, args=[1], id="hourly")
    app.queues.pause("mail")
    assert [job.id for job in app.jobs()] == [job.id for job in app.jobs.list()] == ["hourly"]
    assert [(queue.name, queue.paused) for queue in app.queues()] == [("default", False), ("mail", True)]
    assert app.queues() == app.queues.list()


def test_the_parts_have_the_verbs_of_the_app(make_app: MakeApp) -> None:
    app = make_app()
    handle = app.task(double).enqueue(2)
    assert [run.id for run in app.runs.find()] == [handle.id]
    assert app.runs.cancel(handle)
    assert app.runs.wait([handle], timeout=LIMIT)[0].status is Status.CANCELLED
    assert app.runs.delete(handle)
    assert app.runs.count() == 0

    app.jobs.add(double, "interval", hours=1, args=[1], id="hourly")
    assert app.jobs.pause("hourly").next_run_time is None
    assert len(app.jobs.preview("hourly", 3)) == 3
    assert app.jobs.run_now("hourly").status() is Status.PENDING
    assert app.queues.purge("default") == 1
    app.jobs.remove("hourly")
    assert app.jobs() == []


def test_a_method_of_a_subclass_takes_the_place_of_a_short_verb() -> None:
    class Quiet(Mainspring):
        def count(self, **wanted: Any) -> int:
            return -1

    assert Quiet("memory://").count() == -1


def test_a_run_sent_back_by_its_handle_is_executed_inline(make_app: MakeApp) -> None:
    app, tries = make_app(inline=True), []

    @app.task
    def fails_once() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return 5

    handle = fails_once.enqueue()
    assert handle.status() is Status.FAILED
    handle.retry()
    assert handle.result(timeout=0) == 5


def test_a_start_is_logged_in_one_line_that_says_what_has_started(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", queues=["mail"])
    app.schedule("0 9 * * *")(print)
    with caplog.at_level(logging.INFO, logger="mainspring.app"):
        app.start(work=True)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mainspring.app"]
    said = f"mainspring {__version__}: store sqlite:///{tmp_path}/jobs.db; queues default, mail; 1 task, "
    assert line.startswith(f"{said}1 declared schedule, next builtins:print at ")
    assert line.endswith(f"; node {app.node.id}" if app.node else "")
