"""`mainspring enqueue` and `mainspring call`, as a person calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.core.instants import SECOND
from tests.cli.kit import KEY, LIMIT, Shop
from tests.waiting import until

SEND = "tests.cli.kit:send_mail"
RESIZE = "tests.cli.kit:resize"


@contextmanager
def working(shop: Shop) -> Iterator[None]:
    """Have the shop's runs executed, by a node that the store knows already."""
    shop.app.start(work=True, schedule=False)
    try:
        until(shop.app.nodes)
        yield
    finally:
        shop.app.stop()


def test_a_task_is_enqueued_and_called_in_every_store(any_shop: Shop) -> None:
    shop = any_shop
    enqueued = shop.json("enqueue", RESIZE, "owl.png", "width=7")
    run = shop.app.get(enqueued["id"])
    assert (run.args, dict(run.kwargs), run.queue, enqueued["status"]) == (
        ("owl.png",),
        {"width": 7},
        "default",
        "pending",
    )
    with working(shop):
        called = shop.call("call", RESIZE, "owl.png", "--timeout", str(LIMIT))
        assert (called.exit_code, called.output) == (0, "owl.png@100\n")
        failed = shop.call("call", SEND, "bob", "--timeout", str(LIMIT))
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "failed: TimeoutError: mail.example.com did not answer\nTry: mainspring runs show " in failed.stderr


def test_arguments_are_json_or_else_text(shop: Shop) -> None:
    words = ['{"a": [1, null]}', "42", '"42"', "a=b=c", "--", "-1"]
    found = shop.json("enqueue", RESIZE, "42", 'width={"px": [1, null]}')
    run = shop.app.get(found["id"])
    assert (run.args, dict(run.kwargs)) == ((42,), {"width": {"px": [1, None]}})
    from mainspring.cli.common.reading import read_arguments

    assert read_arguments(words) == ([{"a": [1, None]}, 42, "42", "--", -1], {"a": "b=c"})
    negative = shop.call("enqueue", RESIZE, "--", "-1")
    assert shop.app.get(negative.stdout.split()[1]).args == (-1,)


def test_options_of_a_run_are_taken(shop: Shop) -> None:
    words = ["--queue", "mail", "--delay", "1h30m", "--priority", "7", "--retries", "2", "--run-timeout", "5m"]
    found = shop.json(
        "enqueue", RESIZE, "a.png", *words, "--unique", "k", "--group", "g", "--id", "mine", "--retention", "2d"
    )
    run = shop.app.get("mine")
    assert (found["id"], run.queue, run.priority, run.group, run.unique) == ("mine", "mail", 7, "g", f"{RESIZE}:k")
    assert (run.policy.retries, run.policy.timeout, run.policy.retention) == (2, 300, 172_800)
    assert 89 * 60 * SECOND < run.record.run_at - run.record.created_at < 91 * 60 * SECOND
    assert shop.json("enqueue", RESIZE, "b.png", "--unique", "k")["id"] == "mine"
    later = shop.app.get(shop.json("enqueue", RESIZE, "a.png", "--at", "2035-01-01T12:00")["id"])
    assert (later.run_at.year, later.run_at.hour) == (2035, 12)


def test_a_queue_that_nobody_serves_is_named_with_what_to_start(shop: Shop) -> None:
    found = shop.call("enqueue", RESIZE, "a.png")
    assert (found.exit_code, found.stdout.startswith("enqueued ")) == (0, True)
    assert found.stderr == "no worker serves the queue default\nTry: mainspring worker MODULE:APP -Q default\n"
    shop.app.pause_queue("default")
    paused = shop.call("enqueue", RESIZE, "a.png")
    assert paused.stderr == "the queue default is paused\nTry: mainspring queues resume default\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["resize", "a.png"], 2, "a store does not know the tasks of its app, such as 'resize'; name the app"),
        (["tests.cli.kit:resise", "a.png"], 1, "'tests.cli.kit:resise'"),
        (["nowhere.at:all"], 1, "nowhere"),
        ([RESIZE], 2, "picture"),
        ([RESIZE, "a.png", "heigth=3"], 2, "heigth"),
        ([RESIZE, "a.png", "width=1", "width=2"], 2, "width is given twice"),
        ([RESIZE, "a.png", "--delay", "soon"], 2, "'soon' is not a length of time; write 90s, 5m, 1h30m or 2d"),
        ([RESIZE, "a.png", "--at", "soon"], 2, "'soon' is not a time; write how long from now"),
        ([RESIZE, "a.png", "--at", "14:00", "--delay", "3s"], 2, "give one of them"),
        ([RESIZE, "a.png", "--queue", "a:b"], 2, "cannot name a queue"),
    ],
)
@pytest.mark.parametrize("verb", ["enqueue", "call"])
def test_a_mistake_is_named_and_nothing_is_enqueued(
    shop: Shop, verb: str, words: list[str], code: int, said: str
) -> None:
    before = len(shop.app.find())
    found = shop.call(verb, *words)
    assert (found.exit_code, found.stdout) == (code, "")
    assert said in found.stderr
    assert len(shop.app.find()) == before


