"""`mainspring jobs diff|adopt|backfill|export|import`, as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import main
from tests.cli.jobs.test_jobs import add_jobs
from tests.cli.kit import KEY, Shop, resize
from tests.cli.test_terminal import environment


def declare(shop: Shop) -> Shop:
    """Declare a schedule in a second process's app, and change it by hand."""
    for job in shop.app.jobs():
        shop.app.remove_job(job.id)
    other = Mainspring(shop.url, name=shop.name, secret_key=KEY, timezone="UTC")
    schedule = other.schedule("0 3 * * *", id="nightly", kwargs={"picture": "a.png"}, timezone="UTC")
    schedule(other.task(resize))
    other.reconcile()
    other.modify_job("nightly", kwargs={"picture": "b.png"}, retries=4)
    other.reschedule_job("nightly", "0 5 * * *", timezone="UTC")
    other.close()
    return shop


def test_jobs_are_compared_and_adopt_the_code_in_every_store(any_shop: Shop) -> None:
    shop = declare(any_shop)
    found = shop.json("jobs", "diff")
    assert all("@" in each.pop("by") and each.pop("at") for each in found)
    assert found == [
        {"job": "nightly", "field": "trigger", "code": "every day at 03:00, UTC", "store": "every day at 05:00, UTC"},
        {"job": "nightly", "field": "kwargs", "code": "{'picture': 'a.png'}", "store": "{'picture': 'b.png'}"},
        {"job": "nightly", "field": "retries", "code": "0", "store": "4"},
    ]
    text = shop.call("jobs", "diff")
    assert (text.exit_code, text.stdout.splitlines()[0].split()) == (
        0,
        ["job", "field", "code", "store", "changed", "by", "at"],
    )
    assert text.stderr == "take what the code says: mainspring jobs adopt nightly\n"
    assert shop.call("jobs", "diff", "--check").exit_code == 1
    assert shop.call("jobs", "adopt", "nightly", "--dry-run").output == "would be adopted: nightly\n"
    adopted = shop.call("jobs", "adopt", "nightly")
    assert (adopted.exit_code, adopted.output.startswith("adopted nightly: next at ")) == (0, True), adopted.output
    same = shop.call("jobs", "diff", "--check")
    assert (same.exit_code, same.stdout, same.stderr) == (0, "", "nothing differs\n")


def test_jobs_travel_through_a_file_from_one_store_to_another(any_shop: Shop, tmp_path: Path) -> None:
    shop, target = add_jobs(any_shop), f"sqlite:///{tmp_path}/target.db"
    file = str(tmp_path / "jobs.json")
    assert shop.call("jobs", "export", "-o", file).output == f"exported 3 jobs to {file}\n"
    with Mainspring(target, secret_key=KEY) as app:
        app.jobs()
    there = ["--app", target]
    dry = shop.call("jobs", "import", file, "--dry-run", "--app", target) if shop.name == "mainspring" else None
    assert dry is None or sorted(dry.output.splitlines()) == [
        "would be imported: nightly", "would be imported: rare", "would be imported: thumbs",
    ]  # fmt: skip
    runner = CliRunner(env={"MAINSPRING_SECRET_KEY": KEY})
    assert runner.invoke(main, ["jobs", "import", file, *there]).output == "imported 3 jobs\n"
    with Mainspring(target, secret_key=KEY) as app:
        found = {job.id: (job.args, dict(job.kwargs), str(job.trigger), job.at) for job in app.jobs()}
    assert found == {job.id: (job.args, dict(job.kwargs), str(job.trigger), job.at) for job in shop.app.jobs()}
    taken = runner.invoke(main, ["jobs", "import", file, *there])
    assert (taken.exit_code, "3 jobs of 3 are there already" in taken.stderr) == (1, True)
    again = runner.invoke(main, ["jobs", "import", file, "--replace", "--paused", *there])
    assert again.output == "imported 3 jobs\n"
    with Mainspring(target, secret_key=KEY) as app:
        assert all(job.at is None for job in app.jobs())


def test_jobs_go_through_a_pipe(shop: Shop, tmp_path: Path) -> None:
    add_jobs(shop)
    target = f"sqlite:///{tmp_path}/target.db"
    with Mainspring(target, secret_key=KEY) as app:
        app.jobs()
    command = [sys.executable, "-m", "mainspring", "jobs"]
    written = subprocess.Popen([*command, "export", "thumbs"], stdout=subprocess.PIPE, env=environment(shop))
    read = subprocess.run(
        [*command, "import", "-", "--app", target], stdin=written.stdout, capture_output=True, text=True,
        env=environment(shop), timeout=60,
    )  # fmt: skip
    assert written.wait(60) == 0
    assert written.stdout is not None
    written.stdout.close()
    assert (read.returncode, read.stdout, read.stderr) == (0, "imported 1 job\n", "")


