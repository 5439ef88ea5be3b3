"""Keeping the log lines of runs leaves the logging of the user's program as it is."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import Mainspring
from tests.app.kit import LIMIT, LOCAL, MakeApp

HEAD = """
import logging
from mainspring import Mainspring

app = Mainspring("memory://")
log = logging.getLogger("shop")

@app.task
def fail():
    log.error("said inside the task")
    raise ValueError("torn")

app.start(work=True)
"""


def errors_of(program: str, folder: Path) -> str:
    """Return what a program of its own writes to stderr."""
    path = folder / "program.py"
    path.write_text(HEAD + program)
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_program_without_logging_sees_failures_and_its_own_errors(tmp_path: Path) -> None:
    said = errors_of("fail.enqueue().wait(timeout=30); log.error('said outside'); app.close()", tmp_path)
    assert 'raise ValueError("torn")' in said
    assert said.count("said inside the task") == 1
    assert "said outside" in said


def test_logging_may_be_set_up_after_the_app_has_started(tmp_path: Path) -> None:
    program = """
logging.basicConfig(format="mine: %(message)s")
log.error("said outside")
run = fail.enqueue().wait(timeout=30)
assert [line.rpartition(": ")[2] for line in run.log] == ["said inside the task"], run.log
app.close()
"""
    said = errors_of(program, tmp_path)
    assert "mine: said outside" in said
    assert "mine: said inside the task" in said


def test_an_app_that_works_adds_no_handler_to_the_root_logger(make_app: MakeApp) -> None:
    before = list(logging.getLogger().handlers)
    app = make_app()
    app.start(work=True)
    assert logging.getLogger().handlers == before


@LOCAL
def test_lines_of_a_logger_that_does_not_propagate_are_kept_with_the_run(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = logging.getLogger("shop.private")
    monkeypatch.setattr(private, "propagate", False)

    @app.task
    def talk() -> None:
        private.warning("hello")

    app.start(work=True)
    view = talk.enqueue().wait(timeout=LIMIT)
    assert [line.rpartition(": ")[2] for line in view.log] == ["hello"]


@LOCAL
def test_a_filter_of_a_logger_decides_what_is_kept_with_the_run(app: Mainspring) -> None:
    def hide(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace("s3cret", "***")
        return "not at all" not in record.msg

    discreet = logging.getLogger("shop.discreet")
    discreet.addFilter(hide)

    @app.task
    def talk() -> None:
        discreet.warning("the key is s3cret")
        discreet.warning("not at all")

    app.start(work=True)
    try:
        view = talk.enqueue().wait(timeout=LIMIT)
    finally:
        discreet.removeFilter(hide)
    assert [line.rpartition(": ")[2] for line in view.log] == ["the key is ***"]


@LOCAL
def test_the_traceback_is_formatted_by_the_formatters_of_the_program(app: Mainspring) -> None:
    class Short(logging.Formatter):
        def formatException(self, ei: object) -> str:
            return "a short traceback"

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    lines: list[str] = []
    handler = Collect()
    handler.setFormatter(Short())
    mine = logging.getLogger("shop.mine")
    mine.addHandler(handler)

    @app.task
    def talk() -> None:
        try:
            raise ValueError("torn")
        except ValueError:
            mine.exception("caught")

    app.start(work=True)
    try:
        view = talk.enqueue().wait(timeout=LIMIT)
    finally:
        mine.removeHandler(handler)
    assert lines == ["caught\na short traceback"]
    assert "ValueError: torn" in view.log[0]
