"""Each start of a run is kept: where, when, how it ended, and when the run could be started again."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.codec import Codec
from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Report, Result, Run, Start, Status, describe
from mainspring.core.transitions import cancel, conclude, recover, retry
from mainspring.errors import Retry, WorkerDied
from mainspring.jobstores.records.packing import RecordPacker

NOW = 1_763_000_000_000_000


def held(**fields: Any) -> Run:
    base = Run(
        id="r", call=Call("m:f"), status=Status.RUNNING, token="t", attempt=1, node="n1", started_at=NOW - 3 * SECOND,
        policy=Policy(retries=1000, backoff=(4.0,)),
    )  # fmt: skip
    return msgspec.structs.replace(base, **fields)


def raised(run: Run, error: BaseException, at: int = NOW) -> Report:
    began = at - 2 * SECOND
    told = describe(error, at, run.attempt)
    return Report(run, Result.RAISED, exception=error, error=told, started_at=began, finished_at=at)


def claimed(run: Run, node: str = "n1", at: int = NOW) -> Run:
    return msgspec.structs.replace(run, status=Status.RUNNING, attempt=run.attempt + 1, node=node, started_at=at)


def test_a_failed_start_is_kept_with_its_back_off() -> None:
    again = conclude(raised(held(), ValueError("x")), NOW, 0.0).run
    claimed_at, began = NOW - 3 * SECOND, NOW - 2 * SECOND
    assert again.starts == (Start(1, "n1", claimed_at, began, NOW, "raised", NOW + 4 * SECOND),)


def test_the_start_that_ends_a_run_is_read_from_the_record_itself() -> None:
    again = claimed(conclude(raised(held(), ValueError("x")), NOW, 0.0).run, "n2", NOW + 5 * SECOND)
    assert [start.how for start in again.starts] == ["raised", None]
    done = conclude(
        Report(again, Result.RETURNED, 7, started_at=NOW + 5 * SECOND, finished_at=NOW + 6 * SECOND), NOW, 0.0
    )
    assert done.run.earlier_starts == again.earlier_starts
    last = done.run.starts[-1]
    assert (last.number, last.node, last.how, last.ended_at) == (2, "n2", "succeeded", NOW + 6 * SECOND)


def test_lost_interrupted_crashed_and_uncounted_starts_say_so() -> None:
    outcomes = [
        recover(held(), NOW),
        conclude(Report(held(), Result.INTERRUPTED), NOW, 0.0),
        conclude(raised(held(), WorkerDied(7, -9)), NOW, 0.0),
        conclude(raised(held(), Retry(5, counted=False)), NOW, 0.0),
    ]
    assert [each.run.starts[-1].how for each in outcomes] == ["lost", "interrupted", "crashed", "retry"]
    assert outcomes[-1].run.starts[-1].run_at == NOW + 5 * SECOND


def test_what_was_claimed_and_not_started_is_no_start() -> None:
    for result in (Result.UNSTARTED, Result.ABSENT, Result.BUSY):
        given_back = conclude(Report(held(), result), NOW, 0.0).run
        assert given_back.starts == ()
        assert cancel(given_back, NOW).run.starts == ()
    assert conclude(Report(held(), Result.LATE), NOW, 0.0).run.starts == ()


def test_a_run_that_is_sent_back_keeps_the_start_that_had_ended_it() -> None:
    failed = conclude(raised(held(policy=Policy()), ValueError("x")), NOW, 0.0).run
    again = retry(failed, NOW + SECOND).run
    assert [(start.number, start.how, start.run_at) for start in again.starts] == [(1, "failed", NOW + SECOND)]
    assert [start.number for start in claimed(again).starts] == [1, 2]


def test_the_first_two_and_the_last_eighteen_starts_are_kept() -> None:
    run = held()
    for _ in range(30):
        run = claimed(conclude(raised(run, ValueError("x")), NOW, 0.0).run)
    assert [start.number for start in run.earlier_starts] == [1, 2, *range(13, 31)]
    assert run.starts[-1].number == 31


def test_starts_are_stored_and_the_usual_run_pays_nothing_for_them() -> None:
    packer = RecordPacker(Codec())
    again = conclude(raised(held(), ValueError("x")), NOW, 0.0).run
    assert packer.run(packer.run_row(again)).starts == again.starts
    assert 0 < len(packer.run_row(recover(held(), NOW).run).state) - len(packer.run_row(held()).state) < 80
