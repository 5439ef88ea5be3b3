"""Triggers of one's own, written for APScheduler: one method, and the rest follows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

import pytest

from mainspring import triggers as registry
from mainspring.triggers import register_trigger, trigger_class, trigger_from_data
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.combining import OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from tests.triggers.oracle import HOUR, MINUTE, shown, us, walk

JUNE = us("2026-06-01")


class OnTheHour(BaseTrigger):
    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        base = previous_fire_time + timedelta(hours=1) if previous_fire_time else now + timedelta(minutes=59)
        return base.replace(minute=0, second=0, microsecond=0)


class Weekdays(CronTrigger):
    """A built-in trigger with an exception, as people write them."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        fire = super().get_next_fire_time(previous_fire_time, now)
        while fire is not None and fire.weekday() >= 5:
            fire = super().get_next_fire_time(fire, fire)
        return fire


@pytest.fixture
def aliases() -> Iterator[None]:
    before = dict(registry._classes)
    yield
    registry._classes.clear()
    registry._classes.update(before)


class TestATriggerOfOnesOwn:
    def test_gives_the_kernel_its_instants(self) -> None:
        assert OnTheHour().next_fire(None, JUNE + MINUTE) == JUNE + HOUR
        assert OnTheHour().next_fire(JUNE + HOUR, JUNE) == JUNE + 2 * HOUR

    def test_is_asked_in_its_own_zone(self) -> None:
        class Noon(BaseTrigger):
            timezone = ZoneInfo("Asia/Tokyo")

            def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
                return now.replace(hour=12)

        assert shown(Noon().next_fire(None, JUNE)) == "2026-06-01 03:00:00+00:00"

    def test_can_be_finished(self) -> None:
        class Never(BaseTrigger):
            def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
                return None

        assert Never().next_fire(None, JUNE) is None
        assert Never().first_fire(JUNE) is None

    def test_that_returns_a_naive_time_is_told_so(self) -> None:
        class Naive(BaseTrigger):
            def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
                return datetime(2026, 6, 1)

        with pytest.raises(ValueError, match=r"Naive\.get_next_fire_time returned .* no time zone"):
            Naive().next_fire(None, JUNE)

    def test_must_have_the_method(self) -> None:
        class Empty(BaseTrigger):
            pass

        with pytest.raises(TypeError, match="get_next_fire_time"):
            Empty()  # type: ignore[abstract]

    def test_combines_with_the_others(self) -> None:
        trigger = OrTrigger([OnTheHour(), CronTrigger(minute=30, timezone="UTC")])
        assert [(fire - JUNE) // MINUTE for fire in walk(trigger, JUNE, JUNE + 2 * HOUR)] == [0, 30, 60, 90, 120]

    def test_may_delay_by_jitter(self) -> None:
        now = datetime(2026, 6, 1, tzinfo=UTC)
        delayed = OnTheHour()._apply_jitter(now, 5, now)
        assert delayed is not None
        assert timedelta(0) <= delayed - now <= timedelta(seconds=5)
        assert OnTheHour()._apply_jitter(None, 5, now) is None
        assert OnTheHour()._apply_jitter(now, None, now) is now


class TestASubclassOfABuiltInTrigger:
    def test_is_asked_for_what_it_overrides(self) -> None:
        trigger = Weekdays(hour=9, timezone="UTC")
        friday = us("2026-06-05 09:00")
        assert shown(trigger.next_fire(friday, friday)) == "2026-06-08 09:00:00+00:00"

    def test_counts_what_it_overrides(self) -> None:
        trigger = Weekdays(hour=9, timezone="UTC")
        count, fires = trigger.overdue(us("2026-06-01 09:00"), us("2026-06-09 12:00"), 2)
        assert (count, [shown(fire) for fire in fires]) == (
            7,
            ["2026-06-08 09:00:00+00:00", "2026-06-09 09:00:00+00:00"],
        )

    def test_may_override_the_instants_instead(self) -> None:
        class Later(IntervalTrigger):
            def next_fire(self, previous: int | None, now: int) -> int | None:
                fire = super().next_fire(previous, now)
                return None if fire is None else fire + MINUTE

        trigger = Later(hours=1, start_date=datetime(2026, 6, 1, tzinfo=UTC))
        now = datetime(2026, 6, 1, tzinfo=UTC)
        assert trigger.get_next_fire_time(None, now) == now + timedelta(minutes=1)

    def test_is_not_stored_as_its_parent(self) -> None:
        with pytest.raises(TypeError, match=r"test_user_triggers\.Weekdays cannot be stored: .*register_trigger"):
            Weekdays(hour=9, timezone="UTC").to_data()

    def test_is_made_by_from_crontab(self) -> None:
        assert type(Weekdays.from_crontab("0 9 * * *", "UTC")) is Weekdays


class TestStored:
    def test_without_the_methods_it_is_a_clear_error(self) -> None:
        with pytest.raises(
            TypeError,
            match=r"the trigger .*OnTheHour cannot be stored: give the class an `alias`, a `to_data` and .*`from_data`",
        ):
            OnTheHour().to_data()
        with pytest.raises(TypeError, match=r"OnTheHour has no from_data"):
            OnTheHour.from_data({})

    def test_inside_a_combination_the_error_is_the_same(self) -> None:
        with pytest.raises(TypeError, match="OnTheHour cannot be stored"):
            OrTrigger([OnTheHour()]).to_data()

    @pytest.mark.usefixtures("aliases")
    def test_with_an_alias_and_the_methods_it_comes_back(self) -> None:
        @register_trigger
        class Every(OnTheHour):
            alias = "every"

            def __init__(self, hours: int) -> None:
                self.hours = hours

            def to_data(self) -> dict[str, Any]:
                return {"type": "every", "hours": self.hours}

            @classmethod
            def from_data(cls, data: dict[str, Any]) -> Self:
                return cls(data["hours"])

        restored = trigger_from_data(OrTrigger([Every(3)]).to_data())
        assert isinstance(restored, OrTrigger)
        inner = restored.triggers[0]
        assert isinstance(inner, Every)
        assert inner.hours == 3
        assert trigger_class("every") is Every

    @pytest.mark.usefixtures("aliases")
    def test_an_alias_cannot_be_taken_over(self) -> None:
        with pytest.raises(ValueError, match=r"alias 'cron' of .*Mine is taken"):
            register_trigger(type("Mine", (OnTheHour,), {"alias": "cron"}))
        register_trigger(type("First", (OnTheHour,), {"alias": "mine"}))
        with pytest.raises(ValueError, match="is taken"):
            register_trigger(type("Second", (OnTheHour,), {"alias": "mine"}))

    def test_an_alias_is_needed(self) -> None:
        with pytest.raises(ValueError, match="OnTheHour has no `alias`"):
            register_trigger(OnTheHour)
