"""Drawings and texts of the pages about work: pure functions, without a store."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mainspring.core.insight.story import story_of
from mainspring.core.instants import SECOND, to_us
from mainspring.core.run import Call, Error, Run, Start, Status
from mainspring.dashboard.filtering import run_at_cursor, text_of
from mainspring.dashboard.looks.charts import Heat, HeatBand, Series, Step, heat, lines, up_and_down
from mainspring.dashboard.looks.clock_labels import clock_labels
from mainspring.dashboard.looks.ribbon import ribbon
from mainspring.dashboard.looks.sparks import strip
from mainspring.dashboard.looks.times import Times
from mainspring.dashboard.looks.tracebacks import trace_lines
from mainspring.dashboard.looks.tracks import Bar, Stretch, TrackContent, axis, track
from mainspring.dashboard.page import BadParameter

BERLIN = ZoneInfo("Europe/Berlin")


def stretch(begin: datetime, hours: int, band: HeatBand | None = None) -> Stretch:
    since = to_us(begin)
    return Stretch(since, since + hours * 3600 * SECOND, Times(BERLIN, since + 3600 * SECOND), band)


def test_the_axis_shows_02_twice_on_the_night_the_clocks_go_back() -> None:
    begin = datetime(2026, 10, 24, 20, 30, tzinfo=BERLIN)
    change = datetime(2026, 10, 25, 1, 0, tzinfo=ZoneInfo("UTC"))
    length = 12 * 3600
    line = (change - begin).total_seconds() / length
    band = HeatBand(line - 3600 / length, line + 3600 / length, line, "clocks go back")
    labels = re.findall(r">([^<]+)</text>", axis(stretch(begin, 12, band)))
    assert [label for label in labels if label.startswith("02")] == ["02", "02"]


def test_a_track_draws_past_and_plan_and_hangs_what_failed() -> None:
    begin = datetime(2026, 11, 16, 12, 0, tzinfo=BERLIN)
    place = stretch(begin, 6)
    bars = [
        Bar("ok", place.since, place.since + 60 * SECOND, "fine"),
        Bar("bad", place.since + 600 * SECOND, place.since + 660 * SECOND, '"><script>'),
        Bar("plan", place.since + 7200 * SECOND, place.since + 7300 * SECOND, "planned"),
    ]
    drawn = str(track(place, TrackContent(bars=bars, plan_band="every 5 minutes"), "a job"))
    tops = dict(re.findall(r'class="lg-(\w+)" x="[^"]+" y="([^"]+)"', drawn))
    assert float(tops["bad"]) > float(tops["ok"])
    assert "every 5 minutes" in drawn
    assert "<script>" not in drawn
    assert "style=" not in drawn


def test_a_ribbon_shows_a_lost_start_and_the_wait_for_its_lease() -> None:
    begin = to_us(datetime(2026, 11, 16, 12, 0, tzinfo=BERLIN))
    lost = Start(1, "a", begin, begin, begin + 70 * SECOND, "lost", begin + 70 * SECOND)
    run = Run(
        id="one",
        call=Call("shop:one"),
        status=Status.FAILED,
        created_at=begin,
        run_at=begin,
        attempt=2,
        interruptions=1,
        started_at=begin + 70 * SECOND,
        finished_at=begin + 100 * SECOND,
        earlier_starts=(lost,),
        errors=(Error("ValueError", "torn", "", begin + 100 * SECOND, 2),),
    )
    drawn = str(ribbon(story_of(run, begin + 200 * SECOND, BERLIN), Times(BERLIN, begin + 200 * SECOND)))
    shapes = re.findall(r'<rect class="(rb-\w+)" x="[^"]+" y="[^"]+" width="([\d.]+)%"', drawn)
    assert [shape for shape, _ in shapes] == ["rb-int", "rb-bad"]
    assert float(shapes[0][1]) == pytest.approx(70, abs=1)
    assert "start 1" in drawn


def test_a_wait_of_days_is_cut() -> None:
    begin = to_us(datetime(2026, 11, 16, 12, 0, tzinfo=BERLIN))
    later = begin + 5 * 86_400 * SECOND
    run = Run(
        id="one",
        call=Call("shop:one"),
        status=Status.SUCCEEDED,
        created_at=begin,
        run_at=later,
        attempt=1,
        started_at=later,
        finished_at=later + 60 * SECOND,
    )
    drawn = str(ribbon(story_of(run, later + 90 * SECOND, BERLIN), Times(BERLIN, later + 90 * SECOND)))
    assert "//" in drawn
    widths = dict(re.findall(r'<rect class="(rb-\w+)" x="[^"]+" y="[^"]+" width="([\d.]+)%"', drawn))
    assert float(widths["rb-ok"]) > float(widths["rb-off"])


TRACE = """Traceback (most recent call last):
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value")
json.decoder.JSONDecodeError: Expecting value

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/shop/payments/reconcile.py", line 41, in reconcile
    for charge in charges():
  File "/usr/lib/python3.11/site-packages/httpx/_client.py", line 9, in get
    return self.send()
  File "/srv/shop/payments/client.py", line 27, in get
    raise APIConnectionError(host)
