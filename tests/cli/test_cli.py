"""The command line, as a person calls it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest
from click.testing import CliRunner

from mainspring import Mainspring, __version__
from mainspring.app.insight.doctor import diagnose
from mainspring.cli import main
from mainspring.jobstores.base import NodeInfo


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_it_says_its_version_and_lists_its_verbs() -> None:
    assert __version__ in call("--version")[1]
    code, text = call("--help")
    assert code == 0
    assert re.search(r"cron +Say what a crontab expression means", text)
    assert re.search(r"demo +Watch a small shop", text)


def test_a_wrong_verb_is_named_with_the_near_one() -> None:
    code, text = call("dmeo")
    assert code == 2
    assert "no verb 'dmeo'; did you mean 'demo'?" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["worker", "-c", "4", "app.py"], "No such option '-c'; -p/--processes are worker processes"),
        (["worker", "--loglevel", "info"], "here it is --log-level info"),
        (["worker", "--beat", "app.py"], "every worker fires schedules"),
        (["-A", "app", "worker"], "No such option '-A'; name the app behind the verb: mainspring worker MODULE:APP"),
        (["runs", "list", "--status", "failed"], "No such option '--status'; conditions are words: status:failed"),
        (["runs", "list", "--queue", "mail"], "conditions are words: queue:..."),
        (["worker", "--procesess", "4"], "'--processes'"),
    ],
)
def test_an_option_that_people_know_from_elsewhere_leads_to_ours(words: list[str], says: str) -> None:
    code, text = call(*words)
    assert code == 2
    assert says in text


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("ap.py", r"there is no file '.*ap\.py' to load the app from; did you mean 'app\.py'\?"),
        ("jobs.db", r"'jobs\.db' is not a module; a database is named by its URL: sqlite:///jobs\.db"),
        ("json", r"module 'json' has no app: none of its variables is a Mainspring\(\.\.\.\)"),
    ],
)
@pytest.mark.parametrize("verb", [["runs", "list"], ["worker"]])
def test_a_wrong_app_is_answered_with_the_right_one(
    target: str, says: str, verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring('sqlite:///jobs.db')\n")
    code, text = call(*verb, "--app", target)
    assert code == 1
    assert re.search(says, text)
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]  # to look makes no key and no database


@pytest.mark.parametrize("group", ["runs", "jobs", "queues", "broken"])
def test_a_group_without_a_verb_lists_and_an_unknown_verb_is_answered_with_the_near_one(
    group: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    # Between two full units, so that the time that is left reads the same in both answers.
    due = datetime.now(UTC) + timedelta(days=10, minutes=30)
    with Mainspring(url) as app:
        app.add_job(print, "date", run_date=due, id="once")
    assert call(group, "--app", url) == call(group, "list", "--app", url)
    code, text = call(group, "lst", "--app", url)
    assert (code, "no verb 'lst'; did you mean 'list'?" in text) == (2, True)
    assert call(group, "-h") == call(group, "--help")
    assert "..." not in call(group, "-h")[1].partition("Commands:")[2]  # no sentence about a verb is cut


@pytest.mark.parametrize(
    "verb",
    [["runs", "list"], ["status"], ["explain"], ["jobs", "list"], ["top"], ["simulate"], ["dashboard"]],
    ids=lambda verb: " ".join(verb),
)
def test_to_look_at_a_database_whose_key_is_gone_makes_no_other_key(verb: list[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.add_job(print, "interval", hours=1, id="hourly")
    key = tmp_path / "jobs.db.key"
    key.rename(tmp_path / "kept")
    code, text = call(*verb, "--app", url)
    assert code == 1
    assert "its key file" in text
    assert "put it back, or set MAINSPRING_SECRET_KEY" in text
    assert not key.exists()


def test_the_doctor_of_a_database_whose_key_is_gone_says_so_and_makes_no_other_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.add_job(print, "interval", hours=1, id="hourly")
    (tmp_path / "jobs.db.key").unlink()
    _, text = call("doctor", "--app", url)
    assert "its key file" in text
    assert "put it back, or set MAINSPRING_SECRET_KEY" in text
    assert not (tmp_path / "jobs.db.key").exists()


def test_an_app_whose_key_file_is_gone_keeps_its_key_and_hears_of_it_each_time(tmp_path: Path) -> None:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db") as app:
        run = app.enqueue(print)
        codec = app.codec
        (tmp_path / "jobs.db.key").unlink()
        for _ in range(2):
            assert [each.mark for each in diagnose(app).findings if each.subject == "key"] == ["warning"]
        assert app.codec is codec
        assert app.get(run.id).status == "pending"


def test_a_worker_needs_code() -> None:
    code, text = call("worker", "--app", "sqlite:///jobs.db")
    assert code == 2
    assert "a URL has no code to execute" in text


def test_cron_shows_what_an_expression_means_across_a_change_of_clocks() -> None:
    code, text = call("cron", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "3", "--after", "2026-03-28T00:00")
    assert code == 0
    assert text.splitlines() == [
        "every day at 02:30, Europe/Berlin",
        "Sat 2026-03-28 02:30:00 CET",
        "Sun 2026-03-29 03:00:00 CEST  02:30 does not exist that day: the clock goes from 02:00 to 03:00",
        "Mon 2026-03-30 02:30:00 CEST",
    ]


def test_cron_prints_the_same_as_json() -> None:
    code, text = call("cron", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "1", "--after", "2026-10-25", "--json")
    note = "02:30 comes twice that day, and it fires the first time only"
    assert (code, json.loads(text)) == (
        0,
        {
            "words": "every day at 02:30, Europe/Berlin",
            "timezone": "Europe/Berlin",
            "fires": [{"time": "2026-10-25T02:30:00+02:00", "note": note}],
        },
    )


def test_cron_uses_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.cli.insight.cron.get_localzone", lambda: ZoneInfo("Asia/Tokyo"))
    code, text = call("cron", "0 9 * * mon-fri", "-n", "1", "--after", "2026-11-14T00:00")
    assert (code, text.splitlines()) == (0, ["every weekday at 09:00, Asia/Tokyo", "Mon 2026-11-16 09:00:00 JST"])


def test_cron_says_what_is_wrong_and_where() -> None:
    code, text = call("cron", "61 2 * * *")
    assert code == 2
    assert "'61' is above 59\n    61 2 * * *\n    ^^\nTry: mainspring cron" in text
    code, text = call("cron", "0 0 30 2 *", "--tz", "UTC")
    assert (code, text.splitlines()) == (
        1,
        ["on the 30th of February at 00:00, which never comes, UTC", "Error: '0 0 30 2 *' never fires"],
    )
    code, text = call("cron", "@daily", "--tz", "Europe/Berln")
    assert (code, "Europe/Berlin" in text) == (2, True)
    code, text = call("cron", "@daily", "--after", "tomorrow")
    assert (code, "is not a time" in text) == (2, True)


def test_status_of_a_sqlite_file_that_is_not_there_says_so_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    text = "Error: there is no file 'jbos.db'; correct the URL, or start the app once\nTry: mainspring status -h\n"
    assert call("status", "sqlite:///jbos.db") == (1, text)
    assert "three slashes for a relative path: sqlite:///jobs.db" in call("status", "sqlite://jobs.db")[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["no_such_module:app", "json:app", "no_such_file.py", "mongo://host"])
def test_an_app_that_is_not_there_ends_with_the_help_to_read(target: str) -> None:
    code, text = call("runs", "list", "--app", target)
    assert (code, text.splitlines()[-1]) == (1, "Try: mainspring runs list -h")


@pytest.mark.parametrize("verb", ["status", "doctor", "runs list", "queues list"])
@pytest.mark.parametrize("name", ["[/x]", "[red]danger", ":boom:", "\x1b]0;owned\x07", "\x9b31m", "a\rb", "\u202eliam"])
def test_names_that_a_stranger_stored_are_shown_as_they_are_and_cannot_steer_the_terminal(
    tmp_path: Path, name: str, verb: str
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.enqueue(print)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as database, database:
        # A run waits in a lane of its queue, so a stranger would write both.
        database.execute("UPDATE mainspring_runs SET queue = ?, lane = ?", [name, name])
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, [*verb.split(), "--app", url], color=True)
    assert not isinstance(result.exception, Exception)
    assert (name if name.isprintable() else name.encode("unicode_escape").decode()) in result.output
    told = re.sub(r"\x1b\[[0-9;]*m", "", result.output)  # our own colours
    assert [sign for sign in told if not sign.isprintable() and sign != "\n"] == []


def test_status_tells_the_jobs_there_are_from_the_runs_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", "a key of the tests that is long enough")
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.add_job("json:dumps", "interval", hours=1, args=[1])
        assert call("status", url)[1].splitlines()[-1] == "jobs: 1; runs ended so far: none; broken now: 0"
        app.enqueue("json:dumps", 1).cancel()
        assert call("status", url)[1].splitlines()[-1] == "jobs: 1; runs ended so far: 1 cancelled; broken now: 0"


def test_status_shows_the_next_fires_and_what_is_overdue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", "a key of the tests that is long enough")
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.add_job("json:dumps", "interval", days=400, id="yearly", args=[1])
        app.add_job("json:dumps", "date", run_date="2026-01-01", timezone="UTC", id="forgotten", args=[1])
        app.add_job("json:dumps", "interval", hours=1, id="paused", args=[1]).pause()
    text = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["status", url]).output
    assert re.search(r"forgotten .* overdue", text)
    assert re.search(r"yearly .* in (399 d 23 h|400 d)", text)
    assert "paused" not in text
    assert "1 job is overdue: `mainspring doctor` says why" in text
    found = json.loads(call("status", url, "--json")[1])
    assert [job["id"] for job in found["schedules"]] == ["forgotten", "yearly"]
    assert found["overdue"] == 1


def test_a_node_whose_beats_stay_away_is_called_silent_and_serves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(url) as app:
        app.enqueue("json:dumps", 1)
        told = NodeInfo(id="n", host="host", pid=7, started_at=app.store.beat(), queues=("default",))
        app.store.beat(told, 60)
        assert [node.state for node in app.nodes()] == ["running"]
        app.store.shift_clock(11)
        assert [node.state for node in app.nodes()] == ["silent"]


def test_the_demo_shows_all_of_it_with_the_lines_of_the_log_and_ends_with_a_summary(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "TMPDIR": str(tmp_path), "PATH": path}
    command = [sys.executable, "-m", "mainspring", "demo", "--seconds", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        r"INFO +send_mail\('ann@example.com', password=\*\*\*\) \w+ succeeded in",
        r"WARNING ask_bank\(1001\) \w+ failed at shop.py:ask_bank; retry 1 of 3 in",
        r"INFO +ask_bank\(1001\) \w+ succeeded in .* at attempt 2",
        r"ERROR +print_label\(1002\) \w+ failed for good after 2 attempts",
        r"  \.\.\. \d frames in json \.\.\.",
        r"imported 5 of 5 orders",
        r"INFO +pack\(1003\) \w+~1 succeeded",
        r"INFO +collect\(\[<result of run ~1>, <result of run ~2>, <result of run ~3>\]\) \w+ succeeded",
        r'WARNING job "tidy_up" \(too late\) missed its run time',
        r"ERROR +job 'strange' cannot be restored and is set aside",
        r"\d+ s: \d+ succeeded, 1 failed, 2 retried, 1 missed, \d+ skipped, 1 broken; the first after \d+\.\d s",
        r"Try next:\n  \S*mainspring init .*\n  \S*mainspring dev app.py .*\n  \S*mainspring cron ",
    ):
        assert re.search(line, done.stdout), line
    for kind in ("interval", "cron", "date", "calendar", "and", "or", "async, jitter", "slow"):
        assert f'tidy_up" ({kind})' in done.stdout or f'" ({kind}) to the job store' in done.stdout
    assert "hunter2" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_demo_cleanly(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "mainspring", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert demo.stdout is not None
    assert "Ctrl-C ends it" in demo.stdout.readline()
    program, *words = demo.stdout.readline().split()  # the environment is not active: `mainspring` would not be found
    assert (Path(program).is_file(), words[:3]) == (True, ["runs", "list", "--app"])
    demo.send_signal(signal.SIGINT)
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, err) == (0, "")
    assert "Try next:" in out


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("path", [path for path, _ in _commands(main)], ids=" ".join)
def test_the_help_of_each_verb_shows_an_example(path: tuple[str, ...]) -> None:
    code, text = call(*path, "-h")
    assert code == 0
    assert re.search(r"Examples?:\n", text), text