def test_a_call_that_takes_too_long_is_said_to_go_on(shop: Shop) -> None:
    found = shop.call("call", RESIZE, "a.png", "--timeout", "0")
    assert (found.exit_code, "has not ended in 0 s" in found.stderr) == (1, True)
    assert "Try: mainspring runs show " in found.stderr


def test_the_end_of_a_call_is_printed_as_json(shop: Shop) -> None:
    with working(shop):
        good = json.loads(shop.call("call", RESIZE, "a.png", "--json").stdout)
        failed = shop.call("call", SEND, "bob", "--json")
    assert (good["status"], good["result"], good["error"]) == ("succeeded", "a.png@100", None)
    bad = json.loads(failed.stdout)
    assert (failed.exit_code, bad["status"], bad["result"]) == (1, "failed", None)
    assert bad["error"] == "TimeoutError: mail.example.com did not answer"


def test_a_store_that_does_not_answer_ends_with_3() -> None:
    away = ["--app", "redis://127.0.0.1:1/0"]
    environment = {"MAINSPRING_SECRET_KEY": KEY}
    for verb in ("enqueue", "call"):
        found = CliRunner(env=environment).invoke(main, [verb, RESIZE, "a.png", *away])
        assert (found.exit_code, "Try: mainspring doctor" in found.stderr) == (3, True), found.output


@pytest.mark.parametrize("verb", ["enqueue", "call"])
def test_every_help_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, [verb, "-h"])
    assert (found.exit_code, f"mainspring {verb} " in found.output) == (0, True)


APP = """
from mainspring import Mainspring
app = Mainspring("{url}")

@app.task
def add(one: int, other: int = 1) -> int:
    return one + other

@app.task
def greet(who: str) -> dict:
    return {{"text": f"Hello {{who}}", "token": "hunter2"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an app that has never been started."""
    (tmp_path / "shop.py").write_text(APP.format(url=f"sqlite:///{tmp_path}/new.db"))
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.Popen(
        [sys.executable, "-m", "mainspring", *words], cwd=folder, env={**kept, "MAINSPRING_APP": "shop:app"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def test_the_worker_to_start_is_named_by_the_app_that_was_given(folder: Path) -> None:
    out, err = command(folder, "enqueue", "add", "1", "2").communicate(timeout=LIMIT)
    assert out.startswith("enqueued ")
    assert "Try: mainspring worker shop:app -Q default\n" in err


def test_a_new_app_is_called_through_a_worker_in_processes_of_their_own(folder: Path) -> None:
    worker = command(folder, "worker", "--processes", "1", "--log-level", "error")
    try:
        adding = command(folder, "call", "add", "40", "other=2", "--timeout", str(LIMIT))
        out, err = adding.communicate(timeout=LIMIT)
        assert (adding.returncode, out) == (0, "42\n"), err
        greeting = command(folder, "call", "greet", "ann", "--timeout", str(LIMIT))
        out, err = greeting.communicate(timeout=LIMIT)
        assert (greeting.returncode, out) == (0, "{'text': 'Hello ann', 'token': ***}\n"), err
    finally:
        worker.terminate()
        worker.communicate(timeout=LIMIT)


def test_an_interrupted_call_says_that_its_run_goes_on(folder: Path) -> None:
    calling = command(folder, "call", "add", "1")
    assert calling.stderr is not None
    assert calling.stderr.readline() == "no worker serves the queue default\n"
    calling.send_signal(signal.SIGINT)
    _, err = calling.communicate(timeout=LIMIT)
    assert calling.returncode == 1
    assert "it goes on\nTry: mainspring runs cancel " in err


def test_a_task_is_known_by_its_name_alone_and_a_misspelt_one_is_named(folder: Path) -> None:
    done = command(folder, "enqueue", "ad", "1")
    _, err = done.communicate(timeout=LIMIT)
    assert done.returncode == 1
    assert err == "Error: the app has no task 'ad'; did you mean 'add'?\nTry: mainspring tasks\n"


def test_a_wrong_command_ends_with_the_help_to_read(shop: Shop) -> None:
    twice = shop.call("enqueue", RESIZE, "a.png", "width=1", "width=2")
    assert twice.stderr == "Error: width is given twice\nTry: mainspring enqueue -h\n"
    both = shop.call("jobs", "add", RESIZE, "a.png", "--cron", "0 3 * * *", "--every", "1h")
    assert both.stderr.endswith("Try: mainspring jobs add -h\n")
