"""`mainspring simulate` and `mainspring audit`: in a terminal, through pipes, as JSON, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.kit import Shop
from tests.cli.test_terminal import on_terminal, without_colours

APP = """
from mainspring import Mainspring
app = Mainspring("sqlite:///absent.db", timezone="Europe/Berlin")

@app.schedule("30 2 * * *", id="nightly")
def nightly(): ...

@app.schedule("*/10 * * * *", id="often")
def often(): ...
"""


def in_folder(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(APP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.run(
        [sys.executable, "-m", "mainspring", *words], cwd=folder, env=kept, capture_output=True, text=True, timeout=60
    )


def test_schedules_are_simulated_before_anything_is_deployed(tmp_path: Path) -> None:
    words = ("--since", "2027-03-27", "--days", "3", "--took", "often=900", "--app", "shop:app")
    done = in_folder(tmp_path, "simulate", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 jobs fire 435 times from Sat 2027-03-27 00:00 CET to Tue 2027-03-30 ")
    assert any(line.split()[:2] == ["nightly", "3"] for line in lines)
    assert "  often takes 15 min 0 s, so of its fires 216 are missed (max_instances is 1)" in lines
    assert any("nightly: 02:30 does not exist that day" in line for line in lines)
    assert not (tmp_path / "absent.db").exists()


def test_mistakes_in_the_options_are_mistakes_of_usage(tmp_path: Path) -> None:
    for words, said in (
        (("--took", "often"), "is not JOB=SECONDS"),
        (("--since", "soon"), "is not a time"),
        (("--days", "0"), "days must be more than 0"),
    ):
        done = in_folder(tmp_path, "simulate", *words, "--app", "shop:app")
        assert (done.returncode, said in done.stderr) == (2, True)
        assert "Try: mainspring simulate" in done.stderr


def test_jobs_of_a_store_are_simulated_and_none_end_with_1(any_shop: Shop) -> None:
    assert any_shop.call("simulate").exit_code == 1
    any_shop.app.add_job(any_shop.resize, "interval", hours=1, args=["cat.png"], id="hourly")
    told = any_shop.json("simulate", "--days", "1")
    assert [(job["job_id"], job["fires"]) for job in told["jobs"]] == [("hourly", 24)]


def test_the_audit_tells_who_and_why(any_shop: Shop) -> None:
    with any_shop.app.acting("ann", "the provider is down"):
        any_shop.app.pause_queue("mail")
    any_shop.app.cancel(any_shop.ids["cat"])
    found = any_shop.call("audit")
    assert found.exit_code == 0
    assert re.search(r"paused +queue:mail", found.stdout)
    assert "the provider is down" in found.stdout
    told = any_shop.json("audit", "queue:mail")
    assert [(entry["by"], entry["verb"]) for entry in told][:1] == [("ann", "pause_queue")]
    wrong = any_shop.call("audit", "mail")
    assert (wrong.exit_code, "write queue:mail" in wrong.stderr) == (2, True)


def test_whoever_acts_says_why(shop: Shop) -> None:
    shop.app.add_job(shop.resize, "interval", hours=1, args=["cat.png"], id="hourly")
    for words in (
        ("queues", "pause", "default"),
        ("queues", "purge", "default", "--yes"),
        ("jobs", "pause", "hourly"),
        ("runs", "retry", shop.ids["bob"]),
        ("runs", "cancel", shop.ids["bob"]),
    ):
        assert shop.call(*words, "--why", "the provider is down").exit_code == 0
    told = shop.json("audit")
    assert {(entry["verb"], entry["why"]) for entry in told} == {
        (verb, "the provider is down") for verb in ("pause_queue", "purge", "pause_job", "retry", "cancel")
    }
    assert all("@" in entry["by"] for entry in told)
    assert "the provider is down" in shop.call("explain", "queue:default").stdout


def test_an_empty_audit_ends_with_1(shop: Shop) -> None:
    assert shop.call("audit").exit_code == 1


def test_a_terminal_gets_lines_that_fit(shop: Shop) -> None:
    shop.app.add_job(shop.resize, "interval", hours=1, args=["cat.png"], id="a job with quite a long name, all in all")
    with shop.app.acting("ann", "the provider is down, and nobody knows for how long that will be"):
        shop.app.pause_queue("mail")
    for words in (("simulate", "--days", "1"), ("audit",)):
        code, said = on_terminal(shop, *words, columns=80)
        assert code == 0
        table = [line for line in without_colours(said).splitlines() if "job with" in line or "paused" in line]
        assert table
        assert max(map(len, table)) <= 80
