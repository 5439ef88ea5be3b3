"""A trigger as plain data, pickled, copied, compared: always the same trigger again."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil import tz as dateutil_tz
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import PluginNotFound
from mainspring.triggers import (
    AndTrigger,
    BaseTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
    trigger_class,
    trigger_from_data,
)
from tests.triggers.oracle import thoroughly, us
from tests.triggers.test_calendarinterval import lengths
from tests.triggers.test_cron_next import expressions

zones = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "UTC+05:30", "Etc/GMT+5"])
moments = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1))
jitters = st.one_of(st.none(), st.integers(0, 100), st.floats(0, 100, allow_nan=False))
dates = st.builds(DateTrigger, moments, zones)
intervals = st.builds(
    IntervalTrigger,
    seconds=st.one_of(st.integers(1, 10**6), st.floats(0.001, 10**6)),
    start_date=moments,
    end_date=st.one_of(st.none(), st.just(datetime(2200, 1, 1))),
    timezone=zones,
    jitter=jitters,
)
crons = st.builds(
    lambda fields, start, zone, jitter, either: CronTrigger(
        **fields, start_date=start, timezone=zone, jitter=jitter, either_day=either
    ),
    expressions,
    st.one_of(st.none(), moments),
    zones,
    jitters,
    st.booleans(),
)
calendars = st.builds(
    lambda length, start, zone, hour, jitter: CalendarIntervalTrigger(
        **length, start_date=start.date(), end_date="2200-01-01", timezone=zone, hour=hour, jitter=jitter
    ),
    lengths,
    moments,
    zones,
    st.integers(0, 23),
    jitters,
)
leaves: st.SearchStrategy[BaseTrigger] = st.one_of(dates, intervals, crons, calendars)
triggers = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda kind, parts, jitter: kind(parts, jitter),
        st.sampled_from([AndTrigger, OrTrigger]),
        st.lists(inner, min_size=1, max_size=3),
        jitters,
    ),
    max_leaves=5,
)


def is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


class TestRoundTrips:
    @thoroughly
    @given(triggers)
    def test_through_plain_data(self, trigger: BaseTrigger) -> None:
        data = trigger.to_data()
        assert is_plain(data)
        restored = trigger_from_data(data)
        assert restored == trigger
        assert hash(restored) == hash(trigger)
        assert repr(restored) == repr(trigger)
        assert restored.to_data() == data

    @thoroughly
    @given(triggers)
    def test_through_json(self, trigger: BaseTrigger) -> None:
        assert trigger_from_data(json.loads(json.dumps(trigger.to_data()))) == trigger

    @thoroughly
    @given(triggers, st.integers(0, pickle.HIGHEST_PROTOCOL))
    def test_through_pickle_and_copy(self, trigger: BaseTrigger, protocol: int) -> None:
        assert pickle.loads(pickle.dumps(trigger, protocol)) == trigger
        assert copy.copy(trigger) == trigger
        assert copy.deepcopy(trigger) == trigger

    @thoroughly
    @given(triggers)
    def test_keep_the_fires(self, trigger: BaseTrigger) -> None:
        restored, now = trigger_from_data(trigger.to_data()), us("2026-06-01")
        assert restored.next_fire(None, now) == trigger.next_fire(None, now)
        assert restored.next_fire(now, now) == trigger.next_fire(now, now)

    def test_through_getstate_and_setstate(self) -> None:
        trigger = CronTrigger(hour=9, timezone="Europe/Berlin", jitter=5)
        other = CronTrigger.__new__(CronTrigger)
        other.__setstate__(trigger.__getstate__())
        assert other == trigger

    def test_with_a_zone_that_has_no_name_through_pickle(self) -> None:
        rule = dateutil_tz.tzstr("CET-1CEST,M3.5.0,M10.5.0/3")
        trigger = IntervalTrigger(hours=1, start_date="2026-01-01", timezone=rule)
        assert pickle.loads(pickle.dumps(trigger)) == trigger

    def test_a_crontab_keeps_its_either_day(self) -> None:
        trigger = CronTrigger.from_crontab("0 0 13 * 5", "UTC")
        assert trigger.to_data() == {
            "type": "cron",
            "fields": {"month": "*", "day": "13", "day_of_week": "fri", "hour": "0", "minute": "0"},
            "either_day": True,
            "start_date": None,
            "end_date": None,
            "timezone": "UTC",
            "jitter": None,
        }
        assert trigger_from_data(trigger.to_data()) == trigger


class TestValues:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (IntervalTrigger(seconds=1, start_date="2026-01-01", timezone="UTC"),
             IntervalTrigger(seconds=1, start_date="2026-01-02", timezone="UTC")),
            (IntervalTrigger(seconds=1, start_date="2026-01-01", timezone="UTC"),
             IntervalTrigger(seconds=1, start_date="2026-01-01", timezone="UTC", jitter=1)),
            (CronTrigger(hour=1, timezone="UTC"), CronTrigger(hour=2, timezone="UTC")),
            (CronTrigger(hour=1, timezone="UTC"), CronTrigger(hour=1, timezone="Europe/London")),
            (CronTrigger(hour=1, timezone="UTC"), CronTrigger(hour=1, timezone="UTC", end_date="2030-01-01")),
            (DateTrigger("2026-01-01", "UTC"), DateTrigger("2026-01-02", "UTC")),
            (AndTrigger([CronTrigger(hour=1, timezone="UTC")]), OrTrigger([CronTrigger(hour=1, timezone="UTC")])),
            (CalendarIntervalTrigger(days=1, start_date="2026-01-01", timezone="UTC"),
             CalendarIntervalTrigger(days=1, start_date="2026-01-01", timezone="UTC", hour=1)),
        ],
    )  # fmt: skip
    def test_that_differ_in_anything_are_not_equal(self, one: BaseTrigger, other: BaseTrigger) -> None:
        assert one != other
        assert len({one, other}) == 2

    def test_are_not_equal_to_other_things(self) -> None:
        assert CronTrigger(hour=1, timezone="UTC") != "cron"

    def test_are_small(self) -> None:
        for trigger in CronTrigger(hour=1, timezone="UTC"), IntervalTrigger(seconds=1, timezone="UTC"):
            assert not hasattr(trigger, "__dict__")

    def test_keep_fixed_offsets_with_another_name(self) -> None:
        named = timezone(timedelta(hours=-5), "EST")
        trigger = CronTrigger(hour=1, timezone=named)
        assert trigger_from_data(trigger.to_data()) == trigger


class TestDamage:
    @pytest.mark.parametrize("data", [None, "cron", {}, {"type": 5}, []])
    def test_data_without_a_type_is_an_error(self, data: Any) -> None:
        with pytest.raises(ValueError, match="names no type"):
            trigger_from_data(data)

    def test_an_unknown_type_is_an_error_with_near_names(self) -> None:
        with pytest.raises(PluginNotFound, match="no trigger is called 'crom'; did you mean 'cron'"):
            trigger_from_data({"type": "crom"})

    @pytest.mark.parametrize(
        ("type_", "data", "message"),
        [
            ("cron", {}, r"type 'cron' are damaged \(KeyError: 'fields'\)"),
            ("cron", {"fields": None}, "type 'cron' are damaged"),
            ("cron", {"fields": {"hour": 9}}, "not cron fields"),
            ("cron", {"fields": {"hour": "99"}}, "'99' is above 23"),
            ("cron", {"fields": {"hours": "9"}}, "not cron fields"),
            ("cron", {"fields": {}, "timezone": "Nowhere"}, "no time zone is called 'Nowhere'"),
            ("cron", {"fields": {}, "timezone": None}, "timezone is not a name: None"),
            ("cron", {"fields": {}, "end_date": "soon"}, "end_date is not an instant"),
            ("interval", {"interval": "x", "start_date": 0}, "interval is not a number of microseconds: 'x'"),
            ("interval", {"interval": 0, "start_date": 0}, "interval is not a number of microseconds: 0"),
            ("interval", {"interval": 5}, "start_date is not an instant in microseconds since 1970: None"),
            ("interval", {"interval": 5, "start_date": 10**20}, "start_date is not an instant"),
            ("interval", {"interval": 5, "start_date": 0, "jitter": "much"}, "jitter is a number of seconds"),
            ("interval", {"interval": 5, "start_date": 0, "jitter": -1}, "jitter is a number of seconds"),
            ("date", {}, "run_date is not an instant"),
            ("date", {"run_date": "today"}, "run_date is not an instant"),
            ("date", {"run_date": True}, "run_date is not an instant"),
            ("calendarinterval", {"interval": [1, 2]}, "not enough values"),
            ("calendarinterval", {"interval": [0] * 4}, "a day at least"),
            ("calendarinterval", {"time": [0, 99, 0]}, "minute must be in"),
            ("calendarinterval", {"start_date": 5}, "type 'calendarinterval' are damaged"),
            ("or", {"triggers": []}, "OrTrigger needs one trigger at least"),
            ("and", {"triggers": [{"type": "date", "timezone": "UTC"}]}, "run_date is not an instant"),
            ("and", {}, "type 'and' are damaged"),
        ],
    )
    def test_damaged_data_are_a_value_error(self, type_: str, data: dict[str, Any], message: str) -> None:
        sound: dict[str, Any] = {"type": type_, "timezone": "UTC"}
        if type_ == "calendarinterval":
            sound |= {"interval": [0, 0, 0, 1], "time": [0, 0, 0], "start_date": "2026-01-01"}
        with pytest.raises(ValueError, match=message):
            trigger_from_data(sound | data)


class TestAliases:
    @pytest.mark.parametrize(
        ("alias", "cls"),
        [
            ("date", DateTrigger),
            ("interval", IntervalTrigger),
            ("cron", CronTrigger),
            ("calendarinterval", CalendarIntervalTrigger),
            ("and", AndTrigger),
            ("or", OrTrigger),
        ],
    )
    def test_name_the_classes(self, alias: str, cls: type[BaseTrigger]) -> None:
        assert trigger_class(alias) is cls
        assert cls.alias == alias

    def test_an_unknown_name_is_no_attribute(self) -> None:
        import mainspring.triggers

        with pytest.raises(AttributeError, match="SolarTrigger"):
            mainspring.triggers.SolarTrigger  # noqa: B018

    def test_times_of_utc_are_shown_alike_after_a_round_trip(self) -> None:
        trigger = DateTrigger(datetime(2026, 6, 1, tzinfo=ZoneInfo("UTC")))
        restored = trigger_from_data(trigger.to_data())
        assert str(restored) == str(trigger) == "date[2026-06-01 00:00:00 UTC]"
        assert restored.timezone is UTC
