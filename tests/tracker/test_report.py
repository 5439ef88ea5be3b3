"""`mainspring tracker status`, as a person calls it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.engine import Engine

from mainspring.cli import main
from mainspring.errors import install_command
from mainspring.tracker.report import report
from tests.tracker.kit import LONG_AGO, Page, PageStep, Step, add, expire


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["tracker", "status", *arguments])
    return result.exit_code, result.output


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def test_it_counts_by_status_and_shows_the_oldest_locks_first(engine: Engine) -> None:
    add(engine, "a", "b", "c")
    add(engine, "d", status=40)
    Step.start(engine, "a").__enter__()
    Step.start(engine, "b").__enter__()
    expire(engine, "b")
    code, said = call(url_of(engine), "tracker_job")
    assert code == 0
    lines = said.splitlines()
    assert [line.split() for line in lines[:5]] == [["status", "jobs"], ["10", "1"], ["20", "2"], ["40", "1"], []]
    assert lines[5].split() == ["locked", "for", "status", "job"]
    assert re.fullmatch(r" *\d{4} days, \d+:\d\d:\d\d +20  'b'", lines[6])
    assert re.fullmatch(r" +0:0\d:\d\d +20  'a'", lines[7])
    assert "'a'" not in call(url_of(engine), "tracker_job", "-n", "1")[1]


def test_a_compound_key_is_shown_whole(engine: Engine) -> None:
    Page.create_and_save(engine, ("moby", 1), 10)
    PageStep.start(engine, ("moby", 1)).__enter__()
    assert "('moby', 1)" in call(url_of(engine), "tracker_page")[1]
    assert [lock.id for lock in report(engine, "tracker_page").locks] == [("moby", 1)]


def test_a_table_in_a_schema_is_named_with_it(postgresql: Engine) -> None:
    add(postgresql, "a")
    assert report(postgresql, "public.tracker_job").counts == {10: 1}


def test_a_url_without_a_driver_gets_the_one_of_the_extra(postgresql: Engine) -> None:
    add(postgresql, "a", lock_at=LONG_AGO)
    code, said = call(url_of(postgresql).replace("+psycopg", ""), "tracker_job")
    assert (code, said.split()) == (0, ["status", "jobs", "10", "1"])


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    code, said = call("mariadb://me:secret@host/db", "t")
    assert code == 1
    assert said.endswith(f"; {install_command('mysql')}\n")


def test_an_empty_table_says_so(sqlite: Engine) -> None:
    assert call(url_of(sqlite), "tracker_job")[1].splitlines()[1] == "no jobs"


def test_an_unknown_table_names_the_near_one(sqlite: Engine) -> None:
    code, said = call(url_of(sqlite), "tracker_jobs")
    assert code == 1
    assert said.startswith("Error: there is no table 'tracker_jobs'; did you mean 'tracker_job'")


def test_a_table_of_another_kind_is_refused(sqlite: Engine) -> None:
    with sqlite.begin() as connection:
        connection.execute(text("CREATE TABLE other (id INTEGER PRIMARY KEY, status INTEGER)"))
    said = "Error: 'other' is not a tracker's table: it has no column lock, lock_at\n"
    assert call(url_of(sqlite), "other") == (1, said)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    code, said = call(f"sqlite:///{tmp_path}/typo.db", "job")
    assert (code, said) == (1, f"Error: there is no file '{tmp_path}/typo.db'\n")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_opened_is_named_without_its_password() -> None:
    assert call("tracker secret", "job") == (
        1,
        "Error: this is not a database URL; write it as sqlite:///files.db\n",
    )
    said = "Error: no database is known for postgressql://; did you mean 'postgresql' or 'postgres'?\n"
    assert call("postgressql://u:secret@host/db", "job") == (1, said)
    code, said = call("mysql://u:secret@127.0.0.1:1/db", "job")
    assert code == 1
    assert said.startswith("Error: mysql://u:***@127.0.0.1:1/db: ")
    assert "secret" not in said