shop.APIConnectionError: no answer
"""


def test_a_traceback_shows_own_frames_folds_libraries_and_names_the_cause() -> None:
    lines = trace_lines(TRACE, "shop.APIConnectionError", "no answer")
    own = [(line.path, line.line, line.function) for line in lines if line.path]
    assert own == [("shop/payments/reconcile.py", 41, "reconcile"), ("shop/payments/client.py", 27, "get")]
    assert [line.cls for line in lines if line.path] == ["own", "own hot"]
    assert "1 frame of httpx" in "".join(line.text for line in lines)
    assert lines[-1].text.startswith("  caused by json.decoder.JSONDecodeError")


def test_a_traceback_of_libraries_alone_is_shown_whole() -> None:
    text = 'Traceback:\n  File "/usr/lib/python3.11/json/decoder.py", line 3, in loads\n    x()\nValueError: y\n'
    assert [line.function for line in trace_lines(text, "ValueError", "y") if line.path] == ["loads"]
    assert trace_lines("", "ValueError", "y")[-1].error == "ValueError"


def test_conditions_become_one_text() -> None:
    assert text_of({"queue": ["mail", "slow"], "-task": ["probe"], "text": ["not found"]}) == (
        '-task:probe queue:mail,slow text:"not found"'
    )
    assert text_of({"task": ['a"b c']}) == 'task:"ab c"'


def test_a_cursor_names_a_run() -> None:
    found = run_at_cursor("1792930800000000.job@1@5")
    assert found is not None
    assert (found.record.created_at, found.id) == (1792930800000000, "job@1@5")
    assert run_at_cursor("") is None
    with pytest.raises(BadParameter):
        run_at_cursor("yesterday")


def test_times_tick_from_an_exact_moment() -> None:
    now = to_us(datetime(2026, 11, 16, 12, 0, tzinfo=BERLIN))
    shown = str(Times(BERLIN, now).ago(now - int(timedelta(minutes=5).total_seconds()) * SECOND))
    assert "5 min" in shown
    assert "data-at=" in shown


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (1, ["17:10", "17:20", "17:30", "17:40", "17:50", "18:00"]),
        (24, ["18:00", "21:00", "Tue 17", "03:00", "06:00", "09:00", "12:00", "15:00"]),
        (24 * 7, [f"{day} Nov" for day in range(17, 24)]),
    ],
)
def test_an_axis_names_round_times_whatever_minute_it_begins_at(hours: int, expected: list[str]) -> None:
    begin = to_us(datetime(2026, 11, 16, 17, 7, 23, tzinfo=BERLIN))
    labels = clock_labels(Times(BERLIN, begin), begin, hours * 3600 * SECOND / 96, 96)
    assert [label.text for label in labels if label.text] == expected


def test_an_axis_names_each_hour_once_when_the_clocks_go_back() -> None:
    begin = to_us(datetime(2026, 10, 25, 0, 30, tzinfo=BERLIN))
    labels = clock_labels(Times(BERLIN, begin), begin, 5 * 60 * SECOND, 72)
    assert [label.text for label in labels if label.text] == ["01:00", "02:00", "03:00", "04:00", "05:00"]


def test_a_strip_has_one_path_for_each_kind_of_run() -> None:
    drawn = str(strip("ssssssffmc--sssssssr", [0.5] * 20, "the last 20"))
    assert re.findall(r'<path class="([\w-]+)"', drawn) == ["s-ok", "s-bad", "s-miss", "s-idle", "s-none", "s-run"]


def test_fires_of_unknown_length_do_not_look_like_a_full_house() -> None:
    drawn = str(heat([Heat(0.001, "")] * 4, "load"))
    assert 'class="h1"' in drawn
    assert 'class="h5"' not in drawn


def test_the_same_load_all_day_is_no_solid_block() -> None:
    drawn = str(heat([Heat(0.01, ""), *[Heat(0.9, ""), Heat(1.0, "")] * 48], "load"))  # little is left of the first
    assert 'class="h5"' not in drawn
    assert 'class="h5"' in str(heat([Heat(0.1, ""), Heat(1.0, "")] * 48, "load"))


def test_a_point_without_neighbours_is_seen() -> None:
    values = [None, 2.0, None, 3.0, 4.0]
    drawn = str(lines([Series("mail", values)], [(1.0, "1 s"), (10.0, "10 s")], [], "waits"))
    assert [len(points.split()) for points in re.findall(r'points="([^"]+)"', drawn)] == [2, 2]


def test_an_axis_of_counts_has_no_half_runs() -> None:
    assert "0.5" not in str(up_and_down([Step(1, 0, "one run")], "runs"))
