"""What workers write to stderr: a block at the start, a line for each run, or JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from mainspring.cluster.log_output import JsonFormatter, TextFormatter
from tests.cluster.kit import Yard
from tests.servers import Redis


def record(message: str, level: int = logging.INFO, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("mainspring.runs", level, __file__, 1, "%s", (message,), None)
    made.__dict__.update(facts)
    return made


def test_a_record_of_a_run_is_an_object_on_one_line() -> None:
    text = JsonFormatter().format(
        record("it\nfailed", run_id="r1", task="shop:send", queue="mail", attempt=2, took=0.5)
    )

    found = json.loads(text)
    assert "\n" not in text
    assert {
        name: found[name] for name in ("level", "logger", "message", "run_id", "task", "queue", "attempt", "took")
    } == {
        "level": "info",
        "logger": "mainspring.runs",
        "message": "it\nfailed",
        "run_id": "r1",
        "task": "shop:send",
        "queue": "mail",
        "attempt": 2,
        "took": 0.5,
    }


def test_an_exception_is_part_of_the_object() -> None:
    try:
        raise ValueError("torn")
    except ValueError as error:
        made = record("it failed")
        made.exc_info = (ValueError, error, error.__traceback__)

    assert 'raise ValueError("torn")' in json.loads(JsonFormatter().format(made))["exception"]


def test_characters_that_a_terminal_obeys_are_spelt_out() -> None:
    text = TextFormatter(brief=True).format(record("no \x1b[31manswer\r\nTraceback:\n\tat home"))

    assert text.partition("INFO")[2].strip() == "no \\x1b[31manswer\\r\nTraceback:\n\tat home"


def test_only_a_terminal_gets_colours() -> None:
    warning = record("careful", logging.WARNING)

    assert TextFormatter(coloured=True).format(warning).startswith("\x1b[33m")
    assert "\x1b" not in TextFormatter().format(warning)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_worker_logs_a_block_and_each_run_once(
    make_yard: Callable[..., Yard], redis_server: Redis, kind: str
) -> None:
    yard = make_yard(url=redis_server.url if kind == "redis" else None)
    good, bad = yard.jobs.ok.enqueue(1), yard.jobs.fail.enqueue()
    done = yard.run("-m", "mainspring", "worker", "jobs:app", "-p", "2", "--burst")

    assert done.returncode == 0
    assert done.stderr.count("INFO mainspring.cluster: mainspring ") == 1
    for line in (
        "  store      ",
        "  queues     ",
        "  tasks      ",
        "  schedules  ",
        "  processes  2, each with 8 threads",
    ):
        assert line in done.stderr
    assert done.stderr.count(f"ok(1) {good.id} succeeded in ") == 1
    assert done.stderr.count(f"{bad.id} failed for good") == 1


def test_a_warning_about_a_schedule_is_logged_once_however_many_workers_there_are(yard: Yard) -> None:
    (yard.folder / "gap.py").write_text(
        "from jobs import app\n\n@app.schedule('30 2 * * *', timezone='Europe/Berlin')\ndef early() -> None: pass\n"
    )
    done = yard.run("-m", "mainspring", "worker", "gap:app", "-p", "2", "--burst")

    assert done.stderr.count("does not exist that day") == 1, done.stderr


def test_a_quiet_worker_says_nothing_of_what_goes_well(yard: Yard) -> None:
    run = yard.jobs.ok.enqueue(1)
    done = yard.run("-m", "mainspring", "worker", "jobs:app", "-p", "1", "--burst", "--quiet")

    assert (done.returncode, done.stderr, run.fetch().result) == (0, "", 1)


def test_each_line_of_a_worker_may_be_json(yard: Yard) -> None:
    run = yard.jobs.ok.enqueue(1)
    done = yard.run("-m", "mainspring", "worker", "jobs:app", "-p", "1", "--burst", "--log-format", "json")

    found = [json.loads(line) for line in done.stderr.splitlines()]
    [about] = [each for each in found if each.get("run_id") == run.id]
    assert (about["task"], about["queue"], about["attempt"], about["status"]) == ("jobs:ok", "default", 1, "succeeded")
    assert about["took"] >= 0


def test_a_program_that_starts_a_cluster_keeps_its_logging(yard: Yard) -> None:
    program = """
import logging
from jobs import app
from mainspring.cluster import Cluster
if __name__ == "__main__":
    with Cluster(app, processes=1):
        pass
    assert logging.getLogger().handlers == []
    assert logging.getLogger("mainspring").handlers == []
"""
    (yard.folder / "program.py").write_text(program)
    done = yard.run("program.py")
    assert (done.returncode, done.stderr) == (0, "")
