"""Names and bytes from outside: damaged runs, keys and statements. S7 to S9 of the checklist."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from pymysql.cursors import Cursor as MySQLCursor

from mainspring import Mainspring
from mainspring.core.run import Beat, Report, Result, Status
from mainspring.core.transitions import conclude
from tests.app.kit import KEY, LASTING, LIMIT, MakeApp
from tests.servers import Redis

SOURCE = Path(__file__).parents[2] / "src" / "mainspring"

HOSTILE = [
    "a:b",
    "a{b}c",
    "*",
    "a\nb",
    "a\0b",
    "../../etc/passwd",
    "'; DROP TABLE mainspring_jobs; --",
    '"; DELETE FROM mainspring_runs; --',
    "%s %(id)s ? :id $1 {jobs}",
    "[a-z]+(.*)*$",
    "return redis.call('FLUSHALL')",
    "]] return 1 --",
    "naïve ☃ 名前",
    "\\",
    " ",
]


def same(value: str) -> str:
    return value


# -- S7: test_fuzz.py and tests/codec/test_hostile.py put forged frames to the codec; this is what becomes of a run


def test_a_damaged_run_is_set_aside_and_the_others_go_on(make_app: MakeApp, redis_server: Redis) -> None:
    app = make_app(redis_server.url, name="damaged")
    task = app.task(same)
    bad, good = task.enqueue("bad"), task.enqueue("good")
    record = bad.fetch().record
    assert record.call.frame is not None
    with redis.Redis.from_url(redis_server.url) as client:
        for key in client.keys("*damaged*"):
            if client.type(key) != b"hash":
                continue
            for field, value in client.hgetall(key).items():
                if record.call.frame in value and (bad.id.encode() in key or bad.id.encode() in field):
                    cut = record.call.frame[:-1] + bytes([record.call.frame[-1] ^ 1])
                    client.hset(key, field, value.replace(record.call.frame, cut))
    app.start(work=True)
    assert good.result(timeout=LIMIT) == "good"
    (view,) = app.wait([bad.id], LIMIT)
    assert (view.status, "bad_data" in str(view.reason)) == (Status.BROKEN, True)


# -- S8 ----------------------------------------------------------------------------------------------------------


@LASTING
def test_hostile_names_touch_nothing_but_their_own_records(app: Mainspring) -> None:
    task = app.task(same)
    witness = task.options(id="witness", group="witness").enqueue("witness")
    app.add_job(task, "interval", hours=1, args=["x"], id="witness")
    stored = []
    for number, name in enumerate(HOSTILE):
        if "\0" not in name:
            stored.append(task.options(id=f"{name}{number}", group=name, unique=plain(name), name=name).enqueue(name))
            app.add_job(task, "interval", hours=1, args=[name], id=f"{name}{number}", name=name)
            assert app.count(group=name) == 1
            assert app.get_job(f"{name}{number}").name == name
    assert app.count() == len(stored) + 1
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in stored] == [name for name in HOSTILE if "\0" not in name]
    for number, name in enumerate(HOSTILE):
        if "\0" not in name:
            app.remove_job(f"{name}{number}")
    assert [job.id for job in app.jobs()] == ["witness"]
    assert witness.result(timeout=LIMIT) == "witness"


@LASTING
@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if not set(name[1:]) & set(",:{}*\n\0") and name[0] not in ".*"]
)
def test_a_queue_may_have_any_name_that_is_allowed(app: Mainspring, name: str) -> None:
    task = app.task(queue=name)(same)
    app.pause_queue(name)
    handle = task.enqueue("x")
    assert {queue.name: queue.waiting for queue in app.queues()} == {"default": 0, name: 1}
    app.resume_queue(name)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == "x"


@pytest.mark.parametrize("name", ["a:b", "a{b}", "*", "a,b", "a\nb", "a\0b", ".threads", "x" * 256, ""])
def test_a_queue_whose_name_could_mean_something_else_is_refused(make_app: MakeApp, name: str) -> None:
    app = make_app()
    for verb in (app.pause_queue, app.resume_queue, app.purge, lambda name: app.task(queue=name)):
        with pytest.raises((TypeError, ValueError), match="queue"):
            verb(name)


def test_apps_whose_names_begin_alike_do_not_see_each_other_in_redis(make_app: MakeApp, redis_server: Redis) -> None:
    apps = [make_app(redis_server.url, name=name, secret_key=KEY) for name in ("shop", "shop2", "shop-a")]
    for app in apps:
        app.task(same).enqueue(app.name)
    assert [app.count() for app in apps] == [1, 1, 1]
    assert apps[0].purge("default") == 1
    assert [app.count(status="pending") for app in apps] == [0, 1, 1]


def plain(key: str) -> str:
    """Return a key in which braces are braces, and no place for an argument."""
    return key.replace("{", "{{").replace("}", "}}")


def lead_a_life(app: Mainspring, word: str) -> None:
    """Use a word wherever the store is given one."""
    queue = "queue " + re.sub(r"[,:{}*\n]", "", word)
    task = app.task(queue=queue)(same)
    handle = task.options(id=f"run {word}", group=word, unique=plain(word), name=word).enqueue(word)
    app.add_job(task, "interval", hours=1, args=[word], id=f"job {word}", name=word)
    app.run_now(f"job {word}")
    app.pause_queue(queue)
    assert app.count(group=word) == len(app.find(group=word)) == 1
    app.resume_queue(queue)
    claimed = app.store.claim([([queue], 10)], node=word, token=word, lease=60.0).runs
    assert len(claimed) == 2
    beats = [Beat(run.id, word, word, {"data": word}, (word,)) for run in claimed]
    assert app.store.extend(beats, 60.0) == ["held", "held"]
    now = app.store.beat()
    reports = [Report(run, Result.RETURNED, word, started_at=now, finished_at=now) for run in claimed]
    assert app.store.settle([conclude(report, now, 0.5) for report in reports]) == [True, True]
    assert handle.result(timeout=0) == word
    assert app.delete(handle.id)
    assert app.purge(queue) == 0
    app.remove_job(f"job {word}")


def test_hostile_names_touch_no_key_of_others_in_redis(make_app: MakeApp, redis_server: Redis) -> None:
    app = make_app(redis_server.url, name="hostile", secret_key=KEY)
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        foreign = {"hostile": "x", "hostile:0": "x", "{hostile}": "x", "{hostile:1}:runs": "x", "a:b": "x", "*": "x"}
        client.mset(foreign)
        before = {*client.keys()}
        lead_a_life(app, "harmless")
        scripts = client.info("memory")["number_of_cached_scripts"]
        for name in HOSTILE:
            if "\0" not in name:
                lead_a_life(app, name)
        assert client.mget(foreign) == list(foreign.values())
        new = {*client.keys()} - before
        assert new
        assert {key for key in new if not key.startswith("{hostile:0}:")} == set()
        assert client.info("memory")["number_of_cached_scripts"] == scripts
        client.delete(*foreign, *new)


# -- S9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_no_statement_that_is_sent_has_a_value_in_it(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    for cursor in (psycopg.Cursor, MySQLCursor):
        for verb in ("execute", "executemany"):
            monkeypatch.setattr(cursor, verb, noting(sent, getattr(cursor, verb)))
    lead_a_life(app, "canary")
    assert len(set(sent)) > 20
    assert [statement for statement in sent if "canary" in statement] == []


def noting(sent: list[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """Note each statement that a cursor is given."""

    def noted(self: Any, statement: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(statement.decode() if isinstance(statement, bytes) else str(statement))
        return call(self, statement, *args, **kwargs)

    return noted


def test_no_statement_is_made_of_values() -> None:
    """SQL is written down whole; only names of tables and columns, placeholders and dialect words are filled in."""
    suspicious, statements = [], 0
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if not re.search(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|ALTER TABLE|DROP TABLE|WHERE|VALUES)\b", text):
                continue
            statements += 1
            for part in node.values:
                said = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
                if re.search(r"\.(id|queue|group|unique|token|node|status|job_id)\b", said):
                    suspicious.append(f"{path.name}:{node.lineno}: {said}")
    assert suspicious == []
    assert statements > 20


def test_no_script_is_made_of_values() -> None:
    """Lua lives in files; keys and values are passed, and no script loads code."""
    scripts = sorted((SOURCE / "jobstores" / "redis" / "lua").glob("*/*.lua"))
    assert len(scripts) > 20
    for path in scripts:
        text = re.sub(r"--[^\n]*", "", path.read_text())
        assert not re.search(r"\b(loadstring|load|dofile|setfenv)\s*\(", text), path.name
    for path in sorted((SOURCE / "jobstores").glob("*redis*.py")):
        assert not re.search(r"\.eval\(\s*f[\"']", path.read_text()), path.name
