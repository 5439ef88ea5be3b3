"""The settings and the checks: every key, every message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings

from mainspring.django import checks
from mainspring.django.conf import Conf, conf, read, signing_keys
from mainspring.django.importing.q_cluster import IGNORED, KEYS
from tests.django.conftest import added_database


def settings(**values: Any) -> Any:
    return SimpleNamespace(**{"SECRET_KEY": "k" * 40, **values})


def ids(messages: Any) -> list[str]:
    return [str(message.id).removeprefix("mainspring.") for message in messages]


def said(messages: list[CheckMessage]) -> str:
    return "\n".join(str(message) for message in messages)


def test_without_settings_the_store_is_the_default_database() -> None:
    found = read(settings(TIME_ZONE="Asia/Tokyo"))
    assert (found.url, found.alias, found.tablename) == ("django://default", "default", "mainspring_jobs")
    assert (found.timezone, found.messages, found.options) == ("Asia/Tokyo", (), {})


def test_every_key_of_ours_is_taken() -> None:
    ours = {
        "database": "other", "name": "shop", "queues": ["mail"], "processes": 2, "threads": 4, "max_runs": 10,
        "max_rss": 10**9, "timeout": 30, "retries": 3, "keep_runs": 500, "retention": 3600, "inline": True,
        "timezone": "UTC", "secret_key": "s" * 20, "allow_pickle": True, "lease": 20, "require": "durable",
        "reporters": ["shop.report"],
    }  # fmt: skip
    found = read(settings(MAINSPRING=ours))
    assert found.messages == ()
    assert (found.alias, found.table("runs"), found.queues, found.threads) == ("other", "shop_runs", ("mail",), 4)
    assert found.options == {"timeout": 30.0, "retries": 3, "retention": 3600.0}
    assert signing_keys(found, settings()) == "s" * 20


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ({"retires": 3}, "E001", "did you mean 'retries'"),
        ({"threads": 0}, "E002", "threads"),
        ({"name": "my shop"}, "E002", "names of tables"),
        ({"inline": "yes"}, "E002", "True or False"),
        ({"queues": "mail"}, "E002", "a list of queues"),
        ({"timezone": "Mars/Base"}, "E002", "timezone"),
        ({"url": "redis://x", "database": "default"}, "E002", "both"),
        ([("threads", 1)], "E002", "is a dict"),
    ],
)
def test_what_is_wrong_is_named(given: Any, code: str, text: str) -> None:
    found = read(settings(MAINSPRING=given))
    assert ids(found.messages) == [code]
    assert text in said(list(found.messages)), said(list(found.messages))


def test_django_qs_settings_are_translated() -> None:
    theirs = {
        "name": "shop", "workers": 3, "recycle": 100, "max_rss": 2000, "timeout": 60, "retry": 90, "max_attempts": 4,
        "save_limit": 250, "orm": "default", "catch_up": False, "sync": True, "scheduler": False, "label": "Queue",
        "time_zone": "Asia/Tokyo", "cluster_name": "fast", "log_level": "INFO", "ack_failures": True,
    }  # fmt: skip
    found = read(settings(Q_CLUSTER=theirs, TIME_ZONE="UTC"))
    assert (found.processes, found.threads, found.max_runs, found.max_rss) == (3, 1, 100, 2_048_000)
    assert found.options == {"timeout": 60.0, "retries": 3, "backoff": (90.0,)}
    assert (found.keep_runs, found.url, found.coalesce, found.inline) == (250, "django://default", True, True)
    assert (found.schedule, found.label, found.timezone, found.default_queue) == (False, "Queue", "Asia/Tokyo", "fast")
    assert (found.name, found.salt) == ("mainspring", "shop")
    assert set(ids(found.messages)) == {"I020"}


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_keys_without_a_meaning_here_are_noted(key: str) -> None:
    assert ids(read(settings(Q_CLUSTER={key: 1})).messages) == ["I020"]


@pytest.mark.parametrize(
    ("theirs", "url"),
    [
        ({"redis": "redis://host:1/2"}, "redis://host:1/2"),
        ({"redis": {"host": "h", "port": 7, "db": 3, "password": "p/w"}}, "redis://:p%2Fw@h:7/3"),
        ({"django_redis": "default"}, "redis://cache:6379/1"),
        ({"mongo": {"host": "h"}, "mongo_db": "jobs"}, "mongodb://h:27017/jobs"),
        ({"orm": "other", "broker_class": "django_q.brokers.orm.ORM"}, "django://other"),
        ({"redis": "redis://host:1/2", "django_redis": "default"}, "redis://cache:6379/1"),
        ({"redis": "redis://host:1/2", "mongo": "mongodb://h", "orm": "other"}, "django://other"),
        ({"redis": "redis://host:1/2", "mongo": "mongodb://h:7"}, "mongodb://h:7/mainspring"),
        (
            {"orm": "other", "redis": "redis://h/1", "broker_class": "django_q.brokers.redis_broker.Redis"},
            "redis://h/1",
        ),
        ({"orm": None, "mongo": None, "sqs": None, "iron_mq": None, "broker_class": None}, "django://default"),
        ({"redis": None, "django_redis": ""}, "django://default"),
    ],
)
def test_brokers_become_stores(theirs: dict[str, Any], url: str) -> None:
    caches = {"default": {"LOCATION": "redis://cache:6379/1"}}
    found = read(settings(Q_CLUSTER=theirs, CACHES=caches))
    assert (found.url, [code for code in ids(found.messages) if code[0] == "E"]) == (url, [])


def test_a_broker_that_django_q_would_not_take_is_noted() -> None:
    found = read(settings(Q_CLUSTER={"orm": "default", "redis": "redis://host"}))
    assert [message.msg for message in found.messages if "redis" in message.msg] == [
        "Q_CLUSTER['redis'] = 'redis://host' is not used: django-q takes 'orm', too"
    ]


@pytest.mark.parametrize(
    ("theirs", "code"),
    [
        ({"sqs": {}}, "E007"),
        ({"iron_mq": {}}, "E007"),
        ({"broker_class": "shop.Broker"}, "E007"),
        ({"wrokers": 3}, "W014"),
        ({"max_attempts": 0}, "W014"),
        ({"django_redis": "absent"}, "E002"),
        ("fast", "E002"),
    ],
)
def test_settings_of_django_q_that_cannot_be_kept_are_told(theirs: Any, code: str) -> None:
    assert code in ids(read(settings(Q_CLUSTER=theirs)).messages)


def test_one_of_several_clusters_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"timeout": 10, "ALT_CLUSTERS": {"long": {"timeout": 1000}}}
    assert read(settings(Q_CLUSTER=theirs)).timeout == 10
    chosen = read(settings(Q_CLUSTER=theirs), "long")
    assert (chosen.timeout, chosen.default_queue, chosen.queues) == (1000, "long", ("long",))
    monkeypatch.setenv("Q_CLUSTER_NAME", "long")
    assert read(settings(Q_CLUSTER=theirs)).timeout == 1000


def test_every_key_of_django_q_is_known() -> None:
    known = """
        name cluster_name workers daemonize_workers recycle max_rss compress save_limit save_limit_per guard_cycle
        scheduler sync cpu_affinity timeout max_attempts retry ack_failures queue_limit label catch_up redis
        django_redis iron_mq sqs orm mongo mongo_db broker_class poll cache cached bulk testing log_level time_zone
        error_reporter
    """
    assert set(known.split()) == {*KEYS, *IGNORED, "catch_up"}


def test_keys_are_derived_and_rotate_with_the_projects() -> None:
    old, new = settings(), settings(SECRET_KEY="n" * 40, SECRET_KEY_FALLBACKS=["k" * 40])
    [first] = signing_keys(Conf(), old)
    assert signing_keys(Conf(), new)[1] == first
    assert len(first) == 32
    assert first != signing_keys(Conf(salt="other"), old)[0]


def test_the_settings_are_read_again_when_they_change() -> None:
    before = conf()
    with override_settings(MAINSPRING={"threads": 3}):
        assert conf().threads == 3
    assert conf() == before


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"MAINSPRING": {"database": "defautl"}}, "E004"),
        ({"SECRET_KEY": "short"}, "E006"),
        ({"MAINSPRING": {"inline": True}, "DEBUG": False}, "W013"),
        ({"MAINSPRING": {"treads": 1}}, "E001"),
    ],
)
def test_the_checks_look_at_the_settings(values: dict[str, Any], code: str) -> None:
    with override_settings(**values):
        assert code in ids(checks.check_settings())


def test_the_checks_look_at_the_database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(checks.check_settings()) == ["W015"]  # the tests' own is in memory
    with (
        added_database("slow", f"sqlite:///{tmp_path}/db.sqlite3", OPTIONS={}) as alias,
        override_settings(MAINSPRING={"database": alias}),
    ):
        assert ids(checks.check_settings()) == ["W012"]
        assert checks.check_tables([alias]) == []
        monkeypatch.setattr(checks, "SQL_SCHEMA", 1_000)
        assert ids(checks.check_tables([alias])) == ["W011"]
        monkeypatch.setattr(checks, "PEERS", ("mainspring.django", "django.contrib.auth"))
        assert "E003" in ids(checks.check_settings())


def test_psycopg2_is_refused(on_postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(MAINSPRING={"database": on_postgresql}):
        assert ids(checks.check_settings()) == []
        monkeypatch.setattr(checks, "_is_psycopg3", lambda: False)
        assert ids(checks.check_settings()) == ["E005"]


def test_a_queue_of_djangos_tasks_that_nobody_serves_is_told() -> None:
    tasks = {"default": {"BACKEND": "mainspring.django.backend.MainspringBackend", "QUEUES": ["mail", "rare"]}}
    with override_settings(TASKS=tasks, MAINSPRING={"queues": ["mail"]}):
        assert ids(checks.check_backends()) == ["W016"]
