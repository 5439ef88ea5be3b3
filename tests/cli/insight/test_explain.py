"""`mainspring explain`: in a terminal, through pipes, as JSON, and how it ends."""

from __future__ import annotations

from tests.cli.kit import Shop, resize
from tests.cli.test_terminal import on_terminal, without_colours


def test_a_run_is_explained_with_its_facts_and_its_story(any_shop: Shop) -> None:
    bob = any_shop.ids["bob"]
    found = any_shop.call("explain", bob)
    assert found.exit_code == 0
    first, *rest = found.stdout.splitlines()
    assert first.startswith("Failed for good at ")
    assert first.endswith("TimeoutError: mail.example.com did not answer. It has no retries.")
    assert any(line.split() == ["queue", "mail"] for line in rest)
    assert "what happened" in rest
    assert any("start 1 on " in line and "raised TimeoutError" in line for line in rest)
    assert f"-> mainspring runs retry {bob}" in rest
    told = any_shop.json("explain", bob)
    assert (told["kind"], told["state"], told["story"][-1]["kind"]) == ("run", "failed", "start")


def test_what_waits_is_explained_by_what_is_missing(any_shop: Shop) -> None:
    cat = any_shop.ids["cat"]
    assert any_shop.call("explain", cat, "--brief").stdout == "Waits: no living node serves queue 'default'.\n"
    assert any_shop.call("explain", "queue:default", "-b").stdout.startswith("Unserved: no living node serves")


def test_without_a_name_it_says_what_needs_you_and_ends_with_1(any_shop: Shop) -> None:
    found = any_shop.call("explain")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[:3] == ["2 things need you", "", "queue default"]
    assert f"-> mainspring runs show {any_shop.ids['bob']}" in found.stdout  # it has failed
    assert "-> mainspring worker MODULE:APP -Q default" in found.stdout
    assert any_shop.json("explain")["state"] == "needs you"


def test_a_cause_that_jobs_share_is_said_once(any_shop: Shop) -> None:
    for number in range(12):
        any_shop.app.add_job(resize, "interval", hours=1, id=f"job-{number:02}", args=["a.png"])
    lines = any_shop.call("explain").stdout.splitlines()
    assert lines[:4] == [
        "3 things need you", "", "12 jobs, 'job-00', 'job-01', 'job-02' and 9 more", "Down: no living node fires jobs."
    ]  # fmt: skip
    part = any_shop.json("explain")["parts"][0]
    assert (part["id"], len(part["ids"])) == ("job-00", 12)


def test_at_most_five_things_are_shown_and_the_rest_counted(shop: Shop) -> None:
    for number in range(7):
        shop.resize.options(queue=f"q{number}").enqueue("a.png")
    lines = shop.call("explain").stdout.splitlines()
    assert lines[0] == "9 things need you"
    assert len([line for line in lines if line.startswith("queue ")]) == 5
    assert lines[-1] == "4 more: mainspring explain --json"
    assert len(shop.json("explain")["parts"]) == 9


def test_a_name_of_nothing_ends_with_1_and_commands_to_try(any_shop: Shop) -> None:
    found = any_shop.call("explain", "nightly")
    assert found.exit_code == 1
    assert found.stdout.startswith("There is no run, job, queue or node called 'nightly' here.")
    assert "-> mainspring jobs list" in found.stdout


def test_a_job_may_be_named_without_its_module(shop: Shop) -> None:
    shop.app.add_job(resize, "interval", hours=1, id="shop:nightly", args=["a.png"])
    assert shop.json("explain", "nightly")["id"] == "shop:nightly"
    shop.app.add_job(resize, "interval", hours=1, id="blog:nightly", args=["a.png"])
    assert shop.call("explain", "nightly").exit_code == 1


def test_a_terminal_gets_sentences_that_fit(shop: Shop) -> None:
    code, said = on_terminal(shop, "explain", shop.ids["bob"], columns=60)
    assert code == 0
    sentence = without_colours(said).partition("\n\n")[0].splitlines()
    assert len(sentence) > 1
    assert max(map(len, sentence)) <= 60
    assert "\x1b[36m-> mainspring runs retry" in said
    plain = on_terminal(shop, "explain", shop.ids["bob"], columns=60, NO_COLOR="1")[1]
    assert "\x1b[" not in plain


def test_a_store_that_does_not_answer_ends_with_3(shop: Shop) -> None:
    shop.url = "redis://127.0.0.1:1/0"
    assert shop.call("explain").exit_code == 3
