"""Which app the verbs act on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import Mainspring, tasks
from mainspring.errors import ConfigurationError
from tests.tasks import functions


def test_importing_the_module_opens_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import mainspring.tasks, sys; print('sqlalchemy' in sys.modules)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("False\n", "", [])


def test_without_any_word_the_app_is_a_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tasks.get_app().url == "sqlite:///mainspring.db"
    assert list(tmp_path.iterdir()) == []


def test_the_app_without_a_name_uses_the_url_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_URL", "memory://")
    assert tasks.get_app().url == "memory://"
    assert tasks.get_app() is tasks.get_app()


def test_the_environment_names_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_APP", "tests.tasks.functions:app")
    assert tasks.get_app() is functions.app


def test_an_app_that_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_APP", "tests.tasks.functions:app")
    given = Mainspring("memory://")
    tasks.set_app(given)
    assert tasks.get_app() is given


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tests.tasks.functions:ap", "MAINSPRING_APP is .*did you mean 'app'"),
        ("tests.tasks.functions:add", "not a Mainspring"),
        ("nonsense", "package.module:name"),
    ],
)
def test_a_name_that_leads_to_no_app_is_reported(name: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_APP", name)
    with pytest.raises(ConfigurationError, match=complaint):
        tasks.get_app()


def test_only_an_app_can_be_set() -> None:
    with pytest.raises(TypeError, match="takes a Mainspring"):
        tasks.set_app("sqlite:///jobs.db")  # type: ignore[arg-type]
