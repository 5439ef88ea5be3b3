"""Every error survives pickling, is of a standard kind too, and says what to do."""

from __future__ import annotations

import pickle

import pytest

from mainspring import errors

SAMPLES: list[errors.MainspringError] = [
    errors.SchedulerAlreadyRunningError(),
    errors.SchedulerNotRunningError(),
    errors.UnknownAlias("executor", "treads", ("threads", "default")),
    errors.NodeNotFound("host:1", ("host:12",)),
    errors.PluginNotFound("trigger", "intervall", ("interval", "cron")),
    errors.ConfigurationError("bad"),
    errors.CallableReferenceError("bad"),
    errors.HistoryNotKept("ReferenceStore", "nobody knows who did what"),
    errors.JobLookupError("mial", ("mail",)),
    errors.ConflictingIdError("mail"),
    errors.TransientJobError("mail", "a lambda"),
    errors.VersionConflict("mail"),
    errors.TransactionConflict("begin again"),
    errors.MissingInput("run-1", "failed"),
    errors.InvalidArguments("ship", (("order.quantity", "Input should be greater than 0"),)),
    errors.RecordTooLarge("mail", 300_000, 262_144, "etcd"),
    errors.TooManyJobs(50_001, 50_000, "etcd"),
    errors.TransactionOpen("r1"),
    errors.TransactionOpen("r1", locked=True),
    errors.MaxInstancesReachedError("mail", 3),
    errors.RunNotFound("r1"),
    errors.TaskNotFound("app:sned", ("app:send",), "; register it"),
    errors.RunFailed("r1", "ValueError", "no such user", "Traceback ..."),
    errors.RunCancelled("r1", "enough"),
    errors.UnverifiedOutcome("r1", "succeeded", "unsigned: its outcome is not signed"),
    errors.AlertRefused("https://hooks.example.org", 500, "no"),
    errors.StoreUnavailable("gone"),
    errors.OutcomeUnknown("gone"),
    errors.StoreLocked("held"),
    errors.RunTimeout(3),
    errors.WorkerDied(12, -9),
    errors.Retry(3, "later"),
    errors.Cancel("enough"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_it_is_the_same_after_pickling(error: errors.MainspringError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args, vars(copy)) == (type(error), str(error), error.args, vars(error))


def test_there_is_a_sample_of_every_error() -> None:
    def below(cls: type[errors.MainspringError]) -> set[str]:
        return {cls.__name__}.union(*(below(sub) for sub in cls.__subclasses__() if sub.__module__ == errors.__name__))

    assert {type(error).__name__ for error in SAMPLES} == below(errors.MainspringError) - {"MainspringError"}


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    for error in SAMPLES:
        assert type(error).__name__ in errors.__doc__


def test_lookups_can_be_caught_as_the_standard_kinds() -> None:
    assert isinstance(errors.JobLookupError("x"), KeyError)
    assert isinstance(errors.ConflictingIdError("x"), KeyError)
    assert isinstance(errors.RunNotFound("x"), LookupError)
    assert isinstance(errors.OutcomeUnknown("x"), ConnectionError)
    assert isinstance(errors.RunTimeout(1), TimeoutError)


def test_near_matches_come_first_and_a_short_list_of_names_otherwise() -> None:
    assert errors.near("intervall", ["interval", "cron"]) == "; did you mean 'interval'?"
    assert errors.near("zzz", ["interval", "cron"]) == "; there are 'cron', 'interval'"
    assert errors.near("zzz", [str(n) for n in range(100)]) == ""


def test_how_a_worker_died_is_said() -> None:
    assert "by signal 9 (SIGKILL: out of memory?)" in str(errors.WorkerDied(12, -9))
    assert "by signal 11 (SIGSEGV)" in str(errors.WorkerDied(12, -11))
    assert "by signal 99 (unknown)" in str(errors.WorkerDied(12, -99))
    assert "with code 3" in str(errors.WorkerDied(12, 3))


def test_a_task_named_by_a_script_is_found_by_its_last_part_among_those_of_packages() -> None:
    known = ("jobs:hallo", "shop.backend.scheduled.jobs:hello", "shop.mail:send", "mainspring:collect")
    text = str(errors.TaskNotFound("jobs:hello", known))
    assert text == "no task is called 'jobs:hello'; did you mean 'shop.backend.scheduled.jobs:hello' or 'jobs:hallo'?"


def test_a_crontab_in_the_place_of_a_triggers_name_says_how_to_make_one() -> None:
    error = errors.PluginNotFound("trigger", "0 9 * * *", ("cron", "interval"))
    assert str(error).endswith("write a crontab as CronTrigger.from_crontab('0 9 * * *')")
