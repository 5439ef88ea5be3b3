"""The modules with an app's tasks and schedules: imported when it starts, or named when they were forgotten."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest

from mainspring import Mainspring
from mainspring.app.loading.locating import path_of
from mainspring.errors import ConfigurationError

_numbers = count(1)

TASKS = """
from ..app import app

@app.schedule("0 3 * * *", id="nightly")
@app.task(queue="reports")
def nightly(): return "done"
"""

Shop = Callable[..., Mainspring]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Write a package of its own name, with an app and other modules, and import the app."""
    name = f"shop{next(_numbers)}"
    opened: list[Mainspring] = []

    def make(include: object = (), **modules: str) -> Mainspring:
        given = [each.format(shop=name) for each in include] if isinstance(include, list) else include
        app = f"from mainspring import Mainspring\napp = Mainspring('memory://', timezone='UTC', include={given!r})\n"
        for module, text in {"app": app, **modules}.items():
            file = tmp_path.joinpath(name, *module.split("__")).with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text).format(shop=name))
            for folder in (file.parent, *file.parent.parents):
                if folder == tmp_path:
                    break
                folder.joinpath("__init__.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path))
        opened.append(import_module(f"{name}.app").app)
        return opened[-1]

    yield make
    for app in opened:
        app.close()
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def test_modules_that_an_app_includes_are_imported_when_it_starts(shop: Shop) -> None:
    mails = "from .app import app\n@app.task(queue='mail')\ndef send(): ...\n"
    app = shop(["{shop}.mails", "{shop}.reports.*"], mails=mails, reports__daily=TASKS, reports__older__weekly="")
    assert app.declared_queues() == ["default"]
    app.start(work=True)
    assert {"nightly", "send"} < {task.__name__ for task in app.tasks}
    assert [job.id for job in app.jobs()] == ["nightly"]
    assert app.declared_queues() == ["default", "mail", "reports"]
    assert any(name.endswith(".older.weekly") for name in sys.modules)


def test_what_an_app_includes_is_declared_before_schedules_are_compared(shop: Shop) -> None:
    app = shop(["{shop}.reports.daily"], reports__daily=TASKS)
    assert app.reconcile(remove=True).added == ["nightly"]
    assert app.reconcile(remove=True).gone == []


def test_a_program_and_the_modules_it_includes_share_one_app(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from mainspring import Mainspring\n"
        "app = Mainspring('memory://', include=['work'])\n"
        "if __name__ == '__main__':\n    app.start()\n    print(app.tasks.get('work:clean'))\n"
    )
    (tmp_path / "work.py").write_text("from program import app\n@app.task\ndef clean(): ...\n")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("<Task work:clean>\n", "")


@pytest.mark.parametrize(
    ("include", "problem"),
    [
        (["{shop}.reprots.*"], "matches no module"),
        (["*.tasks"], "must begin with a package"),
        (["{shop}.mials"], "there is no module '.*mials'; did you mean '.*mails'"),
        (["nowhere.mails"], "there is no module 'nowhere'"),
    ],
)
def test_a_module_that_is_not_there_is_named(shop: Shop, include: list[str], problem: str) -> None:
    app = shop(include, mails="")
    with pytest.raises(ConfigurationError, match=problem):
        app.start()
    assert not app.running


def test_an_error_in_an_included_module_says_why_it_was_imported(shop: Shop) -> None:
    app = shop(["{shop}.mails"], mails="import nowhere_at_all")
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all") as caught:
        app.start()
    assert "which include= names" in caught.value.__notes__[0]


def test_modules_that_use_the_app_and_were_not_imported_are_named(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    app = shop(
        mails="from {shop}.app import app as jobs\n@jobs.task\ndef send(): ...\n",
        events="import {shop}.app\n{shop}.app.app.on('pre_execute', print)\n",
        stars="from {shop}.app import *\n@app.middleware\ndef around(run, call_next): ...\n",
        reports__daily=TASKS,
        views="from .app import app\nfrom . import mails\ndef view(): mails.send.enqueue()\n",
        other="class app: task = print\napp.task()\n",
        broken="from .app import app\n@app.task def\n",
        tests__test_mails="from {shop}.app import app\n@app.task\ndef fake(): ...\n",
        known="from {shop}.app import app\n@app.task\ndef known(): ...\n",
    )
    package = path_of(app).partition(".")[0]
    import_module(f"{package}.known")
    with caplog.at_level(logging.WARNING, "mainspring.app"):
        app.start(work=True)
    (record,) = caplog.records
    assert f"of {package}.events, {package}.mails, {package}.reports.daily, {package}.stars: " in record.getMessage()


def test_a_module_that_cannot_be_read_does_not_keep_the_app_from_starting(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *args: object, **options: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    app = shop(secrets="from {shop}.app import app\n@app.task\ndef work(): ...\n")
    monkeypatch.setattr(Path, "read_text", refuse)
    app.start(work=True)
    assert app.running


def test_an_app_in_a_module_of_its_own_looks_beside_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from mainspring import Mainspring\napp = Mainspring('memory://')\n"
        "if __name__ == '__main__':\n    app.start(work=True)\n"
    )
    (tmp_path / "work.py").write_text("from program import app\n@app.task\ndef clean(): ...\n")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "does not know the tasks and schedules of work: " in done.stderr


def test_a_worker_imports_what_it_is_told_to_include_and_names_what_was_forgotten(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "app.py").write_text(
        f"from mainspring import Mainspring\napp = Mainspring('sqlite:///{tmp_path}/jobs.db')\n"
    )
    for name in ("mails", "reports"):
        (tmp_path / "shop" / f"{name}.py").write_text(
            f"from .app import app\n@app.schedule('0 3 * * *', id='{name}')\ndef run(): ...\n"
        )
    command = [sys.executable, "-m", "mainspring", "worker", "shop.app:app", "--burst", "-p", "1"]
    done = subprocess.run(
        [*command, "--include", "shop.mails"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("does not know the tasks and schedules of shop.reports: ") == 1
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert [job.id for job in app.jobs()] == ["mails"]
