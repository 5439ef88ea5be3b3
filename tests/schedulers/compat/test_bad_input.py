"""Wrong input: the type of the error, a text that names the value and what would be right, and nothing changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import Heard, Package

FAR = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)

# What is done, the error it gives in both packages, and what ours says.
ADDING: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "unknown trigger": (lambda s: s.add_job(add, "intervall", [1]), LookupError, "'intervall'.*'interval'"),
    "crontab for a trigger": (
        lambda s: s.add_job(add, "0 9 * * *", [1]),
        LookupError,
        r"'0 9 .*write a crontab as CronTrigger\.from_crontab",
    ),
    "argument of another trigger": (lambda s: s.add_job(add, "cron", [1], hours=3), TypeError, "'hours'.*'hour'"),
    "misspelled argument": (lambda s: s.add_job(add, "interval", [1], secnds=3), TypeError, "'secnds'.*'seconds'"),
    "unknown store": (lambda s: s.add_job(add, args=[1], jobstore="defualt"), KeyError, "'defualt'.*'default'"),
    "missing argument": (lambda s: s.add_job(add), ValueError, r"add\(.*needs 'a'"),
    "too many arguments": (lambda s: s.add_job(add, args=[1, 2, 3]), ValueError, "2 positional.* 3"),
    "unknown argument": (lambda s: s.add_job(add, args=[1], kwargs={"bb": 1}), ValueError, "'bb'"),
    "argument twice": (lambda s: s.add_job(add, args=[1], kwargs={"a": 1}), ValueError, "a twice"),
    "nothing to call": (lambda s: s.add_job(3), TypeError, "not 3"),
    "number for id": (lambda s: s.add_job(add, args=[1], id=3), TypeError, "id .*not 3"),
    "negative grace": (lambda s: s.add_job(add, args=[1], misfire_grace_time=-1), TypeError, "positive.*not -1"),
    "no instances": (lambda s: s.add_job(add, args=[1], max_instances=0), TypeError, "positive.*not 0"),
    "no reference": (lambda s: s.add_job("nonsense", args=[1]), ValueError, "'nonsense'.*package.module:name"),
    "unknown module": (lambda s: s.add_job("no_such:thing", args=[1]), LookupError, "'no_such'"),
    "unknown function": (
        lambda s: s.add_job("tests.schedulers.compat.functions:ad", args=[1]),
        LookupError,
        "'ad'.*'add'",
    ),
    "field out of range": (lambda s: s.add_job(add, "cron", [1], hour=25), ValueError, "hour.*25.*23"),
    "no time": (lambda s: s.add_job(add, "date", [1], run_date="soon"), ValueError, "'soon'.*2026-03-29"),
    "taken id": (lambda s: s.add_job(add, "interval", [1], id="sum", hours=2), KeyError, "'sum'.*replace_existing"),
}

OURS_ONLY: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "text for args": (lambda s: s.add_job(add, args="ab"), TypeError, r"'ab'.*\['ab'\]"),
    "unknown executor": (lambda s: s.add_job(add, args=[1], executor="defualt"), KeyError, "'defualt'.*'default'"),
    "negative interval": (lambda s: s.add_job(add, "interval", [1], seconds=-3), ValueError, "interval must be"),
    "end before start": (
        lambda s: s.add_job(add, "interval", [1], hours=1, start_date="2030-01-02", end_date="2030-01-01"),
        ValueError,
        "2030-01-01.*before.*2030-01-02",
    ),
    "unknown zone": (
        lambda s: s.add_job(add, "cron", [1], timezone="Europe/Berln"),
        ValueError,
        "'Europe/Berln'.*'Europe/Berlin'",
    ),
    "an id too long": (lambda s: s.add_job(add, args=[1], id="x" * 256), ValueError, "256.*255"),
    "an empty name": (lambda s: s.add_job(add, args=[1], name=""), TypeError, "name .*non-empty"),
    "trigger and its arguments": (
        lambda s: s.add_job(add, s.get_job("sum").trigger, [1], hours=1),
        TypeError,
        "'hours'",
    ),
    "retries": (lambda s: s.add_job(add, args=[1], retries=-1), TypeError, "retries .*-1"),
    "time-out": (lambda s: s.add_job(add, args=[1], timeout=0), TypeError, "timeout .*positive.*0"),
    "delivery": (lambda s: s.add_job(add, args=[1], delivery="once"), ValueError, "at_most_once.*'once'"),
    "priority": (lambda s: s.add_job(add, args=[1], priority=500), ValueError, "-100 to 100.*500"),
    "priority that is text": (lambda s: s.add_job(add, args=[1], priority="high"), TypeError, "priority.*'high'"),
}

CHANGING: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "id": (lambda s: s.modify_job("sum", id="other"), ValueError, "id of job 'sum' cannot be changed"),
    "unknown attribute": (
        lambda s: s.modify_job("sum", max_instance=2),
        AttributeError,
        "'max_instance'.*'max_instanc",
    ),
    "arguments that do not fit": (lambda s: s.modify_job("sum", args=[1, 2, 3]), ValueError, "2 positional"),
    "a trigger's name": (lambda s: s.modify_job("sum", trigger="cron"), TypeError, "trigger object.*'cron'"),
    "grace": (lambda s: s.modify_job("sum", misfire_grace_time="x"), TypeError, "misfire_grace_time.*'x'"),
    "instances": (lambda s: s.modify_job("sum", max_instances="x"), TypeError, "max_instances.*'x'"),
    "trigger": (lambda s: s.reschedule_job("sum", trigger="intervall"), LookupError, "'intervall'.*'interval'"),
}

MISSING: dict[str, Callable[[Any], Any]] = {
    "remove": lambda s: s.remove_job("summ"),
    "modify": lambda s: s.modify_job("summ", name="x"),
    "pause": lambda s: s.pause_job("summ"),
    "resume": lambda s: s.resume_job("summ"),
    "reschedule": lambda s: s.reschedule_job("summ", trigger="interval", hours=1),
}


def state(scheduler: Any) -> Any:
    return [(job.id, job.name, tuple(job.args), job.next_run_time, str(job.trigger)) for job in scheduler.get_jobs()]


def refused(package: Package, case: tuple[Callable[[Any], Any], type[Exception], str]) -> None:
    """Check that an act raises the error, tells nobody, and leaves the jobs as they were."""
    act, kind, text = case
    scheduler = package.started()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1, next_run_time=FAR)
    heard, before = Heard(scheduler), state(scheduler)
    with pytest.raises(kind) as caught:
        act(scheduler)
    if package.name == "mainspring":
        assert caught.match(f"(?s){text}")
    assert state(scheduler) == before
    assert heard.codes() == []


@pytest.mark.parametrize("case", ADDING)
def test_a_job_that_is_wrong_is_refused_and_nothing_changes(package: Package, case: str) -> None:
    refused(package, ADDING[case])


@pytest.mark.parametrize("case", OURS_ONLY)
def test_what_aps_lets_pass_is_refused_too(ours: Package, case: str) -> None:
    refused(ours, OURS_ONLY[case])


@pytest.mark.parametrize("case", CHANGING)
def test_a_change_that_is_wrong_is_refused_and_nothing_changes(package: Package, case: str) -> None:
    refused(package, CHANGING[case])


@pytest.mark.parametrize("verb", MISSING)
def test_a_job_that_is_not_there_is_a_lookup_error(package: Package, verb: str) -> None:
    kind = package.get("jobstores.base:JobLookupError")
    assert issubclass(kind, KeyError)
    refused(package, (MISSING[verb], kind, "'summ'.*'sum'"))


@pytest.mark.parametrize("verb", MISSING)
def test_a_job_that_is_not_there_is_a_lookup_error_before_the_start(package: Package, verb: str) -> None:
    with pytest.raises(package.get("jobstores.base:JobLookupError")):
        MISSING[verb](package.scheduler())


def test_a_taken_id_is_a_conflict_that_is_a_key_error(package: Package) -> None:
    kind = package.get("jobstores.base:ConflictingIdError")
    assert issubclass(kind, KeyError)
    refused(package, (ADDING["taken id"][0], kind, "'sum'"))


def test_a_taken_id_among_pending_jobs_fails_the_start(package: Package) -> None:
    scheduler = package.scheduler()
    for _ in range(2):
        scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    with pytest.raises(package.get("jobstores.base:ConflictingIdError")):
        scheduler.start()


def test_errors_survive_pickling_with_their_text(ours: Package) -> None:
    import pickle

    scheduler = ours.started()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    for act in (MISSING["remove"], ADDING["taken id"][0], ADDING["unknown store"][0], ADDING["unknown trigger"][0]):
        with pytest.raises(LookupError) as caught:
            act(scheduler)
        twin = pickle.loads(pickle.dumps(caught.value))
        assert (type(twin), str(twin)) == (caught.type, str(caught.value))


OPTIONS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "store type": ({"jobstores": {"default": {"type": "memry"}}}, LookupError, "'memry'.*'memory'"),
    "executor type": ({"executors": {"default": {"type": "threadpol"}}}, LookupError, "'threadpol'.*'threadpool'"),
    "neither type nor class": ({"jobstores": {"default": {"url": "x"}}}, ValueError, "'default'.*'type' nor 'class'"),
    "executor that is a number": ({"executors": {"default": 3}}, (TypeError, ValueError), "'default'.*3"),
    "executor's argument": (
        {"executors": {"default": {"type": "threadpool", "max_wokers": 1}}},
        TypeError,
        "'max_wokers'.*'max_workers'",
    ),
    "retry interval": ({"jobstore_retry_interval": "often"}, ValueError, "often"),
    "instances": ({"job_defaults": {"max_instances": "many"}}, ValueError, "max_instances.*'many'"),
}
OUR_OPTIONS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "unknown zone": ({"timezone": "Europe/Berln"}, ValueError, "'Europe/Berln'.*'Europe/Berlin'"),
    "unknown option": ({"jobstore": {}}, ValueError, "'jobstore'.*'jobstores'"),
    "unknown default": ({"job_defaults": {"colaesce": True}}, ValueError, "'colaesce'.*'coalesce'"),
    "class that is not there": (
        {"jobstores": {"default": {"class": "apscheduler.jobstores.memory:MemoryJobStor"}}},
        LookupError,
        "'MemoryJobStor'.*'MemoryJobStore'",
    ),
    "coalesce": ({"job_defaults": {"coalesce": "perhaps"}}, ValueError, "coalesce.*true or false.*'perhaps'"),
    "negative retry interval": ({"jobstore_retry_interval": -1}, ValueError, "jobstore_retry_interval.*seconds.*-1"),
    "default grace": ({"job_defaults": {"misfire_grace_time": -1}}, (TypeError, ValueError), "misfire_grace_time.*-1"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_that_is_wrong_is_refused(package: Package, case: str) -> None:
    options, kind, text = OPTIONS[case]
    with pytest.raises(kind) as caught:
        # A copy, since APScheduler takes keys out of what it is given.
        package.scheduler(timezone="UTC", **copy.deepcopy(options))
    if package.name == "mainspring":
        assert caught.match(f"(?s){text}")


@pytest.mark.parametrize("case", OUR_OPTIONS)
def test_an_option_that_aps_overlooks_is_refused(ours: Package, case: str) -> None:
    options, kind, text = OUR_OPTIONS[case]
    with pytest.raises(kind, match=f"(?s){text}"):
        ours.scheduler(**options)


def test_a_refused_configuration_leaves_the_old_one(ours: Package) -> None:
    scheduler = ours.scheduler(timezone="Asia/Tokyo")
    with pytest.raises(ValueError, match="nonsense"):
        scheduler.configure(timezone="UTC", nonsense=1)
    assert str(scheduler.timezone) == "Asia/Tokyo"


ALIASES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "executor twice": (lambda s: s.add_executor("threadpool"), ValueError, "already.*'default'"),
    "store twice": (lambda s: s.add_jobstore("memory"), ValueError, "already.*'default'"),
    "unknown executor": (lambda s: s.remove_executor("defalt"), KeyError, "'defalt'.*'default'"),
    "unknown store": (lambda s: s.remove_jobstore("defalt"), KeyError, "'defalt'.*'default'"),
    "no executor": (lambda s: s.add_executor(object(), "x"), TypeError, "executor.*object"),
    "no store": (lambda s: s.add_jobstore(object(), "x"), TypeError, "job store.*object"),
}


@pytest.mark.parametrize("case", ALIASES)
def test_a_wrong_alias_or_plug_in_is_refused(package: Package, case: str) -> None:
    refused(package, ALIASES[case])


def test_a_listener_that_cannot_be_called_is_refused(ours: Package) -> None:
    with pytest.raises(TypeError, match="callable, not 3"):
        ours.scheduler().add_listener(3)


def test_a_mask_without_a_bit_is_refused(ours: Package) -> None:
    with pytest.raises(ValueError, match=r"mask.*0"):
        ours.scheduler().add_listener(print, 0)
