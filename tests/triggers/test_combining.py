"""`and` and `or`: the instants that triggers share, and those of any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.combining import AndTrigger as PeerAnd
from apscheduler.triggers.combining import OrTrigger as PeerOr
from apscheduler.triggers.cron import CronTrigger as PeerCron

from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.combining import AndTrigger, OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import MAX_INSTANT
from tests.triggers.oracle import DAY, HOUR, MINUTE, SECOND, shown, us, walk

JUNE = us("2026-06-01")


def cron(**fields: str | int) -> CronTrigger:
    return CronTrigger(**fields, timezone="UTC")  # type: ignore[arg-type]


class TestBoth:
    def test_the_first_fire_is_apscheduler_s(self) -> None:
        fields = {"month": "5-8", "day": "6-15"}, {"month": "6-9", "day": "*/3"}
        now = datetime(2017, 8, 6, tzinfo=UTC)
        for kind, peer_kind in (AndTrigger, PeerAnd), (OrTrigger, PeerOr):
            trigger, peer = kind([cron(**f) for f in fields]), peer_kind([PeerCron(**f, timezone=UTC) for f in fields])
            assert trigger.get_next_fire_time(None, now) == peer.get_next_fire_time(None, now)

    def test_are_shown_with_their_triggers(self) -> None:
        triggers = [cron(hour=1), cron(hour=2)]
        assert str(AndTrigger(triggers)) == "and[cron[hour='1'], cron[hour='2']]"
        assert repr(OrTrigger(triggers, jitter=5)) == (
            "<OrTrigger([<CronTrigger (hour='1', timezone='UTC')>,"
            " <CronTrigger (hour='2', timezone='UTC')>], jitter=5)>"
        )

    @pytest.mark.parametrize("kind", [AndTrigger, OrTrigger])
    def test_need_a_trigger(self, kind: type[AndTrigger | OrTrigger]) -> None:
        with pytest.raises(ValueError, match="needs one trigger at least"):
            kind([])
        with pytest.raises(TypeError, match="combines trigger objects, not 'cron'"):
            kind(["cron"])  # type: ignore[list-item]

    def test_take_the_zone_of_the_first_trigger(self) -> None:
        trigger = OrTrigger([CronTrigger(hour=1, timezone="Asia/Tokyo"), cron(hour=1)])
        assert str(trigger.timezone) == "Asia/Tokyo"

    def test_take_the_largest_jitter_of_their_triggers_unless_they_have_one(self) -> None:
        triggers = [cron(hour=1), *(CronTrigger(hour=2, jitter=jitter, timezone="UTC") for jitter in (3, 7))]
        assert OrTrigger(triggers).jitter == 7
        assert OrTrigger(triggers, jitter=2).jitter == 2
        assert OrTrigger([cron(hour=1)]).jitter is None

    def test_delay_by_their_jitter(self) -> None:
        trigger = OrTrigger([cron(hour=1)])
        trigger.jitter = 5
        now = datetime(2026, 6, 1, tzinfo=UTC)
        fires = {trigger.get_next_fire_time(None, now) for _ in range(50)}
        assert len(fires) > 1
        assert all(
            fire is not None and timedelta(0) <= fire - now - timedelta(hours=1) <= timedelta(seconds=5)
            for fire in fires
        )


class TestAnd:
    def test_fires_at_the_instants_that_all_share(self) -> None:
        trigger = AndTrigger([cron(hour="*/4"), cron(hour="*/6"), cron(day="1-2", hour="*")])
        assert [(fire - JUNE) // HOUR for fire in walk(trigger, JUNE, JUNE + 28 * DAY)] == [0, 12, 24, 36]

    def test_goes_on_after_a_fire(self) -> None:
        trigger = AndTrigger([cron(minute="*/7"), cron(minute="*/5")])
        assert trigger.next_fire(JUNE, JUNE) == JUNE + 35 * MINUTE

    def test_intervals_meet_where_their_grids_do(self) -> None:
        start = datetime(2026, 6, 1, tzinfo=UTC)
        trigger = AndTrigger(
            [IntervalTrigger(minutes=7, start_date=start), IntervalTrigger(minutes=11, start_date=start)]
        )
        assert [(fire - JUNE) // MINUTE for fire in walk(trigger, JUNE + 1, JUNE + 240 * MINUTE)] == [77, 154, 231]

    def test_is_finished_when_one_of_them_is(self) -> None:
        trigger = AndTrigger([cron(hour=1), CronTrigger(hour=1, end_date="2026-06-02", timezone="UTC")])
        assert len(walk(trigger, JUNE, JUNE + 30 * DAY)) == 1

    def test_triggers_that_never_meet_come_to_an_end(self) -> None:
        half = IntervalTrigger(seconds=1, start_date=datetime(2026, 6, 1, 0, 0, 0, 500_000, tzinfo=UTC))
        assert AndTrigger([half, cron(second="*")]).next_fire(None, JUNE) is None
        assert AndTrigger([cron(month=2, day=30), cron(second="*")]).next_fire(None, JUNE) is None

    def test_combinations_inside_one_share_its_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = 0
        real = IntervalTrigger.first_fire

        def first_fire(trigger: IntervalTrigger, instant: int) -> int | None:
            nonlocal asked
            asked += 1
            return real(trigger, instant)

        monkeypatch.setattr(IntervalTrigger, "first_fire", first_fire)
        even, odd = (IntervalTrigger(seconds=2, start_date=f"2026-06-01 00:00:0{n}", timezone="UTC") for n in (0, 1))
        never = AndTrigger([even, odd])
        assert AndTrigger([OrTrigger([even, never]), OrTrigger([odd, never])]).next_fire(JUNE, JUNE) is None
        assert asked <= 10_000

    def test_a_meeting_may_be_far_away_but_not_a_hundred_years_from_the_first_try(self) -> None:
        start = CronTrigger(month=2, day=29, start_date="2400-01-01", timezone="UTC")
        trigger = AndTrigger([cron(day_of_week="sun", hour=0), start])
        assert shown(trigger.next_fire(None, JUNE)) == "2404-02-29 00:00:00+00:00"
        assert AndTrigger([cron(year="2027,2200"), cron(year="2028,2200")]).next_fire(None, JUNE) is None

    def test_a_past_date_alone_is_still_due(self) -> None:
        trigger = AndTrigger([DateTrigger(datetime(2026, 5, 1, tzinfo=UTC))])
        assert shown(trigger.next_fire(None, JUNE)) == "2026-05-01 00:00:00+00:00"
        assert trigger.next_fire(us("2026-05-01"), JUNE) is None


class TestOr:
    def test_fires_whenever_any_of_them_does_and_once_if_several_do(self) -> None:
        trigger = OrTrigger([cron(hour="*/8"), cron(hour="*/12"), DateTrigger(datetime(2026, 6, 1, 5, tzinfo=UTC))])
        assert [(fire - JUNE) // HOUR for fire in walk(trigger, JUNE, JUNE + DAY)] == [0, 5, 8, 12, 16, 24]

    def test_every_one_of_several_dates_fires(self) -> None:
        trigger = OrTrigger([DateTrigger(datetime(2026, 6, day, tzinfo=UTC)) for day in (3, 1, 2)])
        assert [(fire - JUNE) // DAY for fire in walk(trigger, 0, MAX_INSTANT)] == [0, 1, 2]

    def test_a_past_date_is_still_due(self) -> None:
        trigger = OrTrigger([DateTrigger(datetime(2026, 5, 1, tzinfo=UTC)), cron(hour=1)])
        assert trigger.next_fire(None, JUNE) == us("2026-05-01")
        assert trigger.next_fire(us("2026-05-01"), JUNE) == us("2026-05-01 01:00")

    def test_intervals_keep_to_their_own_grid(self) -> None:
        interval = IntervalTrigger(minutes=25, start_date=datetime(2026, 6, 1, tzinfo=UTC))
        trigger = OrTrigger([interval, cron(minute=30)])
        assert [(fire - JUNE) // MINUTE for fire in walk(trigger, JUNE, JUNE + 100 * MINUTE)] == [
            0,
            25,
            30,
            50,
            75,
            90,
            100,
        ]

    def test_is_finished_when_all_are(self) -> None:
        ended = CronTrigger(hour=1, end_date="2026-01-01", timezone="UTC")
        assert OrTrigger([ended, ended]).next_fire(None, JUNE) is None

    def test_nests(self) -> None:
        triggers: list[BaseTrigger] = [
            AndTrigger([cron(hour=3), cron(day_of_week="mon", hour="*")]),
            CalendarIntervalTrigger(weeks=1, hour=4, start_date="2026-06-03", timezone="UTC"),
        ]
        trigger = OrTrigger(triggers)
        assert [shown(fire) for fire in walk(trigger, JUNE, JUNE + 9 * DAY)] == [
            "2026-06-01 03:00:00+00:00",
            "2026-06-03 04:00:00+00:00",
            "2026-06-08 03:00:00+00:00",
        ]

    def test_a_second_of_ten_years_is_no_walk(self) -> None:
        trigger = OrTrigger([cron(second="*"), cron(hour=1)])
        first = us("2016-06-01")
        count, fires = trigger.overdue(first, JUNE, 3)
        assert count == (JUNE - first) // SECOND + 1
        assert fires == [JUNE - 2 * SECOND, JUNE - SECOND, JUNE]


class Watched(IntervalTrigger):
    """Counts how often it is asked."""

    looks = 0

    def next_fire(self, previous: int | None, now: int) -> int | None:
        Watched.looks += 1
        return super().next_fire(previous, now)


def watched(seconds: int, offset: int = 0) -> Watched:
    return Watched(seconds=seconds, start_date=datetime(2026, 1, 1, 0, 0, offset, tzinfo=UTC))


@pytest.fixture
def looks() -> Iterator[Callable[[], int]]:
    Watched.looks = 0
    yield lambda: Watched.looks
    Watched.looks = 0


def nested(combine: Callable[[list[BaseTrigger]], BaseTrigger], depth: int) -> BaseTrigger:
    trigger: BaseTrigger = watched(2)
    for _ in range(depth):
        trigger = combine([trigger, watched(2, 1)])
    return trigger


NOW = 1_770_000_000_000_000


@pytest.mark.parametrize("previous", [None, NOW])
def test_nested_triggers_that_never_meet_cost_one_budget(looks: Callable[[], int], previous: int | None) -> None:
    assert nested(AndTrigger, 50).next_fire(previous, NOW) is None
    assert looks() <= 10_100


@pytest.mark.parametrize("combine", [AndTrigger, OrTrigger])
def test_a_trigger_that_is_in_many_places_costs_one_budget(
    looks: Callable[[], int], combine: Callable[[list[BaseTrigger]], BaseTrigger]
) -> None:
    trigger: BaseTrigger = watched(2)
    for _ in range(40):
        trigger = combine([trigger, trigger])
    trigger.next_fire(None, NOW)
    assert looks() <= 20_100


def test_counting_the_fires_of_nested_alternatives_asks_each_a_few_times(looks: Callable[[], int]) -> None:
    assert nested(OrTrigger, 50).overdue(NOW, NOW + MINUTE, 3) == (
        61,
        [NOW + MINUTE - n * 1_000_000 for n in (2, 1, 0)],
    )
    assert looks() <= 500


def test_counting_fires_that_are_hard_to_find_is_bounded(looks: Callable[[], int]) -> None:
    trigger = AndTrigger([watched(4001), watched(3989)])
    first = trigger.next_fire(NOW, NOW)
    assert first is not None
    Watched.looks = 0
    count, fires = trigger.overdue(first, first + 100 * 366 * 86_400_000_000, 3)
    assert count > 1
    assert len(fires) == 3
    assert looks() <= 100_100


def test_an_alternative_of_past_dates_begins_with_the_first() -> None:
    dates = [DateTrigger(datetime(2026, 1, day, tzinfo=UTC)) for day in (2, 1)]
    assert OrTrigger([OrTrigger(dates), watched(2)]).next_fire(None, NOW) == dates[1].next_fire(None, NOW)
    assert AndTrigger([OrTrigger(dates), dates[1]]).next_fire(None, NOW) == dates[1].next_fire(None, NOW)
