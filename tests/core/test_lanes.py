"""In which lane a run waits, and what moves it to another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.lanes import executor_of, lane_of, lanes_of, needed_executor, queue_of
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Report, Result, Run, Status
from mainspring.core.transitions import change, conclude, retry
from mainspring.core.waiting.followups import hook_of
from mainspring.errors import WorkerDied

RUN = Run(id="r", call=Call("m:f", name="f"), queue="mail")


@pytest.mark.parametrize(
    ("queue", "executor", "lane"),
    [
        ("mail", None, "mail"),
        ("mail", "threads", "mail"),
        ("mail", "queue", "mail"),
        ("mail", "loop", "mail:async"),
        ("mail", "processes", "mail:process"),
        (".loop", "loop", ".loop"),
        ("!signal", "loop", "!signal"),
    ],
)
def test_a_lane_is_the_queue_and_a_word_for_the_executor(queue: str, executor: str | None, lane: str) -> None:
    assert (lane_of(queue, executor), queue_of(lane)) == (lane, queue)
    assert replace(RUN, queue=queue, executor=executor).lane == lane
    assert executor_of(lane) == (executor if lane != queue else None)


@pytest.mark.parametrize("name", ["a:b", ".a:async", "async", ":x"])
def test_other_names_with_a_colon_are_lanes_of_their_own(name: str) -> None:
    assert (queue_of(name), executor_of(name)) == (name, None)


def test_a_queue_has_a_lane_for_each_kind_of_executor() -> None:
    assert lanes_of("mail") == ("mail", "mail:async", "mail:process")
    assert lanes_of(".default") == (".default",)
    assert [needed_executor(*said) for said in ((False, None), (True, None), (True, "process"))] == [
        None,
        "loop",
        "processes",
    ]


def test_a_crash_moves_a_run_to_where_it_runs_alone_and_a_person_moves_it_back() -> None:
    running = replace(RUN, executor="loop", status=Status.RUNNING, token="t", attempt=1)
    crashed = conclude(Report(running, Result.RAISED, exception=WorkerDied(1, -9)), 5, 0.5).run
    assert (crashed.status, crashed.lane) == (Status.PENDING, "mail:process")
    failed = replace(crashed, status=Status.FAILED)
    assert retry(failed, 9).run.lane == "mail"  # a worker finds out what it needs
    isolated = replace(failed, policy=Policy(isolation="process"))
    assert retry(isolated, 9).run.lane == "mail:process"
    assert retry(replace(failed, crashes=0, executor="loop"), 9).run.lane == "mail:async"


def test_a_moved_run_keeps_its_executor_and_a_hook_does_not_take_it_over() -> None:
    run = replace(RUN, executor="loop", policy=Policy(hook="m:told"))
    assert change(run, queue="other").run.lane == "other:async"
    hook = hook_of(run)
    assert hook is not None
    assert hook.lane == "mail"