def test_declared_schedules_are_exported_when_they_are_asked_for(shop: Shop) -> None:
    declare(shop)
    none = shop.call("jobs", "export")
    assert (none.exit_code, none.stdout) == (1, "")
    assert none.stderr.splitlines() == [
        "left out 1 job declared in code: --all exports them, too",
        "Error: there are no jobs to export",
        "Try: mainspring jobs list",
    ]
    assert [job["id"] for job in json.loads(shop.call("jobs", "export", "--all").stdout)["jobs"]] == ["nightly"]
    assert [job["id"] for job in json.loads(shop.call("jobs", "export", "nightly").stdout)["jobs"]] == ["nightly"]


def test_a_file_that_holds_no_jobs_is_refused(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    found = shop.call("jobs", "import", str(tmp_path / "no.json"))
    assert (found.exit_code, "this is not a file of exported jobs" in found.stderr) == (1, True)
    assert shop.call("jobs", "import", str(tmp_path / "absent.json")).exit_code == 2


def test_the_jobs_of_a_scheduler_need_a_queue(shop: Shop, tmp_path: Path) -> None:
    from mainspring.schedulers.background import BackgroundScheduler

    file = tmp_path / "jobs.json"
    scheduler = BackgroundScheduler()
    scheduler.add_job(resize, "interval", hours=1, args=["a.png"], id="own")
    scheduler.start(paused=True)
    scheduler.export_jobs(str(file))
    scheduler.shutdown()
    refused = shop.call("jobs", "import", str(file))
    assert (refused.exit_code, "--queue hands it to workers" in refused.stderr) == (2, True)
    assert shop.call("jobs", "import", str(file), "--queue", "mail").output == "imported 1 job\n"
    assert (shop.app.get_job("own").queue, shop.app.get_job("own").executor) == ("mail", "queue")


def test_past_fires_are_run_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    span = ["--since", "2026-01-01T00:00+01:00", "--until", "2026-01-03T12:00+01:00"]
    trial = shop.call("jobs", "backfill", "nightly", *span, "--dry-run")
    assert (trial.exit_code, len(trial.stdout.splitlines()), trial.stderr) == (0, 3, "3 fires would run\n")
    refused = shop.call("jobs", "backfill", "nightly", *span)
    assert (refused.exit_code, "3 fires of nightly will run. Go on? Say so with --yes" in refused.stderr) == (2, True)
    assert shop.app.find(job="nightly") == []
    done = shop.json("jobs", "backfill", "nightly", *span, "--yes")
    assert (len(done["fires"]), done["known"], done["run"].startswith("nightly@")) == (3, [], True)
    again = shop.call("jobs", "backfill", "nightly", *span, "--yes")
    assert (again.exit_code, "nothing to run; 3 fires had a run" in again.stderr) == (1, True)
    wider = ["--since", "2025-12-31T00:00+01:00", *span[2:]]
    busy = shop.call("jobs", "backfill", "nightly", *wider, "--yes")
    assert (busy.exit_code, "already has its maximum of 1 unfinished instances" in busy.stderr) == (1, True)
    trial = shop.call("jobs", "backfill", "nightly", *wider, "--dry-run")
    assert trial.stderr == "1 fire would run; 3 fires had a run\n"
    shop.app.remove_job("nightly", cancel_runs=True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["backfill", "nightly", "--since", "soon"], 2, "'soon' is not a time; write how long ago"),
        (["backfill", "nightly"], 2, "--since"),
        (["backfill", "nigthly", "--since", "2d"], 1, "did you mean 'nightly'?"),
        (["backfill", "rare", "--since", "2d"], 1, "nothing to run"),
        (["diff", "nigthly"], 1, "did you mean 'nightly'?"),
        (["adopt", "nightly"], 1, "job 'nightly' was added by hand: no code declares it"),
        (["export", "nigthly"], 1, "did you mean 'nightly'?"),
    ],
)
def test_a_mistake_is_named(shop: Shop, words: list[str], code: int, said: str) -> None:
    add_jobs(shop)
    found = shop.call("jobs", *words)
    assert (found.exit_code, found.stdout, said in found.stderr) == (code, "", True), found.output


@pytest.mark.parametrize("verb", ["diff", "adopt", "backfill", "export", "import"])
def test_every_help_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, ["jobs", verb, "-h"])
    assert (found.exit_code, f"mainspring jobs {verb} " in found.output) == (0, True)
