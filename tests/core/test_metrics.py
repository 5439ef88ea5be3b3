"""Counters that outlive runs: sums, percentiles, and what thinning keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.insight.metrics import (
    BUCKETS,
    DAY_US,
    HOUR_US,
    MINUTE_US,
    MOST_KEYS,
    OTHER,
    Counts,
    MetricKey,
    MetricsRow,
    MetricSums,
    Spread,
    merged,
    series,
    thinned,
)
from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Run, Status

KEY = MetricKey("mail", "shop:send")
NOW = 2_000 * DAY_US + 5 * HOUR_US + 7 * MINUTE_US


def run(**fields: object) -> Run:
    return Run(id="r", call=Call("shop:send"), queue="mail", **fields)  # type: ignore[arg-type]


def test_a_node_sums_up_what_happens_in_a_minute() -> None:
    sums = MetricSums()
    sums.count("added", run(), NOW)
    sums.start(run(run_at=NOW - 2 * SECOND), NOW)
    sums.end(run(status=Status.SUCCEEDED, started_at=NOW), NOW + 3 * SECOND)
    sums.end(run(status=Status.PENDING, failures=1, started_at=NOW), NOW + SECOND)
    sums.end(run(status=Status.PENDING, started_at=NOW), NOW + SECOND)

    (row,) = sums.take()

    assert (row.at, row.step, row.key) == (NOW - NOW % MINUTE_US, MINUTE_US, KEY)
    assert [row.counts.of(event) for event in ("added", "started", "succeeded", "retried", "interrupted")] == [1] * 5
    assert (row.counts.waited.number, row.counts.waited.total) == (1, 2 * SECOND)
    assert (row.counts.took.number, row.counts.took.total) == (2, 4 * SECOND)
    assert len(sums) == 0


def test_sums_that_could_not_be_handed_over_are_not_lost() -> None:
    sums = MetricSums()
    sums.count("added", run(), NOW)
    rows = sums.take()
    sums.count("added", run(), NOW)
    sums.put_back(rows)
    assert sums.take()[0].counts.of("added") == 2


def test_the_number_of_keys_has_a_bound() -> None:
    sums = MetricSums()
    for number in range(MOST_KEYS + 50):
        sums.count("added", Run(id="r", call=Call(f"shop:task{number}"), queue="mail"), NOW)
    rows = sums.take()
    assert len(rows) == MOST_KEYS + 1
    assert sum(row.counts.of("added") for row in rows) == MOST_KEYS + 50
    assert next(row for row in rows if row.key.task == OTHER).counts.of("added") == 50


lengths = st.lists(st.integers(0, 4 * HOUR_US), min_size=1, max_size=60)


@given(lengths)
def test_a_percentile_is_at_most_one_bucket_too_long(found: list[int]) -> None:
    spread = Spread()
    for length in found:
        spread = spread.with_length(length)
    exact = sorted(found)[-(-len(found) * 95 // 100) - 1]
    said = spread.percentile(0.95)
    assert said is not None
    if exact <= BUCKETS[-1]:
        assert exact <= said <= max(BUCKETS[0], int(exact * 2.2) + 2)
    else:
        assert said >= BUCKETS[-1]


rows_strategy = st.lists(
    st.builds(
        lambda ago, queue, number: MetricsRow(
            (NOW - ago) // MINUTE_US * MINUTE_US,
            MINUTE_US,
            MetricKey(queue, "t"),
            Counts().with_event("failed", number),
        ),
        st.integers(0, 200 * DAY_US),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(rows_strategy, rows_strategy)
def test_the_order_of_merging_does_not_matter(one: list[MetricsRow], two: list[MetricsRow]) -> None:
    assert merged([*one, *two]) == merged([*two, *one]) == merged([*merged(one), *merged(two)])


@given(rows_strategy)
def test_thinning_loses_no_count_and_is_stable(rows: list[MetricsRow]) -> None:
    thin = thinned(rows, NOW)
    assert sum(row.counts.of("failed") for row in thin) == sum(row.counts.of("failed") for row in rows)
    assert thinned(thin, NOW) == thin
    assert thinned(thin, NOW + 100 * DAY_US) == thinned(rows, NOW + 100 * DAY_US)


def test_minutes_become_hours_and_hours_become_days() -> None:
    def at(ago: int) -> MetricsRow:
        return MetricsRow((NOW - ago) // MINUTE_US * MINUTE_US, MINUTE_US, KEY, Counts().with_event("failed"))

    steps = [row.step for row in thinned([at(HOUR_US), at(3 * DAY_US), at(200 * DAY_US)], NOW)]
    assert steps == [DAY_US, HOUR_US, MINUTE_US]


def test_a_series_has_a_place_for_each_step() -> None:
    start = NOW - NOW % HOUR_US
    rows = [
        MetricsRow(start, MINUTE_US, KEY, Counts().with_event("failed")),
        MetricsRow(start + 61 * MINUTE_US, MINUTE_US, KEY, Counts().with_event("failed", 2)),
        MetricsRow(start, MINUTE_US, MetricKey("other", "t"), Counts().with_event("failed", 5)),
    ]
    found = series(rows, start, start + 3 * HOUR_US, HOUR_US, by="queue", queue="mail")
    assert {name: [counts.of("failed") for counts in line] for name, line in found.items()} == {"mail": [1, 2, 0]}
