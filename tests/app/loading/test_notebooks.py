"""A session in which people type: a cell that is executed again declares its tasks and schedules anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import ConfigurationError, ConflictingIdError
from tests.app.kit import LIMIT, MakeApp

CELL = """
@app.schedule("{when}", id="nightly")
@app.task
def report():
    return {result}
"""


class Notebook:
    """Executes cells as Jupyter does: each text under a file name of its own, which is no file."""

    def __init__(self, app: Mainspring) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "app": app}

    def execute(self, text: str, file: str | None = None) -> None:
        exec(compile(text, file or f"/tmp/ipykernel_1/{abs(hash(text))}.py", "exec"), self.names)


def test_a_cell_that_is_executed_again_replaces_its_task_and_schedule(make_app: MakeApp) -> None:
    app = make_app()
    notebook = Notebook(app)
    app.start(work=True)
    notebook.execute(CELL.format(when="0 3 * * *", result=1))
    assert notebook.names["report"].enqueue().result(LIMIT) == 1
    notebook.execute(CELL.format(when="0 4 * * *", result=2))
    assert notebook.names["report"].enqueue().result(LIMIT) == 2
    assert app.reconcile().added == ["nightly"]
    assert [moment.hour for moment in app.preview("nightly", 1)] == [4]


def test_two_schedules_of_one_id_in_one_cell_are_refused(make_app: MakeApp) -> None:
    notebook = Notebook(make_app())
    with pytest.raises(ConflictingIdError, match="nightly"):
        notebook.execute(
            CELL.format(when="0 3 * * *", result=1).replace("@app.task", '@app.schedule("1 3 * * *", id="nightly")')
        )


def test_functions_of_one_name_in_two_files_are_still_refused(make_app: MakeApp, tmp_path: Path) -> None:
    notebook = Notebook(make_app())
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").touch()
    text = "@app.task(name='report')\ndef report(): ...\n"
    notebook.execute(text, str(tmp_path / "one.py"))
    with pytest.raises(ConfigurationError, match="two functions have the task name 'report'"):
        notebook.execute(text, str(tmp_path / "other.py"))
