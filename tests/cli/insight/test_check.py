"""`mainspring check` fails a deploy whose code would strand stored work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from tests.cli.kit import KEY

HEAD = """
from mainspring import Mainspring

app = Mainspring("sqlite:///{folder}/jobs.db", secret_key="{key}", timezone="UTC")
"""
BEFORE = """
@app.task(name="shop:mail")
def mail(to, subject): ...

@app.task(name="shop:resize")
def resize(picture: str, width: int): ...

@app.schedule("0 3 * * *", id="nightly")
@app.task(name="shop:report")
def report(): ...

def fill():
    mail.enqueue("ann", "tea")
    resize.options(delay=60).enqueue("a.png", width=7)
    app.add_job(mail, "interval", args=["bob", "jam"], id="weekly", weeks=1)
    app.reconcile()
"""

Deploy = Callable[[str], str]


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Write a version of the code; return where its app is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(code: str) -> str:
        made.append(f"deployed_{len(made)}")
        (tmp_path / f"{made[-1]}.py").write_text(HEAD.format(folder=tmp_path, key=KEY) + code)
        return f"{made[-1]}:app"

    yield write
    for name in made:
        sys.modules.pop(name, None)


def check(target: str, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["check", target, *words])
    return found.exit_code, found.output


def fill(target: str) -> None:
    module = __import__(target.partition(":")[0])
    with module.app:
        module.fill()


def test_code_that_fits_passes_also_before_the_first_deploy(deploy: Deploy) -> None:
    target = deploy(BEFORE)
    assert check(target)[0] == 0
    fill(target)
    assert check(target) == (0, "ok       code        the code fits 2 stored jobs and 2 unfinished runs\n")


def test_everything_that_would_be_stranded_is_named_with_what_to_do(deploy: Deploy) -> None:
    fill(deploy(BEFORE))
    code, text = check(
        deploy("""
@app.task(name="shop:send_mail")
def mail(to, subject): ...

@app.task(name="shop:resize")
def resize(picture: str, height: int): ...
"""),
        "--json",
    )
    found: list[dict[str, Any]] = json.loads(text)
    assert code == 1
    assert sorted(each["subject"] for each in found) == ["arguments", "schedules", "tasks", "tasks"]
    whole = " ".join(each["text"] + " " + each["advice"] for each in found)
    assert "'shop:mail' cannot be called by this code" in whole
    assert "job 'weekly'" in whole
    assert "aliases=['shop:mail']" in whole
    assert "takes no argument 'width'" in whole
    assert "the schedule 'nightly'" in whole


def test_aliases_defaults_and_ids_mend_it(deploy: Deploy) -> None:
    fill(deploy(BEFORE))
    target = deploy("""
@app.task(name="shop:send_mail", aliases=["shop:mail"])
def mail(to, subject, html=False): ...

@app.task(name="shop:resize", validate=True)
def resize(picture: str, width: int, height: int = 0): ...

@app.schedule("0 4 * * *", id="nightly")
@app.task(name="shop:report")
def other(): ...
""")
    assert check(target)[0] == 0


def test_stored_arguments_are_held_against_the_annotations(deploy: Deploy) -> None:
    fill(deploy(BEFORE))
    code, text = check(
        deploy(
            BEFORE.replace('name="shop:resize"', 'name="shop:resize", validate=True').replace(
                "width: int", "width: str"
            )
        )
    )
    assert code == 1
    assert "resize refuses width: Expected `str`, got `int`" in text


def test_a_url_has_no_code(deploy: Deploy) -> None:
    code, text = check("sqlite:///jobs.db")
    assert (code, "name the app" in text) == (2, True)


def test_another_app_on_the_store_keeps_its_own_work(deploy: Deploy) -> None:
    blog = deploy(BEFORE)
    shop = deploy("@app.task(name='other:task')\ndef task(): ...\n")
    fill(blog)
    code, text = check(shop)
    assert code == 1
    assert "'shop:mail' cannot be called by this code" in text
    code, text = check(shop, "--beside", blog)
    assert (code, "problem" in text) == (0, False), text
    assert "the code fits 0 stored jobs and 0 unfinished runs" in text


def test_runs_whose_task_is_gone_from_the_code_are_listed_as_such(deploy: Deploy) -> None:
    fill(deploy(BEFORE))
    target = deploy("@app.task(name='shop:resize')\ndef resize(picture: str, width: int): ...\n")
    listed = CliRunner().invoke(main, ["runs", "list", "--app", target]).output.splitlines()
    assert [line for line in listed if "mail(" in line and "no such task in the code" in line]
    assert not [line for line in listed if "resize(" in line and "no such task in the code" in line]
