"""What has started, in words: a line for an app, a block for the workers of a machine."""

from __future__ import annotations

import io
import logging
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Mainspring
from mainspring.app.introduction import hint_at_log, one_line, start_block
from mainspring.errors import StoreUnavailable
from tests.app.kit import LOCAL


def tick() -> None: ...


@LOCAL
def test_an_app_says_in_one_line_what_has_started_and_what_fires_next(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.app")
    app.schedule("interval", hours=30, id="rare")(tick)
    app.schedule("0 3 * * *", id="nightly", timezone="UTC")(tick)
    app.start()
    app.stop()

    [line] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("mainspring ")]
    assert "; no queues (it only schedules); 1 task, 2 declared schedules, next nightly at " in line


@LOCAL
def test_the_block_of_a_worker_names_store_queues_tasks_and_schedules(app: Mainspring) -> None:
    app.schedule("0 3 * * *", id="nightly", timezone="UTC")(tick)
    app.schedule("interval", minutes=5, id="often")(tick)
    app.reconcile()
    app.pause_job("often")
    app.add_job(tick, "interval", hours=1, id="by hand")

    lines = start_block(app, queues=["default", "mail"], fires=True, processes="2, each with 8 threads").splitlines()

    assert lines[0].startswith("mainspring ")
    assert lines[2:4] == ["  queues     default, mail", f"  tasks      1: {__name__}:tick"]
    assert lines[4].startswith("  schedules  nightly  every day at 03:00, UTC; next ")
    assert lines[5:] == [
        "             often    every 5 minutes; paused",
        "             and 1 job added by hand",
        "  processes  2, each with 8 threads",
    ]


@LOCAL
def test_a_schedule_that_is_overdue_is_called_so(app: Mainspring) -> None:
    app.schedule("interval", hours=1, id="often")(tick)
    app.reconcile()
    app.modify_job("often", next_run_time=datetime.now(UTC) - timedelta(minutes=3))

    text = start_block(app, queues=["default"], fires=True, processes="1")

    assert re.search(r"often  every hour; overdue since .+ UTC, by 3 min", text)
    assert ", often overdue since " in one_line(app, ["default"], "n")


def test_passwords_are_not_part_of_it() -> None:
    app = Mainspring("redis://:hunter2@localhost:1/0")

    assert "hunter2" not in one_line(app, ["default"], "n")


@LOCAL
def test_a_store_that_does_not_answer_is_part_of_the_block(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedule("0 3 * * *", id="nightly")(tick)

    def fail(job_id: str) -> None:
        raise StoreUnavailable("nobody is at home")

    monkeypatch.setattr(app.store, "lookup_job", fail)
    text = start_block(app, queues=["default"], fires=True, processes="1")

    assert "  schedules  1 declared schedule; the store does not answer: " in text


@LOCAL
def test_many_tasks_and_schedules_are_counted(app: Mainspring) -> None:
    for number in range(25):
        app.schedule("interval", hours=1, id=f"s{number:02}")(app.task(name=f"t{number:02}")(lambda: None))
    app.reconcile()

    text = start_block(app, queues=["default"], fires=True, processes="1")

    assert "  tasks      25: t00, " in text
    assert " and 5 more\n" in text
    assert "\n             and 5 more\n" in text
    assert "added by hand" not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "logs", "hinted"), [(Terminal, False, True), (Terminal, True, False), (io.StringIO, False, False)]
)
def test_a_program_without_a_log_is_told_on_a_terminal_how_to_see_each_run(
    stderr: type[io.StringIO], logs: bool, hinted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stderr()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(logging.root, "handlers", [logging.NullHandler()] if logs else [])
    hint_at_log()
    assert ('logging.basicConfig(level="INFO")' in said.getvalue()) == hinted
