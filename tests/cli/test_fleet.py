"""`mainspring queues`, `nodes`, `tasks` and `errors`, as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import main
from mainspring.jobstores.base import NodeInfo
from tests.cli.kit import KEY, Shop, resize


def add_node(shop: Shop) -> None:
    started = shop.app.store.beat() - 90 * 60 * 1_000_000
    told = NodeInfo(
        id="n",
        host="web1",
        pid=7,
        started_at=started,
        queues=("mail",),
        version="1.0",
        missing=("shop:old",),
    )
    shop.app.store.beat(told, 60)


def queue(shop: Shop, name: str) -> dict[str, object]:
    [found] = [each for each in shop.json("queues", "list") if each["name"] == name]
    return dict(found)


def test_queues_nodes_and_errors_are_seen_and_acted_on_in_every_store(any_shop: Shop) -> None:
    shop = any_shop
    add_node(shop)
    assert [(node["host"], node["state"], node["queues"]) for node in shop.json("nodes")] == [
        ("web1", "running", ["mail"])
    ]
    assert (queue(shop, "default")["waiting"], queue(shop, "default")["delayed"]) == (1, 1)
    assert shop.call("queues", "pause", "default").output == "paused default\n"
    assert queue(shop, "default")["state"] == "paused"
    assert shop.call("queues", "resume", "default").output == "resumed default\n"
    assert shop.call("queues", "purge", "default", "--yes").output == "cancelled 2 of default\n"
    assert {name: status for name, status in shop.statuses().items() if name in ("cat", "dog")} == {
        "cat": "cancelled",
        "dog": "cancelled",
    }
    [group] = shop.json("errors")
    assert (group["type"], group["place"], group["count"]) == ("TimeoutError", "kit.py:send_mail", 1)
    assert group["runs"] == [shop.ids["bob"]]


def test_a_node_is_told_to_be_quiet_to_go_on_and_to_stop(shop: Shop) -> None:
    add_node(shop)
    assert shop.call("nodes", "quiet", "web1:7", "--why", "deploy").output == "1 process follows within 5 s: n\n"
    assert shop.call("nodes", "resume", "n").exit_code == 0
    assert shop.call("nodes", "stop", "n").exit_code == 0
    assert [(act.verb, act.why) for act in shop.app.audit(kind="node", target="n")] == [
        ("stop_node", ""),
        ("resume_node", ""),
        ("quiet_node", "deploy"),
    ]
    unknown = shop.call("nodes", "stop", "web1:8")
    assert unknown.exit_code == 1
    assert "no living node is called 'web1:8'; did you mean 'web1:7'?" in unknown.output


def test_queues_are_listed_with_who_serves_them(shop: Shop) -> None:
    add_node(shop)
    shop.send.enqueue("kim")
    lines = [line.split() for line in shop.call("queues", "list").output.splitlines()]
    assert lines[0] == ["queue", "state", "waiting", "delayed", "blocked", "running", "limit", "oldest"]
    assert [line[:6] for line in lines[1:]] == [
        ["default", "unserved", "1", "1", "0", "0"],
        ["mail", "served", "1", "0", "0", "0"],
    ]


def test_a_queue_that_is_probably_misspelt_is_not_paused_unless_forced(shop: Shop) -> None:
    for verb in ("pause", "resume", "purge"):
        found = shop.call("queues", verb, "defualt")
        assert found.exit_code == 1
        assert "there is no queue 'defualt'" in found.stderr
        assert found.stderr.endswith("did you mean 'default'?\nTry: mainspring queues list\n")
    assert shop.call("queues", "pause", "later", "--force").exit_code == 0
    assert queue(shop, "later")["state"] == "paused"
    assert shop.call("queues", "pause", "a:b", "--force").exit_code == 2


def test_a_queue_is_purged_only_when_somebody_says_so(shop: Shop) -> None:
    before = shop.statuses()
    assert shop.call("queues", "purge", "default", "--dry-run").output == "2 would be cancelled\n"
    refused = shop.call("queues", "purge", "default")
    assert refused.exit_code == 2
    assert "2 waiting and delayed runs of default will be cancelled. Say so with --yes" in refused.stderr
    assert shop.statuses() == before


def test_nodes_are_shown_with_what_they_lack_and_none_is_said_to_be_none(shop: Shop) -> None:
    nothing = shop.call("nodes")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr.splitlines()[0]) == (1, "", "no node is alive")
    add_node(shop)
    line = shop.call("nodes").output.splitlines()[1]
    assert line.split()[:3] == ["web1", "7", "running"]
    assert "1 h 30 min" in line
    assert line.endswith("does not know shop:old")


def test_errors_are_grouped_and_can_be_narrowed(shop: Shop) -> None:
    found = shop.call("errors", "since:1h")
    assert found.exit_code == 0
    assert found.stdout.splitlines()[1].split()[:3] == ["1", "TimeoutError", "kit.py:send_mail"]
    assert found.stderr == f"look into one: mainspring runs show {shop.ids['bob']}\n"
    nothing = shop.call("errors", "-task:send_mail")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (1, "", "no failed run matches\n")
    assert shop.call("errors", "status:retrying").exit_code == 1
    assert shop.call("errors", "sinse:1h").exit_code == 2


def test_tasks_are_shown_without_a_store(tmp_path: Path) -> None:
    (tmp_path / "own_shop.py").write_text(
        "from mainspring import Mainspring\n"
        "app = Mainspring('redis://localhost:1/0')\n"
        "@app.task(queue='mail', retries=3, timeout=30)\n"
        "def send(to: str, password: str = 'hunter2') -> None:\n"
        "    '''Send a mail.\n\n    Slowly.\n    '''\n"
    )
    command = [sys.executable, "-m", "mainspring", "tasks", "--app", "own_shop:app"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split() == ["own_shop:send", "mail", "3", "30", "s", "(to,", "password=***)", "Send", "a", "mail."]
    listed = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert [(task["name"], task["retries"], task["async"]) for task in json.loads(listed.stdout)] == [
        ("own_shop:send", 3, False)
    ]


def test_a_store_does_not_know_tasks(shop: Shop) -> None:
    found = shop.call("tasks")
    assert (found.exit_code, "a store does not know the tasks of its app" in found.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ["queues", "list"],
        ["queues", "pause"],
        ["queues", "resume"],
        ["queues", "purge"],
        ["nodes"],
        ["tasks"],
        ["errors"],
    ],
)
def test_every_help_shows_an_example(words: list[str]) -> None:
    found = CliRunner().invoke(main, [*words, "-h"])
    assert (found.exit_code, f"mainspring {' '.join(words)} " in found.output.split("Options:")[0]) == (0, True)


@pytest.mark.parametrize("words", [["queues", "list"], ["nodes"], ["errors"], ["jobs", "list"]])
def test_a_store_that_does_not_answer_ends_with_3(words: list[str]) -> None:
    found = CliRunner().invoke(main, [*words, "--app", "redis://localhost:1/0"])
    assert found.exit_code == 3
    assert found.stderr.endswith("Try: mainspring doctor --app redis://localhost:1/0\n")


def test_what_is_set_aside_is_listed_for_programs_too(shop: Shop) -> None:
    assert shop.call("broken", "list").output == "nothing is set aside\n"
    assert shop.json("broken", "list") == []
    stranger = Mainspring(shop.url, secret_key="another " + KEY)
    shop.app.add_job(resize, "interval", hours=1, id="thumbs", args=["a.png"])
    assert stranger.jobs() == []
    stranger.close()
    [found] = shop.json("broken", "list")
    assert (found["kind"], found["id"], found["reason"].split(":")[0]) == ("job", "thumbs", "unknown_key")
