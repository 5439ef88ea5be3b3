"""A job as a value: checked changes, copies, state."""

from __future__ import annotations

import copy
import math
import pickle
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring.core.instants import to_us
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY, Backoff
from mainspring.core.validation import make_call, make_policy
from mainspring.node.new_ids import new_job_id
from mainspring.triggers.interval import IntervalTrigger

MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123457, tzinfo=UTC)


def work(a: int, b: int = 0) -> None: ...


def make(**options: Any) -> Job:
    trigger = IntervalTrigger(seconds=5, start_date=MOMENT, timezone="UTC")
    return Job("j", make_call(work, [1], None, None), trigger, at=to_us(MOMENT), **options)


def test_an_id_is_a_random_uuid4_in_hex() -> None:
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    for each in ids:
        parsed = UUID(hex=each)
        assert (parsed.version, parsed.variant, parsed.hex) == (4, "specified in RFC 4122", each)


def test_jobs_without_arguments_share_their_call() -> None:
    assert make_call(print, None, None, None) is make_call(print, None, None, None)


def test_a_changed_copy_leaves_the_original_alone() -> None:
    job = make()
    changed = job.evolve(name="other", args=[2], coalesce=False, retries=3, misfire_grace_time=timedelta(minutes=1))
    assert (job.name, job.args, job.coalesce, job.policy.retries, job.misfire_grace_time) == (
        "work",
        (1,),
        True,
        0,
        None,
    )
    assert (changed.name, changed.args, changed.coalesce, changed.policy.retries) == ("other", (2,), False, 3)
    assert changed.misfire_grace_time == 60


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"id": "k"}, ValueError, "the id of job 'j' cannot be changed"),
        ({"nmae": "x"}, AttributeError, "did you mean 'name'"),
        ({"func": 5}, TypeError, "func must be a callable or a reference"),
        ({"args": "abc"}, TypeError, r"did you mean \['abc'\]"),
        ({"kwargs": [1]}, TypeError, "kwargs must be a mapping"),
        ({"args": [1, 2, 3]}, ValueError, "takes 2 positional arguments but 3 are given"),
        ({"name": ""}, TypeError, "name must be a non-empty string"),
        (
            {"misfire_grace_time": 0},
            TypeError,
            "misfire_grace_time must be None or a positive number of seconds, not 0",
        ),
        ({"misfire_grace_time": "5"}, TypeError, "not '5'"),
        (
            {"misfire_grace_time": sys.maxsize},
            ValueError,
            f"at most 10,000,000,000 seconds, not {sys.maxsize}; None means however late",
        ),
        ({"misfire_grace_time": math.inf}, ValueError, "at most 10,000,000,000 seconds, not inf"),
        ({"misfire_grace_time": math.nan}, TypeError, "a positive number of seconds, not nan"),
        ({"retention": math.inf}, ValueError, "retention must be at most 10,000,000,000 seconds, not inf"),
        ({"timeout": 1e14}, ValueError, "timeout must be at most 10,000,000,000 seconds"),
        ({"backoff": [1, 1e14]}, ValueError, "between 0 and 10,000,000,000 seconds, not 1"),
        ({"backoff": [-1]}, ValueError, "between 0 and 10,000,000,000 seconds, not -1"),
        ({"backoff": math.nan}, ValueError, "not nan"),
        ({"backoff": ["5"]}, TypeError, "backoff takes numbers of seconds or timedeltas, not '5'"),
        ({"max_instances": 0}, TypeError, "max_instances must be a positive whole number, not 0"),
        ({"trigger": "cron"}, TypeError, "trigger must be a trigger object"),
        ({"executor": ""}, TypeError, "executor must be a non-empty string"),
        ({"retries": -1}, TypeError, "retries must be a whole number of at least 0, not -1"),
        ({"timeout": -1}, TypeError, "timeout must be None or a positive number of seconds, not -1"),
        ({"priority": 101}, ValueError, "priority goes from -100 to 100, not 101"),
        ({"delivery": "twice"}, ValueError, "delivery is 'at_least_once' or 'at_most_once', not 'twice'"),
    ],
)
def test_a_wrong_change_is_named_and_changes_nothing(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    job = make()
    before = {name: getattr(job, name) for name in Job.__slots__}
    with pytest.raises(error, match=text):
        job.evolve(**changes)
    assert {name: getattr(job, name) for name in Job.__slots__} == before


def test_back_off_may_be_a_number_a_list_or_a_function() -> None:
    assert make_policy(DEFAULT_POLICY, backoff=5).backoff == Backoff(first=5.0)
    assert make_policy(DEFAULT_POLICY, backoff=[1, 2]).backoff == (1.0, 2.0)
    assert make_policy(DEFAULT_POLICY, backoff=float).backoff is float
    minute = timedelta(minutes=1)
    assert make_policy(DEFAULT_POLICY, backoff=[1, minute]).backoff == (1.0, 60.0)
    assert make_policy(DEFAULT_POLICY, backoff=minute).backoff == Backoff(first=60.0)


class Float64(float):
    """A number that is a float and more, as numpy's is."""


def test_a_number_of_another_kind_is_kept_as_a_plain_one() -> None:
    policy = make_policy(DEFAULT_POLICY, timeout=Float64(2), retention=Float64(3), backoff=[Float64(4)])
    assert (policy.timeout, policy.retention, policy.backoff) == (2, 3, (4,))
    assert isinstance(policy.backoff, tuple)
    assert {type(policy.timeout), type(policy.retention), type(policy.backoff[0])} == {float}


def test_the_next_run_time_is_shown_in_the_zone_of_the_trigger_to_the_microsecond() -> None:
    job = make()
    assert job.next_run_time == MOMENT
    assert job.evolve(next_run_time=None).next_run_time is None


def test_its_state_has_the_keys_that_job_stores_of_others_expect_and_restores_it() -> None:
    job = make(coalesce=False, max_instances=3, misfire_grace_time=7)
    state = job.__getstate__()
    assert {
        "version",
        "id",
        "func",
        "trigger",
        "executor",
        "args",
        "kwargs",
        "name",
        "misfire_grace_time",
    } <= state.keys()
    assert re.fullmatch(r"\S*test_job:work", state["func"])
    twin = Job.__new__(Job)
    twin.__setstate__(pickle.loads(pickle.dumps(state)))
    for name in (
        "id",
        "args",
        "kwargs",
        "name",
        "executor",
        "coalesce",
        "max_instances",
        "misfire_grace_time",
        "trigger",
    ):
        assert getattr(twin, name) == getattr(job, name)
    assert (twin.func, twin.next_run_time) == (work, MOMENT)


def test_a_job_whose_function_has_no_name_has_no_state() -> None:
    job = Job("j", make_call(lambda: None, None, None, None), make().trigger)
    with pytest.raises(ValueError, match="'j' cannot be serialized"):
        copy.copy(job).__getstate__()
    assert job.func_ref is None


def test_a_job_that_belongs_to_no_scheduler_says_so() -> None:
    with pytest.raises(RuntimeError, match="get it from one with get_job"):
        make().pause()


def test_it_reads_well() -> None:
    job = make()
    assert repr(job) == "<Job (id=j name=work)>"
    job._jobstore_alias = "default"
    assert str(job) == "work (trigger: interval[0:00:05], next run at: 2026-03-29 01:30:00 UTC)"


def test_a_job_is_small() -> None:
    assert not hasattr(make(), "__dict__")
