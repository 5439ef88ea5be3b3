"""Counters that outlive runs: what a node sums up, percentiles, levels, and series for charts."""

from __future__ import annotations

import os
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.insight.metrics import (
    BUCKETS,
    DAY_US,
    HOUR_US,
    LEVELS,
    MINUTE_US,
    Counts,
    Spread,
    Tally,
    add_cells,
    level_for,
    pack_cells,
    series,
    unpack_cells,
)
from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Condition, Error, Outcome, Report, Result, Run, Status
from mainspring.core.transitions import recover
from mainspring.jobstores.counting import MOST_KEYS, MetricSums

NOW = 20_000 * DAY_US + 5 * HOUR_US + 7 * MINUTE_US + 10 * SECOND


def run(**fields: object) -> Run:
    return Run(**{"id": "r", "call": Call("shop:send"), "queue": "mail", **fields})  # type: ignore[arg-type]


def settled(before: Run, after: Run, result: Result, began: int = 0, ended: int = 0) -> tuple[Report, Outcome, bool]:
    return Report(before, result, started_at=began, finished_at=ended), Outcome(after, Condition.HELD), True


def minutes(sums: MetricSums, kind: str = "all", name: str = "") -> list[Counts]:
    """Return the counts of ten minutes, of which the fifth is that of NOW."""
    tallies = [each for each in sums.take() if (each.kind, each.name, each.level) == (kind, name, 0)]
    since = NOW // MINUTE_US * MINUTE_US - 5 * MINUTE_US
    return series(tallies, since, since + 10 * MINUTE_US, MINUTE_US).get(name, [])


def test_a_start_counts_in_its_minute_and_an_end_in_its_own() -> None:
    sums = MetricSums()
    began, ended = NOW - 2 * MINUTE_US, NOW
    before = run(run_at=began - 3 * SECOND, started_at=began)
    sums.added([before], began)
    sums.settled([settled(before, run(status=Status.SUCCEEDED), Result.RETURNED, began, ended)], NOW)

    line = minutes(sums)

    assert [counts.of("added") for counts in line] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert [counts.of("started") for counts in line] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert [counts.of("succeeded") for counts in line] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert (line[3].waited.number, line[3].waited.total) == (1, 3 * SECOND)
    assert (line[5].took.number, line[5].took.total) == (1, 2 * MINUTE_US)
    assert not sums


def test_every_way_to_end_is_counted_by_its_name() -> None:
    sums = MetricSums()
    before = run(started_at=NOW, run_at=NOW)
    back = {"status": Status.PENDING}
    sums.settled(
        [
            settled(before, run(status=Status.FAILED), Result.RAISED, NOW, NOW),
            settled(before, run(status=Status.BROKEN), Result.RAISED, NOW, NOW),
            settled(before, run(status=Status.CANCELLED), Result.CANCELLED),
            settled(before, run(status=Status.MISSED), Result.LATE),
            settled(before, run(failures=1, **back), Result.RAISED, NOW, NOW),
            settled(before, run(crashes=1, **back), Result.RAISED, NOW, NOW),
            settled(before, run(interruptions=1, **back), Result.INTERRUPTED),
            settled(before, run(**back), Result.UNSTARTED),
            settled(before, run(**back), Result.RAISED, NOW, NOW),  # it asked to be called again
            (*settled(before, run(status=Status.FAILED), Result.RAISED)[:2], False),
        ],
        NOW,
    )
    sums.missed(before, 7, NOW)
    counts = minutes(sums)[5]
    said = {name: counts.of(name) for name in ("failed", "cancelled", "missed", "retried", "interrupted", "started")}
    assert said == {"failed": 2, "cancelled": 1, "missed": 8, "retried": 1, "interrupted": 2, "started": 5}


def test_follow_ups_are_added_and_each_subject_has_a_tally_at_each_level() -> None:
    sums = MetricSums()
    report, outcome, _ = settled(run(job_id="nightly"), run(job_id="nightly", status=Status.SUCCEEDED), Result.RETURNED)
    follower = Run(id="f", call=Call("shop:bill"), queue="money")
    sums.settled([(report, Outcome(outcome.run, Condition.HELD, (follower,)), True)], NOW)

    tallies = sums.take()

    subjects = {("all", ""), ("queue", "mail"), ("queue", "money"), ("task", "shop:send"), ("task", "shop:bill")}
    subjects.add(("job", "nightly"))
    assert {(each.kind, each.name, each.level) for each in tallies} == {(*one, n) for one in subjects for n in range(3)}
    for each in tallies:
        assert each.at == NOW // LEVELS[each.level].stretch * LEVELS[each.level].stretch


def test_sums_that_could_not_be_handed_over_are_not_lost() -> None:
    sums = MetricSums()
    sums.added([run()], NOW)
    tallies = sums.take()
    sums.added([run()], NOW)
    sums.put_back(tallies)
    assert sums
    assert minutes(sums)[5].of("added") == 2


def test_the_number_of_keys_has_a_bound_and_nothing_is_lost() -> None:
    sums = MetricSums()
    most = 2 * MOST_KEYS
    sums.added([Run(id="r", call=Call(f"shop:task{number}"), queue="mail") for number in range(most + 50)], NOW)
    tallies = [each for each in sums.take() if each.level == 0]
    tasks = {each.name: sum(each.cells.values()) for each in tallies if each.kind == "task"}
    assert len(tasks) == most + 1
    assert tasks[""] == 50
    assert sum(tasks.values()) == most + 50


