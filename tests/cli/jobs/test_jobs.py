"""`mainspring jobs`, as a person calls it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import main
from mainspring.jobstores.base import NodeInfo
from tests.app.insight.kit import announce
from tests.cli.kit import KEY, LIMIT, Shop, resize


def add_jobs(shop: Shop) -> Shop:
    for job in shop.app.jobs():
        shop.app.remove_job(job.id)
    shop.app.add_job(resize, "interval", hours=1, id="thumbs", args=["a.png"], kwargs={"width": 3})
    shop.app.add_job(resize, "cron", hour=3, timezone="Europe/Berlin", id="nightly", args=["b.png"])
    shop.app.add_job(resize, "interval", days=900, id="rare", args=["c.png"])
    return shop


@pytest.fixture
def jobs(shop: Shop) -> Shop:
    """A shop on SQLite with three jobs."""
    return add_jobs(shop)


def ids(shop: Shop) -> list[str]:
    return [job["id"] for job in shop.json("jobs", "list")]


def test_a_schedule_that_the_app_has_not_stored_yet_is_known_from_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "from mainspring import Mainspring\napp = Mainspring('sqlite:///jobs.db')\n"
    (tmp_path / "unstored.py").write_text(f"{program}@app.schedule('@daily')\ndef report(): ...\n")
    with Mainspring("sqlite:///jobs.db") as app:
        app.add_job(print, "interval", hours=1, id="hourly")
    for job_id in ("report", "unstored:report"):
        found = CliRunner().invoke(main, ["jobs", "run", job_id, "--app", "unstored.py"])
        assert found.exit_code == 1
        assert f"the code declares the schedule {job_id!r}, and the store lacks it" in found.output


def test_jobs_are_looked_at_and_acted_on_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    assert set(ids(shop)) == {"thumbs", "nightly", "rare"}
    assert shop.call("jobs", "pause", "thumbs").output == "paused thumbs\n"
    assert shop.json("jobs", "show", "thumbs")["paused"] is True
    assert shop.call("jobs", "resume", "thumbs").output.startswith("resumed thumbs: next at ")
    assert shop.call("jobs", "run", "thumbs").output.startswith("enqueued thumbs: thumbs@")
    assert shop.call("jobs", "remove", "rare", "--cancel-runs").output == "removed rare\n"
    assert set(ids(shop)) == {"thumbs", "nightly"}
    assert [fire["job"] for fire in shop.json("jobs", "next", "thumbs", "-n", "2")] == ["thumbs", "thumbs"]


def test_a_list_shows_the_next_to_fire_first_and_paused_ones_last(jobs: Shop) -> None:
    jobs.app.pause_job("thumbs")
    lines = jobs.call("jobs", "list").output.splitlines()
    assert lines[0].split() == ["id", "health", "next", "when", "task", "queue"]
    assert [line.split()[0] for line in lines[1:]] == ["nightly", "rare", "thumbs"]
    assert lines[3].split()[1:3] == ["paused", "paused"]
    assert "every hour" in lines[3]


def healths(shop: Shop, *words: str) -> dict[str, str]:
    return {job["id"]: job["health"] for job in shop.json("jobs", "list", *words)}


def test_a_list_shows_how_each_job_fares_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    shop.app.pause_job("rare")
    assert healths(shop) == {"thumbs": "down", "nightly": "down", "rare": "paused"}
    announce(shop.app)
    assert healths(shop) == {"thumbs": "new", "nightly": "new", "rare": "paused"}
    two_minutes_ago = datetime.now(UTC) - timedelta(minutes=2)
    shop.app.modify_job("thumbs", next_run_time=two_minutes_ago)
    assert healths(shop) == {"thumbs": "late", "nightly": "new", "rare": "paused"}
    assert healths(shop, "--health", "late,down") == {"thumbs": "late"}
    assert healths(shop, "--health", "new, paused") == {"nightly": "new", "rare": "paused"}
    late = shop.json("jobs", "show", "thumbs")
    assert late["health_reason"].startswith("a fire that was due 2 min")
    shop.app.store.beat(NodeInfo(id="node-1", host="web", pid=7, started_at=0), 0.0)


def test_overdue_fires_are_called_so(jobs: Shop) -> None:
    jobs.app.modify_job("thumbs", next_run_time=datetime.now(UTC) - timedelta(minutes=3))
    first, second = jobs.call("jobs", "next", "thumbs", "-n", "2").output.splitlines()[1:]
    assert "overdue by 3 min" in first
    assert "overdue" not in second
    assert [fire["overdue"] for fire in jobs.json("jobs", "next", "thumbs", "-n", "2")] == [True, False]
    shown = jobs.call("jobs", "show", "thumbs").output
    due = jobs.app.get_job("thumbs").next_run_time
    assert shown.count(f"{due:%Z} overdue by 3 min") == 2  # the next one, and the first of the next fires
    assert "overdue by 3 min" in jobs.call("jobs", "list").output


def test_jobs_that_fare_well_are_up(jobs: Shop) -> None:
    jobs.app.start(work=True)
    jobs.app.wait([jobs.app.run_now("thumbs").id], LIMIT)
    jobs.app.stop()
    announce(jobs.app)
    line = jobs.call("jobs", "list", "--health", "up").output.splitlines()[1]
    assert line.split()[:2] == ["thumbs", "up"]
    assert "health            up: its last fire succeeded" in jobs.call("jobs", "show", "thumbs").output


def test_a_health_that_no_job_has_or_that_is_misspelt_is_named(jobs: Shop) -> None:
    found = jobs.call("jobs", "list", "--health", "up,late")
    assert (found.exit_code, found.stderr) == (1, "no job is up or late\n")
    found = jobs.call("jobs", "list", "--health", "lat")
    assert found.exit_code == 2
    assert "no health is called 'lat'; did you mean 'late'?" in found.stderr


def test_looking_at_jobs_with_another_key_sets_none_aside(jobs: Shop) -> None:
    asked = {"MAINSPRING_URL": jobs.url, "MAINSPRING_SECRET_KEY": f"another, {KEY}", "MAINSPRING_APP": None}
    for words in (["jobs", "list"], ["top"]):
        CliRunner(env=asked).invoke(main, words)
    assert set(ids(jobs)) == {"thumbs", "nightly", "rare"}


def test_a_job_is_shown_with_its_next_fires_and_last_runs(jobs: Shop) -> None:
    run_id = jobs.app.run_now("thumbs").id
    text = jobs.call("jobs", "show", "thumbs").output
    assert "resize('a.png', width=3)" in text
    assert text.index("next fires") < text.index("last runs") < text.index(run_id)
    shown = jobs.json("jobs", "show", "nightly")
    moments = [datetime.fromisoformat(moment) for moment in shown["fires"]]
    assert [moment.hour for moment in moments] == [3] * 5
    assert shown["runs"] == []


def test_the_next_fires_of_all_jobs_come_in_one_order(jobs: Shop) -> None:
    fires = jobs.json("jobs", "next", "-n", "30")
    moments = [datetime.fromisoformat(fire["at"]) for fire in fires]
    assert moments == sorted(moments)
    assert {fire["job"] for fire in fires} == {"thumbs", "nightly"}
    assert moments[-1] - moments[0] < timedelta(hours=31)
    assert len(jobs.call("jobs", "next", "rare", "-n", "3").output.splitlines()) == 4
    jobs.app.pause_job("rare")
    nothing = jobs.call("jobs", "next", "rare")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (1, "", "nothing will fire\n")


def test_a_star_means_all_jobs_that_begin_so(jobs: Shop) -> None:
    jobs.app.add_job(resize, "interval", hours=1, id="thumbs2", args=["a.png"])
    assert jobs.call("jobs", "pause", "thumbs*", "--dry-run").output.splitlines() == [
        "would be paused: thumbs",
        "would be paused: thumbs2",
    ]
    assert not any(job["paused"] for job in jobs.json("jobs", "list"))
    refused = jobs.call("jobs", "remove", "thumbs*")
    assert (refused.exit_code, "2 jobs will be removed. Go on? Say so with --yes" in refused.stderr) == (2, True)
    assert jobs.call("jobs", "remove", "thumbs*", "--yes").exit_code == 0
    assert ids(jobs) == ["nightly", "rare"]


def test_a_job_may_be_named_without_its_module_if_only_one_can_be_meant(jobs: Shop) -> None:
    jobs.app.add_job(resize, "interval", hours=1, id="shop:thumbnails", args=["a.png"])
    assert jobs.call("jobs", "pause", "thumbnails").output == "paused shop:thumbnails\n"
    jobs.app.add_job(resize, "interval", hours=1, id="blog:thumbnails", args=["a.png"])
    doubtful = jobs.call("jobs", "resume", "thumbnails")
    assert (doubtful.exit_code, "'shop:thumbnails'" in doubtful.stderr) == (1, True), doubtful.stderr


def test_a_job_that_is_not_there_is_named_with_the_near_one_and_nothing_is_done(jobs: Shop) -> None:
    for verb in ("show", "pause", "resume", "remove", "run", "next"):
        found = jobs.call("jobs", verb, "nigthly")
        assert (found.exit_code, found.stdout) == (1, "")
        assert found.stderr == (
            "Error: no job by the id 'nigthly' was found; did you mean 'nightly'?\nTry: mainspring jobs list\n"
        )
    assert jobs.call("jobs", "pause", "nightly", "nowhere*").exit_code == 1
    assert not any(job["paused"] for job in jobs.json("jobs", "list"))


def test_a_job_above_its_instances_is_not_run_and_the_others_are(jobs: Shop) -> None:
    assert jobs.call("jobs", "run", "thumbs").exit_code == 0
    found = jobs.call("jobs", "run", "thumbs", "rare")
    assert found.exit_code == 1
    assert found.stdout.startswith("enqueued rare: ")
    assert "already has its maximum of 1 unfinished instances" in found.stderr


def test_a_run_of_a_job_is_waited_for(jobs: Shop) -> None:
    jobs.app.start(work=True, schedule=False)
    done = jobs.call("jobs", "run", "thumbs", "--wait", "--timeout", str(LIMIT))
    jobs.app.stop()
    assert done.exit_code == 0
    assert done.output.splitlines()[1].startswith("succeeded thumbs@")
    late = jobs.call("jobs", "run", "thumbs", "--wait", "--timeout", "0")
    assert (late.exit_code, "has not ended in 0 s" in late.stderr) == (1, True)


def test_a_command_with_the_wrong_key_names_the_jobs_it_cannot_read_and_leaves_them_alone(jobs: Shop) -> None:
    stranger = CliRunner(env={"MAINSPRING_SECRET_KEY": "another " + KEY})
    for words in (["list"], ["show", "nightly"], ["pause", "nightly"], ["remove", "nightly"], ["next"]):
        found = stranger.invoke(main, ["jobs", *words, "--app", jobs.url])
        assert found.exit_code == 1
        assert "nightly cannot be read here: unknown_key: " in found.output
    assert len(ids(jobs)) == 3
    assert jobs.app.broken() == []


def test_no_jobs_are_said_to_be_none(shop: Shop) -> None:
    found = shop.call("jobs", "list")
    assert (found.exit_code, found.stdout, found.stderr) == (1, "", "there are no jobs\n")
    assert shop.call("jobs", "list", "--json").stdout == "[]\n"


@pytest.mark.parametrize("verb", ["list", "show", "pause", "resume", "remove", "run", "next", "add", "edit", "skip"])
def test_every_help_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, ["jobs", verb, "-h"])
    assert (found.exit_code, f"mainspring jobs {verb} " in found.output) == (0, True)


RESIZE = "tests.cli.kit:resize"


def test_jobs_are_added_edited_and_skipped_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    added = shop.call("jobs", "add", RESIZE, "d.png", "width=5", "--cron", "30 4 * * *", "--id", "early", "--tz", "UTC")
    assert (added.exit_code, added.output.startswith("added early: next at ")) == (0, True), added.output
    job = shop.app.get_job("early")
    assert (job.args, dict(job.kwargs), str(job.trigger.timezone)) == (("d.png",), {"width": 5}, "UTC")
    edited = shop.call("jobs", "edit", "early", "e.png", "--every", "2h", "--queue", "mail", "--retries", "3")
    assert edited.exit_code == 0
    assert "queue: default -> mail\n" in edited.output
    assert "call: resize('d.png', width=5) -> resize('e.png')\n" in edited.output
    job = shop.app.get_job("early")
    assert (job.args, dict(job.kwargs), str(job.trigger), job.queue) == (("e.png",), {}, "interval[2:00:00]", "mail")
    assert job.policy.retries == 3
    before = shop.app.get_job("nightly").next_run_time
    skipped = shop.call("jobs", "skip", "nightly")
    after = shop.app.get_job("nightly").next_run_time
    assert before is not None
    assert after is not None
    assert timedelta(hours=22) < after - before < timedelta(hours=26)
    assert skipped.output.startswith("skipped nightly: not at ")


def test_a_job_is_added_once_paused_or_in_place_of_another(jobs: Shop) -> None:
    once = jobs.call("jobs", "add", RESIZE, "a.png", "--at", "2035-01-01T12:00", "--id", "once")
    assert "added once: next at 2035-01-01 12:00:00" in once.output
    taken = jobs.call("jobs", "add", RESIZE, "a.png", "--every", "1h", "--id", "once")
    assert (taken.exit_code, "Try: mainspring jobs edit once" in taken.stderr) == (1, True)
    assert "overwrite that job by --replace" in taken.stderr
    replaced = jobs.call("jobs", "add", RESIZE, "z.png", "--every", "1h", "--id", "once", "--replace", "--paused")
    assert replaced.output == "added once: it is paused\n"
    assert jobs.app.get_job("once").args == ("z.png",)


def test_a_dry_run_says_when_a_job_would_fire_and_what_would_change(jobs: Shop) -> None:
    would = jobs.call("jobs", "add", RESIZE, "a.png", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--dry-run")
    assert [line.split()[2] for line in would.output.splitlines()[1:]] == ["03:00:00"] * 5
    changed = jobs.call("jobs", "edit", "nightly", "--max-instances", "3", "--grace", "5m", "--dry-run")
    assert changed.output.splitlines() == ["max_instances: 1 -> 3", "grace: any -> 300 s", "would be changed: nightly"]
    same = jobs.call("jobs", "edit", "nightly", "--max-instances", "1", "--dry-run")
    assert same.output == "nothing would change\n"
    assert (set(ids(jobs)), jobs.app.get_job("nightly").max_instances) == ({"thumbs", "nightly", "rare"}, 1)


def test_an_edited_crontab_stays_in_the_time_zone_of_the_job(jobs: Shop) -> None:
    edited = jobs.call("jobs", "edit", "nightly", "--cron", "30 4 * * *")
    assert "when: every day at 03:00, Europe/Berlin -> every day at 04:30, Europe/Berlin\n" in edited.output
    moved = jobs.call("jobs", "edit", "nightly", "--cron", "30 4 * * *", "--tz", "Asia/Tokyo")
    assert "when: every day at 04:30, Europe/Berlin -> every day at 04:30, Asia/Tokyo\n" in moved.output


def test_an_edited_job_that_is_paused_stays_paused(jobs: Shop) -> None:
    jobs.app.pause_job("nightly")
    assert jobs.call("jobs", "edit", "nightly", "--every", "1h").output.endswith("changed nightly: it is paused\n")
    moved = jobs.call("jobs", "edit", "nightly", "--next", "2035-01-01T12:00")
    assert "changed nightly: next at 2035-01-01 12:00:00" in moved.output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["add", RESIZE, "a.png"], 2, "say when: --cron, --every or --at"),
        (["add", RESIZE, "a.png", "--cron", "0 3 * *"], 2, 'Try: mainspring cron "0 3 * * *"'),
        (["add", RESIZE, "a.png", "--cron", "0 3 * * *", "--every", "1h"], 2, "--cron and --every both say when"),
        (["add", RESIZE, "a.png", "--every", "0s"], 2, "--every is longer than nothing"),
        (["add", RESIZE, "a.png", "--every", "often"], 2, "'often' is not a length of time"),
        (["add", RESIZE, "a.png", "--cron", "0 3 * * *", "--tz", "Europe/Berlim"], 2, "did you mean 'Europe/Berlin'"),
        (["add", RESIZE, "a.png", "--cron", "0 3 30 2 *"], 1, "it would never fire"),
        (["add", RESIZE, "--every", "1h"], 2, "picture"),
        (["add", "tests.cli.kit:resise", "--every", "1h"], 1, "resise"),
        (["edit", "nightly"], 2, "say what to change"),
        (["edit", "nigthly", "--every", "1h"], 1, "did you mean 'nightly'?"),
        (["edit", "nightly", "--queue", "a:b"], 2, "cannot name a queue"),
        (["edit", "nightly", "--tz", "UTC"], 2, "--timezone goes with --cron, --every or --at"),
        (["skip", "nigthly"], 1, "did you mean 'nightly'?"),
    ],
)
def test_a_mistake_is_named_and_no_job_is_changed(jobs: Shop, words: list[str], code: int, said: str) -> None:
    before = jobs.json("jobs", "list")
    found = jobs.call("jobs", *words)
    assert (found.exit_code, said in found.stderr) == (code, True), found.output
    assert jobs.json("jobs", "list") == before


def test_a_paused_job_has_no_fire_to_skip(jobs: Shop) -> None:
    jobs.app.pause_job("nightly")
    found = jobs.call("jobs", "skip", "nightly", "thumbs")
    assert found.exit_code == 1
    assert "job 'nightly' is paused, so there is no next fire to skip" in found.stderr
    assert found.stdout.startswith("skipped thumbs: not at ")


def test_the_next_fires_say_what_the_clock_does_to_them(jobs: Shop) -> None:
    jobs.app.add_job(resize, "cron", hour=2, minute=30, timezone="Europe/Berlin", id="night", args=["n.png"])
    fires = jobs.json("jobs", "next", "night", "-n", "400")
    kinds = {fire["note"].split(" ", 1)[1].split(":")[0] for fire in fires if fire["note"]}
    assert kinds == {"does not exist that day", "comes twice that day, and it fires the first time only"}
    lines = jobs.call("jobs", "next", "night", "-n", "400").output.splitlines()
    assert lines[0].split() == ["at", "job", "note"]
    assert sum("comes twice that day" in line for line in lines) == 1


def test_the_overlap_and_the_lateness_of_a_job_are_added_and_edited(jobs: Shop) -> None:
    jobs.call(
        "jobs", "add", RESIZE, "x.png", "--every", "1h", "--id", "new", "--overlap", "queue", "--late-after", "5m"
    )
    shown = jobs.json("jobs", "show", "new")
    assert (shown["overlap"], shown["late_after"], shown["down_after"]) == ("queue", 300.0, None)
    edited = jobs.call("jobs", "edit", "new", "--overlap", "cancel_other", "--late-after", "auto", "--down-after", "2h")
    assert "overlap: queue -> cancel_other\n" in edited.output
    assert "late_after: 300 s -> auto\ndown_after: auto -> 7200 s\n" in edited.output
    wrong = jobs.call("jobs", "edit", "new", "--late-after", "3h")
    assert (wrong.exit_code, "late comes before down" in wrong.output) == (2, True)


def test_a_job_is_added_and_edited_with_what_it_excludes(jobs: Shop) -> None:
    words = ("jobs", "add", RESIZE, "x.png", "--cron", "0 9 * * *", "--tz", "UTC", "--id", "new")
    assert jobs.call(*words, "--exclude", "weekends", "--exclude", "12-25").exit_code == 0
    assert jobs.json("jobs", "show", "new")["exclude"] == ["sat,sun", "12-25"]
    edited = jobs.call("jobs", "edit", "new", "--cron", "0 10 * * *")
    assert "-> every day at 10:00, UTC, except weekends and 25 December\n" in edited.output
    edited = jobs.call("jobs", "edit", "new", "--exclude", "sun")
    assert "-> every day at 10:00, UTC, except Sundays\n" in edited.output
    assert "every day at 10:00, UTC\n" in jobs.call("jobs", "edit", "new", "--exclude", "none").output
    wrong = jobs.call("jobs", "edit", "new", "--exclude", "09:00-11:00")
    assert (wrong.exit_code, "all its times are excluded" in wrong.output) == (2, True)


def test_cron_says_what_is_left_out() -> None:
    words = ["cron", "0 9 * * *", "--tz", "UTC", "--after", "2026-12-24", "-n", "2", "--exclude", "weekends"]
    shown = CliRunner().invoke(main, [*words, "--exclude", "12-25"]).output
    assert shown == (
        "every day at 09:00, UTC, except weekends and 25 December\n"
        "Thu 2026-12-24 09:00:00 UTC\n"
        "Mon 2026-12-28 09:00:00 UTC  3 fires from Fri 2026-12-25 09:00 on are excluded\n"
    )
