"""`mainspring db`, as a person calls it."""

from __future__ import annotations

import sqlite3

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from tests.cli.jobs.test_jobs import add_jobs
from tests.cli.kit import KEY, Shop
from tests.cli.test_terminal import on_terminal


def test_a_store_is_checked_migrated_and_pruned_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    found = shop.json("db", "check")
    assert (found["jobs"], found["runs"], found["broken"], found["problems"]) == (3, 5, 0, [])
    assert found["schema"] is not None
    shown = shop.call("db", "check")
    assert (shown.exit_code, shown.output.splitlines()[1].split()) == (0, ["schema", str(found["schema"])])
    migrated = shop.call("db", "migrate")
    assert (migrated.exit_code, migrated.output.startswith("nothing to migrate")) == (0, True)
    assert shop.call("db", "prune").output == "deleted 0 runs\n"


def test_what_is_past_its_retention_is_deleted_now(any_shop: Shop) -> None:
    tasks = [any_shop.resize.options(retention=0.001, id=f"short{number}") for number in range(5)]
    handles = [task.enqueue("a.png") for task in tasks]
    for handle in handles:
        any_shop.app.cancel(handle)
    kept = {run.id for run in any_shop.app.find()} - {handle.id for handle in handles}
    assert any_shop.call("db", "prune").output == "deleted 5 runs\n"
    assert {run.id for run in any_shop.app.find()} == kept


def test_pruning_stops_at_the_number_that_is_given(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def prune(self: object, limit: int = 1000) -> int:
        asked.append(limit)
        return min(limit, 1000)

    monkeypatch.setattr(type(shop.app.store), "prune", prune)
    assert shop.call("db", "prune", "--most", "2500").output == "deleted 2,500 runs\n"
    assert asked == [1000, 1000, 500]


def test_a_terminal_sees_a_bar(shop: Shop) -> None:
    code, said = on_terminal(shop, "db", "prune")
    assert (code, "deleted 0 runs" in said, "runs deleted" in said) == (0, True, True)


def test_another_schema_is_named_with_what_to_do(shop: Shop) -> None:
    shop.app.close()
    with sqlite3.connect(shop.url.removeprefix("sqlite:///")) as connection:
        [table] = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE '%meta' AND type = 'table'"
        ).fetchone()
        connection.execute(f"UPDATE {table} SET value = 99 WHERE name IN ('schema', 'oldest_reader')")
    connection.close()
    for words in (["check"], ["migrate"]):
        found = shop.call("db", *words)
        assert (found.exit_code, "the tables have schema 99" in found.stderr) == (1, True), found.output
        assert "upgrade mainspring on this node" in found.stderr


def test_records_that_cannot_be_read_are_a_problem(shop: Shop) -> None:
    add_jobs(shop)
    found = CliRunner(env={"MAINSPRING_SECRET_KEY": "another " + KEY}).invoke(main, ["db", "check", "--app", shop.url])
    assert found.exit_code == 1
    assert "job 'nightly' cannot be read here: unknown_key: " in found.stderr
    assert shop.app.broken() == []


def test_a_store_that_does_not_answer_ends_with_3() -> None:
    for verb in ("check", "migrate", "prune"):
        found = CliRunner().invoke(main, ["db", verb, "--app", "redis://127.0.0.1:1/0"])
        assert (found.exit_code, "Try: mainspring doctor" in found.stderr) == (3, True)


@pytest.mark.parametrize("verb", ["check", "migrate", "prune"])
def test_every_help_shows_an_example(verb: str) -> None:
    found = CliRunner().invoke(main, ["db", verb, "-h"])
    assert (found.exit_code, f"mainspring db {verb} " in found.output) == (0, True)
