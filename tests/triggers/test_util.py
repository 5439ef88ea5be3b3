"""The small helpers that APScheduler's users import."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import apscheduler.util as peer
import pytest
import pytz

from mainspring import util

BERLIN = ZoneInfo("Europe/Berlin")


class TestSurface:
    def test_every_name_of_apscheduler_s_util_is_there(self) -> None:
        names = [
            *("asint", "asbool", "astimezone", "asdate", "convert_to_datetime", "datetime_to_utc_timestamp"),
            *("utc_timestamp_to_datetime", "timedelta_seconds", "datetime_ceil", "datetime_utc_add", "datetime_repr"),
            *("timezone_repr", "get_callable_name", "obj_to_ref", "ref_to_obj", "maybe_ref", "check_callable_args"),
            *("iscoroutinefunction_partial", "normalize", "localize", "undefined"),
        ]
        assert set(names) <= set(util.__all__)
        for name in names:
            assert hasattr(util, name)
            assert hasattr(peer, name)

    def test_an_unknown_name_is_no_attribute(self) -> None:
        with pytest.raises(AttributeError, match="repr_escape"):
            util.repr_escape  # noqa: B018

    def test_importing_a_trigger_imports_nothing_heavy(self) -> None:
        heavy = {
            "tzlocal",
            "msgspec",
            "mainspring.core.references",
            "mainspring.core.job",
            "random",
            "asyncio",
            "difflib",
        }
        code = (
            "import sys; sys.path[:0] = sys.argv[1:]; import mainspring.triggers.cron;"
            f"print(sorted({heavy!r} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_undefined_is_false_and_one_of_a_kind(self) -> None:
        assert not util.undefined
        assert repr(util.undefined) == "<undefined>"
        assert pickle.loads(pickle.dumps(util.undefined)) is util.undefined

    def test_modules_can_be_imported_in_any_order(self) -> None:
        for name in ("mainspring.util", "mainspring.triggers.parsing", "mainspring.triggers.zones"):
            code = f"import sys; sys.path[:0] = sys.argv[1:]; import {name}"
            subprocess.run([sys.executable, "-c", code, *sys.path], check=True)
        assert importlib.import_module("mainspring.util") is util


class TestSmallThings:
    @pytest.mark.parametrize("value", [" True", "yes ", "1", "ON", "t", "y", True, 5])
    def test_true(self, value: object) -> None:
        assert util.asbool(value) is peer.asbool(value) is True

    @pytest.mark.parametrize("value", [" False", "no ", "0", "Off", "f", "n", False, 0, None])
    def test_false(self, value: object) -> None:
        assert util.asbool(value) is peer.asbool(value) is False

    def test_neither(self) -> None:
        with pytest.raises(ValueError, match="'yep' is neither yes nor no"):
            util.asbool("yep")

    def test_integers(self) -> None:
        assert util.asint("539") == 539
        assert util.asint(None) is None
        with pytest.raises(ValueError, match="5s"):
            util.asint("5s")

    def test_dates(self) -> None:
        assert util.asdate("2026-06-01") == date(2026, 6, 1)
        assert util.asdate(date(2026, 6, 1)) == date(2026, 6, 1)
        assert util.asdate(None) is None

    def test_timedeltas(self) -> None:
        assert util.timedelta_seconds(timedelta(minutes=2, milliseconds=1)) == 120.001

    @pytest.mark.parametrize("zone", [BERLIN, UTC, pytz.timezone("Europe/Berlin")], ids=str)
    def test_shown(self, zone: tzinfo) -> None:
        moment = util.localize(datetime(2014, 5, 30, 7, 12, 20), zone)
        assert util.datetime_repr(moment) == peer.datetime_repr(moment)
        assert util.datetime_repr(None) == peer.datetime_repr(None) == "None"
        assert util.timezone_repr(zone) == peer.timezone_repr(zone)


class TestTimes:
    def test_timestamps(self) -> None:
        moment = datetime(2014, 3, 12, 5, 40, 13, 254012, tzinfo=BERLIN)
        assert util.datetime_to_utc_timestamp(moment) == peer.datetime_to_utc_timestamp(moment)
        assert util.utc_timestamp_to_datetime(util.datetime_to_utc_timestamp(moment)) == moment
        assert util.utc_timestamp_to_datetime(None) is util.datetime_to_utc_timestamp(None) is None

    @pytest.mark.parametrize("microsecond", [0, 1, 4000, 999_999])
    def test_round_up_across_a_change(self, microsecond: int) -> None:
        moment = datetime(2026, 3, 29, 1, 59, 59, microsecond, tzinfo=BERLIN)
        assert util.datetime_ceil(moment) == peer.datetime_ceil(moment)
        assert str(util.datetime_utc_add(moment, timedelta(seconds=1)))[:18] == "2026-03-29 03:00:0"

    def test_naive_times_are_added_as_they_are(self) -> None:
        assert util.datetime_utc_add(datetime(2026, 1, 1), timedelta(1)) == datetime(2026, 1, 2)
        assert util.datetime_ceil(datetime(2009, 4, 7, 2, 10, 16, 4000)) == datetime(2009, 4, 7, 2, 10, 17)

    @pytest.mark.parametrize("hour", [1, 3, 12])
    def test_localize_away_from_a_change_is_apscheduler_s(self, hour: int) -> None:
        naive = datetime(2026, 3, 29, hour, 30)
        for zone in BERLIN, pytz.timezone("Europe/Berlin"), UTC:
            assert str(util.localize(naive, zone)) == str(peer.localize(naive, zone))

    def test_localize_in_a_gap_and_an_overlap_follows_the_rule(self) -> None:
        assert str(util.localize(datetime(2026, 3, 29, 2, 30), BERLIN)) == "2026-03-29 03:00:00+02:00"
        assert str(util.localize(datetime(2026, 10, 25, 2, 30), BERLIN)) == "2026-10-25 02:30:00+02:00"
        assert str(util.localize(datetime(2026, 10, 25, 2, 30, fold=1), BERLIN)) == "2026-10-25 02:30:00+01:00"

    def test_normalize_shows_the_real_time(self) -> None:
        nowhere = datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)
        assert str(util.normalize(nowhere)) == str(peer.normalize(nowhere)) == "2026-03-29 03:30:00+02:00"


class TestConvertToDatetime:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            date(2009, 8, 1),
            datetime(2009, 8, 1, 5, 6, 12),
            datetime(2009, 8, 1, tzinfo=UTC),
            "2009-8-1",
            "2009-8-1 5:16:12",
            "2009-8-1T5:16:12Z",
            "2009-8-1T5:16:12+02:30",
            "2009-8-1T5:16:12-05:30",
            "2009-08-01 05:16:12.250000",
        ],
    )
    @pytest.mark.parametrize("zone", [BERLIN, "Europe/Berlin", pytz.timezone("Europe/Berlin")], ids=str)
    def test_reads_what_apscheduler_reads(self, value: Any, zone: Any) -> None:
        expected = peer.convert_to_datetime(value, zone, "value")
        assert util.convert_to_datetime(value, zone, "value") == expected

    def test_without_a_zone_it_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="run_date '2009-8-1' has no time zone"):
            util.convert_to_datetime("2009-8-1", None, "run_date")

    @pytest.mark.parametrize("text", ["19700-12-1", "2009-8-1 25:00:00", "2009-02-30", ""])
    def test_nonsense_is_an_error_that_names_the_argument(self, text: str) -> None:
        with pytest.raises(ValueError, match=f"run_date: '{text}' is not a date"):
            util.convert_to_datetime(text, BERLIN, "run_date")

    def test_another_type_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match=r"run_date is a datetime, a date or a text .* not 92123"):
            util.convert_to_datetime(92123, BERLIN, "run_date")  # type: ignore[arg-type]
