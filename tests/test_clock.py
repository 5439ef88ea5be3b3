"""Instants and datetimes; a store's time without asking for it each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mainspring.clock import StoreTime
from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.testing.clock import VirtualClock
from mainspring.triggers.zones import zone_of

BERLIN = ZoneInfo("Europe/Berlin")
AHEAD = 7 * SECOND


class Store:
    """Its clock is ahead of this machine's; it takes its time to answer."""

    def __init__(self, clock: VirtualClock, takes: float = 0.0) -> None:
        self._clock, self.takes = clock, takes
        self.asked = 0

    def time(self) -> int:
        self.asked += 1
        told = self._clock.now() + AHEAD
        self._clock.advance(self.takes)
        return told


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class TestStoreTime:
    def test_it_is_asked_for_once_and_goes_on_with_the_monotonic_clock(self, clock: VirtualClock) -> None:
        store = Store(clock)
        time = StoreTime(store.time, clock)
        for _ in range(3):
            assert time.now() == clock.now() + AHEAD
            clock.advance(86_400)
        assert store.asked == 1

    def test_it_is_asked_for_again_when_what_is_known_is_too_old(self, clock: VirtualClock) -> None:
        store = Store(clock)
        time = StoreTime(store.time, clock, trusted=60.0)
        time.now()
        clock.advance(59.9)
        time.now()
        assert store.asked == 1
        clock.advance(0.1)
        assert time.now() == clock.now() + AHEAD
        assert store.asked == 2

    def test_a_first_answer_that_waited_for_the_store_to_open_is_asked_for_again(self, clock: VirtualClock) -> None:
        store = Store(clock, takes=0.8)

        def ask() -> int:
            told = store.time()
            store.takes = 0.001
            return told

        time = StoreTime(ask, clock, trusted=60.0)
        time.now()
        assert (round(time.slack, -1), store.asked) == (1000, 2)
        clock.advance(60)
        time.now()
        assert (round(time.slack, -1), store.asked) == (1000, 3)

    def test_an_answer_that_came_late_does_not_replace_a_better_one(self, clock: VirtualClock) -> None:
        time = StoreTime(Store(clock).time, clock)
        time.now()
        asked, told = clock.monotonic(), clock.now() + AHEAD
        clock.advance(5)
        time.observe(told, asked)
        assert (time.now(), time.slack) == (clock.now() + AHEAD, 0)

    @pytest.mark.parametrize("jump", [-3600, -1, 6, 3600])
    def test_an_answer_that_contradicts_what_was_known_replaces_it(self, clock: VirtualClock, jump: int) -> None:
        time = StoreTime(Store(clock).time, clock)
        time.now()
        asked, told = clock.monotonic(), clock.now() + AHEAD + jump * SECOND
        clock.advance(5)
        time.observe(told, asked)
        assert (time.now(), time.slack) == (told, 5 * SECOND)

    def test_an_observation_is_trusted_as_an_answer_is(self, clock: VirtualClock) -> None:
        store = Store(clock)
        time = StoreTime(store.time, clock, trusted=60.0)
        time.observe(clock.now() + AHEAD, clock.monotonic())
        clock.advance(59.9)
        assert time.now() == clock.now() + AHEAD
        assert store.asked == 0

    def test_it_is_behind_by_at_most_its_slack_and_never_ahead(self, clock: VirtualClock) -> None:
        store = Store(clock, takes=2.0)
        time = StoreTime(store.time, clock)
        assert time.now() == clock.now() + AHEAD - time.slack
        assert time.slack == 2 * SECOND

    def test_a_store_that_does_not_answer_leaves_nothing_behind(self, clock: VirtualClock) -> None:
        store, down = Store(clock), True

        def ask() -> int:
            if down:
                raise ConnectionError("gone")
            return store.time()

        time = StoreTime(ask, clock)
        with pytest.raises(ConnectionError):
            time.now()
        down = False
        assert time.now() == clock.now() + AHEAD


class TestInstants:
    @pytest.mark.parametrize(
        "moment",
        [
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 0, 0, 123_457, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1901, 1, 1, tzinfo=BERLIN),
            datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
            datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    )
    def test_a_datetime_comes_back_from_its_instant(self, moment: datetime) -> None:
        us = to_us(moment)
        assert us == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        back = from_us(us, moment.tzinfo or UTC)
        assert (back.isoformat(), back.tzinfo) == (moment.isoformat(), moment.tzinfo)
        assert from_us(us).isoformat() == moment.astimezone(UTC).isoformat()

    def test_a_naive_datetime_is_read_in_the_zone(self) -> None:
        zone = zone_of(BERLIN)
        assert from_us(to_us(datetime(2026, 7, 1, 12), zone)) == datetime(2026, 7, 1, 10, tzinfo=UTC)
        assert from_us(to_us(datetime(2026, 10, 25, 2, 30), zone)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        assert from_us(to_us(datetime(2026, 10, 25, 2, 30, fold=1), zone)) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)

    def test_a_naive_datetime_without_a_zone_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has no time zone"):
            to_us(datetime(2026, 7, 1, 12))