def test_runs_of_too_many_jobs_still_count_for_their_queue_and_task() -> None:
    sums = MetricSums()
    sums.added([run(job_id=f"job{number}") for number in range(MOST_KEYS + 50)], NOW)
    counted = {(each.kind, each.name): sum(each.cells.values()) for each in sums.take() if each.level == 0}
    assert counted["queue", "mail"] == counted["task", "shop:send"] == MOST_KEYS + 50
    assert counted["job", "job0"] == 1
    assert counted["job", ""] == 50


def test_calls_without_a_job_count_for_their_queue_and_task_beside_too_many_jobs() -> None:
    sums = MetricSums()
    sums.added([run(job_id=f"job{number}") for number in range(MOST_KEYS + 50)], NOW)
    sums.added([Run(id="r", call=Call("shop:other"), queue="other")], NOW)
    counted = {(each.kind, each.name): sum(each.cells.values()) for each in sums.take() if each.level == 0}
    assert counted["queue", "other"] == counted["task", "shop:other"] == 1


def test_a_forked_child_does_not_hand_over_what_its_parent_counted() -> None:
    sums = MetricSums()
    sums.added([run()], NOW)
    child = os.fork()
    if not child:
        sums.added([run()], NOW)
        os._exit(minutes(sums)[5].of("added"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert minutes(sums)[5].of("added") == 1


lengths = st.lists(st.integers(0, 4 * HOUR_US), min_size=1, max_size=60)


@given(lengths)
def test_a_percentile_lies_in_the_bucket_of_the_exact_one(found: list[int]) -> None:
    buckets = [0] * (len(BUCKETS) + 1)
    for length in found:
        buckets[bisect_left(BUCKETS, length)] += 1
    spread = Spread(len(found), sum(found), tuple(buckets))
    exact = sorted(found)[-(-len(found) * 95 // 100) - 1]
    said = spread.percentile(0.95)
    assert said is not None
    place = bisect_left(BUCKETS, exact)
    assert (BUCKETS[place - 1] if place else 0) <= said
    assert place == len(BUCKETS) or said <= BUCKETS[place]


@given(st.dictionaries(st.integers(0, 4000), st.integers(0, 2**53)), st.dictionaries(st.integers(0, 4000), st.just(3)))
def test_cells_survive_packing_and_adding(one: dict[int, int], two: dict[int, int]) -> None:
    assert unpack_cells(pack_cells(one)) == one
    both = add_cells(dict(one), two)
    assert sum(both.values()) == sum(one.values()) + sum(two.values())


def test_cells_that_somebody_altered_are_empty() -> None:
    for altered in (b"", b"\xc1", b"\x93\x01", "text", None, b"\x92\x01\xa1x"):
        assert unpack_cells(altered) == {}


def test_a_chart_takes_the_finest_level_that_goes_back_far_enough() -> None:
    def level(ago: int, step: int) -> int:
        return level_for(NOW - ago, step, NOW)

    assert level(HOUR_US, MINUTE_US) == 0
    assert level(DAY_US, 15 * MINUTE_US) == 0
    assert level(7 * DAY_US, 15 * MINUTE_US) == 1
    assert level(7 * DAY_US, 2 * HOUR_US) == 1
    assert level(300 * DAY_US, HOUR_US) == 2
    assert level(HOUR_US, DAY_US) == 2


def test_a_series_has_a_place_for_each_step() -> None:
    start = NOW - NOW % HOUR_US
    tallies = [
        Tally("queue", "mail", 0, start, {3: 1, 64 * 59 + 3: 2}),
        Tally("queue", "mail", 0, start + HOUR_US, {3: 4}),
        Tally("queue", "bulk", 0, start, {3: 5}),
        Tally("queue", "bulk", 0, start - HOUR_US, {3: 9}),
    ]
    found = series(tallies, start, start + 3 * HOUR_US, HOUR_US)
    failed = {name: [counts.of("failed") for counts in line] for name, line in found.items()}
    assert failed == {"mail": [3, 4, 0], "bulk": [5, 0, 0]}


def test_a_failure_counts_under_its_type_and_place() -> None:
    sums = MetricSums()
    trace = 'Traceback:\n  File "/app/shop/mail.py", line 3, in send\n    go()\nValueError: no\n'
    failed = run(status=Status.FAILED, failures=1, errors=(Error("ValueError", "no", trace, NOW, 1),))
    sums.settled([settled(run(), failed, Result.RAISED, NOW - SECOND, NOW)], NOW)
    assert minutes(sums, "error", "ValueError\nmail.py:send")[5].of("failed") == 1


def test_a_run_that_was_taken_from_a_silent_node_counts_as_lost_with_it() -> None:
    sums = MetricSums()
    before = run(status=Status.RUNNING, node="host:1:a", attempt=1, started_at=NOW - SECOND)
    sums.settled([(Report(before, Result.INTERRUPTED, finished_at=NOW), recover(before, NOW), True)], NOW)
    assert sum(minutes(sums, "lost", "host:1:a")[5].events) == 1
