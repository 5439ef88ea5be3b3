"""`mainspring runs`, as a person calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.cli.runs.looking import _new_lines
from mainspring.core.instants import SECOND
from tests.cli.kit import KEY, LIMIT, Shop


def test_runs_are_found_looked_at_and_acted_on_in_every_store(any_shop: Shop) -> None:
    shop = any_shop
    assert [run["id"] for run in shop.json("runs", "list", "status:failed", "since:1h")] == [shop.ids["bob"]]
    shown = shop.call("runs", "show", shop.ids["bob"])
    assert shown.exit_code == 0
    assert "TimeoutError: mail.example.com did not answer" in shown.output
    assert shop.call("runs", "log", shop.ids["ann"]).output.count("sending to ann") == 1
    assert shop.call("runs", "retry", "status:failed", "--yes").output == "sent back 1 run\n"
    assert shop.call("runs", "cancel", "task:resize", "-y").output == "cancelled 2 runs\n"
    assert shop.call("runs", "delete", shop.ids["ann"]).exit_code == 0
    assert shop.call("runs", "wait", shop.ids["eve"]).output.startswith(f"succeeded {shop.ids['eve']}")
    assert shop.statuses() == {"bob": "pending", "eve": "succeeded", "cat": "cancelled", "dog": "cancelled"}


def test_a_list_shows_each_run_in_one_plain_line(shop: Shop) -> None:
    plain = shop.call("runs", "list").output.splitlines()
    assert plain[0].split() == ["status", "id", "call", "made", "took", "says", "queue"]
    assert [line.split()[0] for line in plain[1:]] == ["delayed", "waiting", "succeeded", "failed", "succeeded"]
    assert [line.split()[1] for line in plain[1:]] == [shop.ids[who] for who in ("dog", "cat", "eve", "bob", "ann")]
    assert "TimeoutError: mail.example.com did not answer" in plain[4]


def test_show_says_why_a_run_stands_as_it_does(shop: Shop) -> None:
    shop.call("runs", "cancel", shop.ids["cat"])
    says = {"bob": "Failed for good", "cat": "Cancelled by", "dog": "Set for", "eve": "Succeeded"}
    for who, sentence in says.items():
        shown = shop.call("runs", "show", shop.ids[who]).output
        assert re.search(rf"^why +{sentence}", shown, re.MULTILINE)
    assert "\nstart 1 failed\nTraceback" in shop.call("runs", "show", shop.ids["bob"]).output


def test_secrets_are_not_shown(shop: Shop) -> None:
    for words in (["list"], ["list", "--json"], ["show", shop.ids["bob"]], ["show", shop.ids["bob"], "--json"]):
        said = shop.call("runs", *words).output
        assert "password=***" in said
        assert "hunter2" not in said


@pytest.mark.parametrize(
    ("words", "who"),
    [
        (["queue:mail", "-status:failed"], ["eve", "ann"]),
        (["-task:resize", "--", "-status:succeeded"], ["bob"]),
        (["status:delayed"], ["dog"]),
        (["queue:mail status:failed"], ["bob"]),
        (["arg.0:cat*"], ["cat"]),
        (["text:did not answer"], ["bob"]),
        (["-n", "2"], ["dog", "cat"]),
        (["until:1h"], []),
    ],
)
def test_a_filter_chooses_runs(shop: Shop, words: list[str], who: list[str]) -> None:
    found = shop.call("runs", "list", "--json", *words)
    names = {run_id: name for name, run_id in shop.ids.items()}
    assert [names[run["id"]] for run in json.loads(found.stdout)] == who
    assert found.exit_code == (0 if who else 1)


def test_runs_are_chosen_by_the_person_who_acted_on_them_in_every_store(any_shop: Shop) -> None:
    shop = any_shop
    with shop.app.acting("ann"):
        shop.app.retry(shop.ids["bob"])
        shop.app.prioritize(shop.ids["cat"], 5)
    with shop.app.acting("bob@web1"):
        shop.app.cancel(shop.ids["dog"])
        shop.app.prioritize(shop.ids["cat"], 7)
    assert [run["id"] for run in shop.json("runs", "list", "by:ann")] == [shop.ids["cat"], shop.ids["bob"]]
    assert [run["id"] for run in shop.json("runs", "list", "by:bob", "-by:a*")] == [shop.ids["dog"]]
    assert len(shop.json("runs", "list", "-by:ann,bob")) == 2
    assert shop.call("runs", "list", "by:eve").exit_code == 1
    assert shop.call("runs", "cancel", "by:ann", "--yes").output == "cancelled 2 runs\n"
    assert shop.statuses()["cat"] == "cancelled"


def test_a_list_says_that_there_are_more_and_that_nothing_was_found(shop: Shop) -> None:
    assert shop.call("runs", "list", "-n", "2").stderr == "there are more: add -n 20\n"
    nothing = shop.call("runs", "list", "queue:nowhere")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (1, "", "no run matches\n")


def test_a_mistake_in_a_filter_is_one_of_usage_and_ends_with_a_command_to_try(shop: Shop) -> None:
    found = shop.call("runs", "list", "status:faild")
    assert found.exit_code == 2
    assert found.stderr == (
        "Error: no status is called 'faild'; did you mean 'failed'?\nTry: mainspring runs list status:failed since:1h\n"
    )
    assert "there is no filter 'staus'; did you mean 'status'" in shop.call("runs", "list", "staus:failed").stderr


def test_a_dry_run_says_what_would_be_done_and_does_nothing(shop: Shop) -> None:
    before = shop.statuses()
    assert shop.call("runs", "retry", "queue:mail", "--dry-run").output == (
        "1 would be sent back; 2 succeeded cannot be\n"
    )
    assert shop.call("runs", "delete", shop.ids["ann"], "--dry-run").output == f"would be deleted {shop.ids['ann']}\n"
    refused = shop.call("runs", "delete", shop.ids["cat"], "--dry-run")
    assert (refused.exit_code, "it is pending and cannot be deleted" in refused.stderr) == (1, True)
    assert shop.statuses() == before


def test_many_runs_are_not_changed_without_a_yes(shop: Shop) -> None:
    before = shop.statuses()
    refused = shop.call("runs", "delete", "queue:mail")
    assert refused.exit_code == 2
    assert "3 runs will be deleted. Go on? Say so with --yes" in refused.stderr
    assert shop.statuses() == before


def test_what_cannot_be_acted_on_is_named_and_the_rest_is_done(shop: Shop) -> None:
    found = shop.call("runs", "retry", shop.ids["ann"], "nix", shop.ids["bob"])
    assert found.exit_code == 1
    assert f"sent back {shop.ids['bob']}\n" in found.stdout
    assert "is succeeded; only a run that is failed, cancelled, broken can be sent back" in found.stderr
    assert "nix: there is no run of this id" in found.stderr
    assert found.stderr.endswith("Try: mainspring runs list\n")
    ended = shop.call("runs", "cancel", shop.ids["ann"])
    assert (ended.exit_code, "it is succeeded, so there is nothing to cancel" in ended.stderr) == (1, True)


def test_ids_and_filters_are_not_mixed_and_one_of_them_is_needed(shop: Shop) -> None:
    assert "give either ids or a filter" in shop.call("runs", "retry", "status:failed", "nix").stderr
    assert shop.call("runs", "retry", "status:failed", "nix").exit_code == 2
    assert shop.call("runs", "cancel").exit_code == 2
    assert "did you mean 'status'" in shop.call("runs", "cancel", "staus:failed").stderr


def test_a_run_that_is_not_there_ends_with_1_and_a_command_to_try(shop: Shop) -> None:
    for verb in ("show", "log"):
        found = shop.call("runs", verb, "0123456789")
        assert found.exit_code == 1
        assert found.stderr.endswith("Try: mainspring runs list id:012345*\n")
    assert shop.call("runs", "wait", "0123456789").exit_code == 1


def test_waiting_ends_with_1_if_a_run_failed_or_time_is_over(shop: Shop) -> None:
    failed = shop.call("runs", "wait", shop.ids["ann"], shop.ids["bob"])
    assert (failed.exit_code, len(failed.stdout.splitlines())) == (1, 2)
    late = shop.call("runs", "wait", shop.ids["cat"], "--timeout", "0")
    assert late.exit_code == 1
    assert "has not ended in 0 s" in late.stderr


def test_a_log_is_followed_until_the_run_has_ended(shop: Shop) -> None:
    followed = shop.call("runs", "log", shop.ids["ann"], "--follow")
    assert (followed.exit_code, followed.stdout.count("sending to ann")) == (0, 1)
    assert shop.call("runs", "log", shop.ids["cat"]).stderr == "it has logged nothing\n"


def test_only_new_lines_of_a_log_are_printed_also_when_old_ones_were_dropped() -> None:
    assert _new_lines((), ("a", "b")) == ("a", "b")
    assert _new_lines(("a", "b"), ("a", "b", "c")) == ("c",)
    assert _new_lines(("a", "b", "c"), ("b", "c", "d")) == ("d",)
    assert _new_lines(("a", "b"), ("c", "d")) == ("c", "d")


@pytest.mark.parametrize("verb", ["list", "show", "log", "retry", "cancel", "delete", "wait"])
def test_every_help_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, ["runs", verb, "-h"])
    assert found.exit_code == 0
    assert f"mainspring runs {verb} " in found.output


def test_without_a_target_a_command_says_how_to_name_one() -> None:
    found = CliRunner(env={"MAINSPRING_URL": None, "MAINSPRING_APP": None}).invoke(main, ["runs", "list"])
    assert found.exit_code == 2
    assert "--app MODULE:APP or --app URL, or set MAINSPRING_APP or MAINSPRING_URL" in found.output


def test_without_a_target_the_app_in_the_folder_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["init"]).exit_code == 0
    found = CliRunner(env={"MAINSPRING_URL": None, "MAINSPRING_APP": None}).invoke(main, ["runs", "list"])
    assert "1 file here with an app: app.py" in found.output
    assert found.output.endswith("Try: mainspring runs list --app app.py\n")


def test_in_a_folder_without_an_app_one_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text("print('hello')\n")
    found = CliRunner(env={"MAINSPRING_URL": None, "MAINSPRING_APP": None}).invoke(main, ["worker"])
    assert found.exit_code == 2
    assert "no .py file in this folder makes a Mainspring(...)" in found.output
    assert found.output.endswith("Try: mainspring init\n")
    assert [path.name for path in tmp_path.iterdir()] == ["other.py"]


@pytest.mark.parametrize("words", [["runs", "list"], ["status"], ["doctor"]])
def test_a_store_that_does_not_answer_ends_with_3(words: list[str]) -> None:
    found = CliRunner(env={"MAINSPRING_SECRET_KEY": KEY}).invoke(main, [*words, "--app", "redis://localhost:1/0"])
    assert found.exit_code == 3
    assert "does not answer" in found.output


def test_json_takes_any_result_and_masks_its_secrets(shop: Shop) -> None:
    app = shop.app
    result = {"token": "hunter2", "when": (1, 2), 3: float("nan")}
    handle = app.enqueue(dict, result)
    app.start(work=True, queues=["default"])
    app.wait([handle.id], LIMIT)
    app.stop()
    [run] = shop.json("runs", "list", f"id:{handle.id}")
    assert run["result"] == {"token": "***", "when": [1, 2], "3": "nan"}
    shown = shop.call("runs", "show", handle.id).output
    assert "hunter2" not in shown
    assert "'token': ***" in shown


def test_runs_that_wait_are_changed_in_every_store(any_shop: Shop) -> None:
    shop = any_shop
    cat, dog = shop.ids["cat"], shop.ids["dog"]
    assert shop.call("runs", "move", cat, "--to", "slow").output == f"moved {cat}\n"
    assert shop.call("runs", "postpone", cat, "--until", "2035-01-01T12:00").output == f"postponed {cat}\n"
    assert (
        shop.call("runs", "prioritize", cat, dog, "--priority", "7").output == f"prioritized {cat}\nprioritized {dog}\n"
    )
    run = shop.app.get(cat)
    assert (run.queue, run.run_at.year, run.priority, shop.app.get(dog).priority) == ("slow", 2035, 7, 7)
    shop.app.move(cat, "default")


def test_all_runs_that_match_are_changed_and_the_others_named(shop: Shop) -> None:
    assert shop.call("runs", "move", "queue:default", "--to", "slow", "--dry-run").output == "2 would be moved\n"
    assert shop.call("runs", "move", "queue:default", "--to", "slow", "--yes").output == "moved 2 runs\n"
    ended = shop.call("runs", "prioritize", shop.ids["bob"], "--priority", "3")
    assert (ended.exit_code, "is failed; only a run that waits can be changed" in ended.stderr) == (1, True)
    assert shop.call("runs", "move", shop.ids["cat"], "--to", "a:b").exit_code == 2
    assert shop.call("runs", "postpone", shop.ids["cat"], "--until", "soon").exit_code == 2
    assert shop.call("runs", "move", shop.ids["cat"]).exit_code == 2


def test_a_failed_run_is_sent_back_for_later(shop: Shop) -> None:
    assert shop.call("runs", "retry", shop.ids["bob"], "--at", "2h").output == f"sent back {shop.ids['bob']}\n"
    run = shop.app.get(shop.ids["bob"])
    assert (str(run.status), run.record.run_at - run.record.created_at > 7000 * SECOND) == ("pending", True)


def test_a_run_is_run_again_with_other_arguments(any_shop: Shop) -> None:
    made = any_shop.json("runs", "again", any_shop.ids["bob"], "zoe", "--queue", "slow", "--priority", "3")
    run = any_shop.app.get(made["id"])
    assert (run.args, dict(run.kwargs), run.queue, run.priority) == (("zoe",), {}, "slow", 3)
    assert (run.copied_from, made["copied_from"]) == (any_shop.ids["bob"],) * 2
    same = any_shop.call("runs", "again", any_shop.ids["ann"])
    copy = any_shop.app.get(same.output.split()[1])
    assert (copy.args, dict(copy.kwargs), copy.queue) == (("ann",), {"password": "hunter2"}, "mail")


def test_a_run_that_cannot_be_run_again_is_named(shop: Shop) -> None:
    gone = shop.call("runs", "again", "nobody")
    assert (gone.exit_code, "Try: mainspring runs list" in gone.stderr) == (1, True)
    wrong = shop.call("runs", "again", shop.ids["bob"], "a", "b", "c")
    assert (wrong.exit_code, wrong.stdout, f"Try: mainspring runs show {shop.ids['bob']}" in wrong.stderr) == (
        2,
        "",
        True,
    )


@pytest.mark.parametrize("verb", ["again", "move", "postpone", "prioritize"])
def test_the_help_of_every_change_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, ["runs", verb, "-h"])
    assert (found.exit_code, f"mainspring runs {verb} " in found.output) == (0, True)
