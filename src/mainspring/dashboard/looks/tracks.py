"""Tracks of a timeline: past, current and planned runs on one axis, with the clock changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from markupsafe import Markup

from mainspring.core.instants import SECOND, to_us
from mainspring.dashboard.looks.charts import HeatBand, per_cent, svg
from mainspring.dashboard.looks.times import Times

__all__ = ["Bar", "Load", "Stretch", "TrackContent", "axis", "load_track", "track"]

TRACK_HEIGHT: Final = 30
LOAD_HEIGHT: Final = 66
LEAST_WIDTH: Final = 0.22
_STEP_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200)
MOST_LABELS: Final = 13


class Stretch(NamedTuple):
    """The time range of a timeline, with the present and the clock changes in it."""

    since: int
    until: int
    times: Times
    band: HeatBand | None

    def share(self, us: int) -> float:
        """Return the position of an instant, in per cent."""
        return (us - self.since) / (self.until - self.since) * 100

    @property
    def now(self) -> float:
        """The position of the present, in per cent."""
        return self.share(self.times.now)


class Bar(NamedTuple):
    """A past or current run (`ok`, `bad`, `run`, `miss`, `idle`), or a planned fire (`plan`)."""

    kind: str
    since: int
    until: int
    tip: str
    url: str = ""


class Load(NamedTuple):
    """The number of busy slots in a past or coming step."""

    since: int
    until: int
    busy: float


class TrackContent(NamedTuple):
    """The content of one track: bars, and bands with a text where bars would be too dense."""

    bars: Sequence[Bar] = ()
    past_band: str = ""
    """The tooltip of a band over the past; empty for none."""
    plan_band: str = ""
    """The text in a band over the planned fires."""
    paused: str = ""
    note: str = ""
    note_at: int = 0


def _ground(stretch: Stretch) -> list[Markup]:
    parts: list[Markup] = []
    if stretch.band is not None:
        x, wide = per_cent(stretch.band.since * 100), per_cent((stretch.band.until - stretch.band.since) * 100)
        parts.append(Markup(f'<rect class="dst" x="{x}" y="0" width="{wide}" height="100%"/>'))
    for moment, _ in _ticks(stretch):
        x = per_cent(stretch.share(to_us(moment)))
        parts.append(Markup(f'<line class="gl" x1="{x}" x2="{x}" y1="0" y2="100%"/>'))
    if stretch.band is not None:
        x = per_cent(stretch.band.line * 100)
        parts.append(Markup(f'<line class="dst-line" x1="{x}" x2="{x}" y1="0" y2="100%"/>'))
    return parts


def _now(stretch: Stretch) -> Markup:
    x = per_cent(stretch.now)
    return Markup(f'<line class="now" x1="{x}" x2="{x}" y1="0" y2="100%"/>')


def _ticks(stretch: Stretch) -> list[tuple[datetime, bool]]:
    """Return the moments to label on the axis: whole hours of the local clock, each with whether it occurs twice."""
    length = (stretch.until - stretch.since) / SECOND / 60
    minutes = next((each for each in _STEP_MINUTES if length / each <= MOST_LABELS), _STEP_MINUTES[-1])
    step = max(1, minutes // 60)
    begin = stretch.times.local(stretch.since)
    at = to_us(begin.replace(minute=0, second=0, microsecond=0))
    found: list[tuple[datetime, bool]] = []
    while at < stretch.until:
        moment = stretch.times.local(at)
        near = (
            stretch.band is not None
            and stretch.band.since <= (at - stretch.since) / (stretch.until - stretch.since) < stretch.band.until
        )
        whole = moment.hour % step == 0 if step < 24 else moment.hour == 0 and moment.toordinal() % (step // 24) == 0
        if at > stretch.since and (whole or minutes < 60 or (near and step <= 2)):
            found.append((moment, near and moment.minute == 0))
        at += min(60, minutes) * 60 * SECOND
    return found


def axis(stretch: Stretch) -> Markup:
    """Draw the times above the tracks, and the present."""
    parts: list[Markup] = []
    for number, (moment, near) in enumerate(_ticks(stretch)):
        x = stretch.share(to_us(moment))
        if abs(x - stretch.now) < 4 or not 2 < x < 97.5:  # it would overlap the word "now", or the edge
            continue
        midnight = moment.hour == moment.minute == 0
        text = f"{moment:%H}" if near else f"{moment:%a %-d}" if midnight else f"{moment:%H:%M}"
        cls = (
            f"mid{' t-warn strong' if near else ''}{'' if number % 3 == 0 and abs(x - stretch.now) > 12 else ' hide-s'}"
        )
        parts.append(Markup('<text class="{}" x="{}" y="18">{}</text>').format(cls, per_cent(x), text))
    place, now = per_cent(stretch.now), stretch.times.local(stretch.times.now)
    if 0 <= stretch.now <= 100:
        parts.append(Markup(f'<text class="now-t mid" x="{place}" y="4">now {now:%H:%M}</text>'))
        parts.append(Markup(f'<line class="now" x1="{place}" x2="{place}" y1="9" y2="28"/>'))
    return svg("chart", 28, "", parts)


def load_track(stretch: Stretch, past: Sequence[Load], ahead: Sequence[Load], peak: str) -> Markup:
    """Draw the busy slots of the past, and those of the coming fires, in different colours."""
    top = max((each.busy for each in (*past, *ahead)), default=0.0) or 1.0
    parts = _ground(stretch)
    parts += [_load(stretch, each, top, "b-idle", f"{each.busy:.2g} slots were busy") for each in past]
    for each in ahead:
        level = f"h{min(5, 1 + int(each.busy / top * 4.6))}"
        parts.append(_load(stretch, each, top, level, f"about {each.busy:.2g} slots busy"))
    if stretch.band is not None:
        x, side = stretch.band.line * 100, stretch.band.line > 0.4
        text = '<text class="t-warn {} hide-s" x="{}" dx="{}" y="12">{}</text>'
        parts.append(Markup(text).format("end" if side else "", per_cent(x), -6 if side else 6, stretch.band.text))
    if peak and ahead:
        x = stretch.share(max(ahead, key=lambda each: each.busy).since)
        text = '<text class="strong {} hide-s" x="{}" dx="{}" y="{}">{}</text>'
        crowded = stretch.band is not None and abs(x - stretch.band.line * 100) < 30
        parts.append(
            Markup(text).format("end" if x > 80 else "", per_cent(x), -4 if x > 80 else 4, 26 if crowded else 12, peak)
        )
    parts.append(_now(stretch))
    words = f"Slots that were busy, and that coming fires keep busy; {peak}"
    return svg("chart", LOAD_HEIGHT, words, parts)


def _load(stretch: Stretch, load: Load, top: float, cls: str, words: str) -> Markup:
    tall = max(2.0, load.busy / top * 44)
    x = stretch.share(load.since)
    wide = per_cent(max(0.1, stretch.share(load.until) - x - 0.1))
    box = (
        f'<rect class="{cls if load.busy > 0 else "h0"}" x="{per_cent(x)}" y="{LOAD_HEIGHT - tall:.1f}" width="{wide}"'
    )
    tip = f"{stretch.times.local(load.since):%a %H:%M}\n{words}"
    return Markup(f'{box} height="{tall:.1f}"') + Markup(' data-tip="{}"/>').format(tip)


def track(stretch: Stretch, content: TrackContent, label: str) -> Markup:
    """Draw one track."""
    parts = _ground(stretch)
    now = min(100.0, max(0.0, stretch.now))
    if content.paused and now < 100:
        parts += _band(now, "lg-pause", content.paused)
    if content.past_band:
        box = f'<rect class="lg-dense" x="0" y="9" width="{per_cent(now)}" height="12" rx="2"'
        parts.append(Markup(box) + Markup(' data-tip="{}"/>').format(content.past_band))
    if content.plan_band and now < 100:
        parts += _band(now, "lg-dense-plan", content.plan_band)
    parts += [_bar(stretch, bar) for bar in content.bars]
    if content.note:
        x = stretch.share(content.note_at)
        side = x > 35
        text = '<text class="t-warn {} hide-s" x="{}" dx="{}" y="19">{}</text>'
        parts.append(Markup(text).format("end" if side else "", per_cent(x), -7 if side else 14, content.note))
    parts.append(_now(stretch))
    return svg("chart", TRACK_HEIGHT, label, parts, role="group")  # not an image, since it contains links


def _band(now: float, cls: str, text: str) -> list[Markup]:
    """Draw a band from the present on, with a text in front of it."""
    box = f'<rect class="{cls}" x="{per_cent(now)}" y="9" width="100%" height="12"/>'
    words = Markup('<text x="{}" dx="14" y="19">{}</text>').format(per_cent(now), text)
    return [Markup(f'<g transform="translate({24 + 6.5 * len(text):g})">{box}</g>'), words]


def _bar(stretch: Stretch, bar: Bar) -> Markup:
    x = max(0.0, stretch.share(bar.since))
    wide = max(LEAST_WIDTH * (1.6 if bar.kind == "bad" else 1), min(100.0, stretch.share(bar.until)) - x)
    if bar.kind == "miss":
        shape = '<svg x="{}" y="16" width="12" height="12" overflow="visible">'
        shape += '<path class="lg-miss" d="M0 0 6 6 0 12 -6 6z" data-tip="{}"/></svg>'
        made = Markup(shape).format(per_cent(x), bar.tip)
    else:
        y, height = (13.0, 14.0) if bar.kind == "bad" else (9.5, 11.0) if bar.kind == "plan" else (9.0, 12.0)
        cls = {"idle": "b-idle"}.get(bar.kind, f"lg-{bar.kind}")
        box = '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5" data-tip="{}"/>'
        made = Markup(box).format(cls, per_cent(x), f"{y:g}", per_cent(wide), f"{height:g}", bar.tip)
    return (
        Markup('<a href="{}" tabindex="-1" aria-label="{}">{}</a>').format(bar.url, bar.tip, made) if bar.url else made
    )
