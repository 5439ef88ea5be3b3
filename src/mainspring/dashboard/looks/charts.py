"""Charts as SVG: pure functions from numbers to markup.

A chart has no viewBox: x is in per cent and y in pixels, so that it stretches with the page while text keeps its size.
Colour comes from classes and geometry from attributes, since the content policy forbids style attributes. Successes
rise from the line; failures hang below it on a separate scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from mainspring.dashboard.looks.clock_labels import ClockLabel

__all__ = ["Deploy", "Heat", "HeatBand", "Series", "Step", "axis_label", "durations", "heat", "hit", "line", "lines"]
__all__ += ["per_cent", "rect", "round_top", "svg", "up_and_down", "y_axis"]


LOW: Final = 60
"""The height in pixels below which an axis has room for only one value."""
LEAST_LOAD: Final = 0.02
"""Slots: if the busiest moment has less than this, the coming load is unknown."""


class Step(NamedTuple):
    """One bar: the successes, the failures, the tooltip, and an optional label below it."""

    good: float
    bad: float
    tip: str
    label: str = ""
    strong: bool = True
    """Whether the label also shows on a phone."""


class Deploy(NamedTuple):
    """A vertical mark at a share (0 to 1) of the width."""

    at: float
    text: str


class Heat(NamedTuple):
    """One cell of a heat strip."""

    value: float
    tip: str
    label: str = ""
    strong: bool = True
    warn: bool = False


class HeatBand(NamedTuple):
    """A tinted stretch of a heat strip between two shares, with a line at `line` and a text."""

    since: float
    until: float
    line: float
    text: str


def per_cent(value: float) -> str:
    """Return a number as a percentage for an attribute."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def round_top(value: float) -> float:
    """Return the smallest of 1, 2, 3, 4, 5, 6, 8, 10 times a power of ten that is not below a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


def short_number(value: float) -> str:
    """Return a number for an axis: 6k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def svg(
    cls: str,
    height: float,
    label: str,
    parts: Sequence[str | Markup],
    width: str = "",
    *,
    role: str = "img",
    walked: bool = False,
) -> Markup:
    """Return a drawing. Screen readers skip it without a label; if `walked`, arrow keys move through its steps."""
    size = Markup(' width="{}"').format(width) if width else ""
    name = Markup('role="{}" aria-label="{}"').format(role, label) if label else Markup('aria-hidden="true"')
    focus = Markup(' tabindex="0"') if walked else ""
    box = Markup('<svg class="{}" height="{}"{} {}{}>{}</svg>')
    return box.format(cls, f"{height:g}", size, name, focus, Markup("").join(parts))


def rect(cls: str, x: str, y: float, width: str, height: float, round_by: float = 0) -> Markup:
    """Return a rectangle."""
    corner = f' rx="{round_by:g}"' if round_by else ""
    return Markup(
        f'<rect class="{cls}" x="{x}" y="{round(y, 1):g}" width="{width}" height="{round(height, 1):g}"{corner}/>'
    )


def hit(x: float, width: float, height: float, tip: str, y: float = 0) -> Markup:
    """Return a transparent bar with a tooltip, as the target for the pointer."""
    box = f'<rect class="hit" x="{per_cent(x)}" y="{y:g}" width="{per_cent(width)}" height="{height:g}"'
    return Markup(box) + Markup(' data-tip="{}"/>').format(tip)


def line(cls: str, x1: str, x2: str, y1: float, y2: float) -> Markup:
    """Return a line."""
    return Markup(f'<line class="{cls}" x1="{x1}" x2="{x2}" y1="{y1:g}" y2="{y2:g}"/>')


def y_axis(width: int, height: float, labels: Sequence[tuple[float, str]]) -> Markup:
    """Return the labels left of a plot, in a separate column, so that no bar covers them."""
    texts = [
        Markup('<text class="end" x="{}" y="{}">{}</text>').format(width, f"{y + 4:.0f}", text) for y, text in labels
    ]
    return svg("yax", height, "", texts, str(width))


def plot(axis: Markup, chart: Markup) -> Markup:
    """Put an axis beside a chart."""
    return Markup('<div class="plot">{}{}</div>').format(axis, chart)


def up_and_down(
    steps: Sequence[Step], label: str, *, deploys: Sequence[Deploy] = (), up: int = 132, down: int = 36
) -> Markup:
    """Draw successes upwards and failures downwards, each on its own scale; at most some hundred bars."""
    gap, base = 4, up + 10
    top, worst = round_top(max((step.good for step in steps), default=0)), max((step.bad for step in steps), default=0)
    height = base + gap + down + 20
    labels = [(base + 2.0, "0")]
    parts: list[Markup] = []
    for share in (1,) if up < LOW or (top % 2 and top % 3) else (1 / 3, 2 / 3, 1) if top % 3 == 0 else (0.5, 1):
        y = base - share * up
        parts.append(line("gl", "0", "100%", round(y), round(y)))
        labels.append((y, short_number(top * share)))
    if worst:
        labels.append((base + gap + down, short_number(worst)))
    width = 100 / max(1, len(steps))
    for number, step in enumerate(steps):
        parts.append(_bar(step, number * width, width, base, up, down, gap, top, worst))
    parts.append(line("base", "0", "100%", base + 2, base + 2))
    parts += _deploys(deploys, base + gap + down)
    for number, step in enumerate(steps):
        if step.label:
            parts.append(axis_label(number * width + width / 2, base + gap + down + 16, step.label, step.strong))
    return plot(y_axis(_axis_width(labels), height, labels), svg("chart", height, label, parts, walked=True))


def _axis_width(labels: Sequence[tuple[float, str]]) -> int:
    return max(18, 7 * max(len(text) for _, text in labels))


def _bar(
    step: Step, x: float, width: float, base: float, up: float, down: float, gap: float, top: float, worst: float
) -> Markup:
    place, wide = per_cent(x + width * 0.12), per_cent(width * 0.76)
    parts = [Markup("<g>")]
    if step.good:
        height = max(1.5, step.good / top * up)
        parts.append(rect("b-ok", place, base - height, wide, height))
    if step.bad and worst:
        parts.append(rect("b-bad", place, base + gap, wide, max(2.5, step.bad / worst * down)))
    parts += [hit(x, width, base + gap + down, step.tip), Markup("</g>")]
    return Markup("").join(parts)


def axis_label(x: float, y: float, text: str, strong: bool = True, cls: str = "") -> Markup:
    """Return a label below a chart; a phone shows only `strong` ones."""
    hidden = "" if strong else " hide-s"
    side = "mid" if x > 1.5 else ""  # at the edge, a centred label would stick out
    return Markup('<text class="{}{}{}" x="{}" y="{}">{}</text>').format(
        side, f" {cls}" if cls else "", hidden, per_cent(x), f"{y:g}", text
    )


def _deploys(deploys: Sequence[Deploy], height: float) -> list[Markup]:
    """Draw dotted lines with labels on their left; move a label that would overlap to a second row."""
    parts: list[Markup] = []
    last, row = -1.0, 0
    for deploy in deploys:
        row = 1 - row if deploy.at - last < 0.16 else 0
        x, last = per_cent(deploy.at * 100), deploy.at
        parts.append(line("mk", x, x, 2, height))
        side, dx = ("end", -6) if deploy.at > 0.15 else ("", 6)
        text = Markup('<text class="mk-t {} hide-s" x="{}" dx="{}" y="{}">{}</text>')
        parts.append(text.format(side, x, dx, 10 + 12 * row, deploy.text))
    return parts


FLAT_SHARE: Final = 0.6
"""Loads are flat if the least is more than this share of the greatest."""


def heat(cells: Sequence[Heat], label: str, *, band: HeatBand | None = None, peak: str = "") -> Markup:
    """Draw the coming load: height and five tints show its size, a tinted band shows where the clock changes."""
    loads = [cell.value for cell in cells if cell.value > 0]
    top = max(loads, default=0)
    even = [cell.value for cell in cells[1:] if cell.value > 0]  # the first step has begun already
    if even and min(even) > FLAT_SHARE * top:  # a constant load has no peak: do not draw one solid block
        top *= 3
    top = top if top >= LEAST_LOAD else 1.0  # fires of unknown length must not look like full load
    y0, height, width, parts = 20, 46, 100 / max(1, len(cells)), []
    if band is not None:
        since, until = per_cent(band.since * 100), per_cent((band.until - band.since) * 100)
        parts.append(rect("dst", since, y0 - 6, until, height + 6))
    for number, cell in enumerate(cells):
        level = 0 if cell.value <= 0 else min(5, 1 + int(cell.value / top * 4.6))
        tall = max(3.0, cell.value / top * height)
        x = number * width
        parts.append(rect(f"h{level}", per_cent(x), y0 + height - tall, per_cent(width - 0.12), tall, 1))
        parts.append(hit(x, width, height + 6, cell.tip, y0 - 6))
    parts.append(line("base", "0", "100%", y0 + height + 0.5, y0 + height + 0.5))
    parts += _heat_words(cells, band, peak, y0, height)
    for number, cell in enumerate(cells):
        if cell.label:
            cls = "t-warn strong" if cell.warn else ""
            parts.append(axis_label(number * width, y0 + height + 15, cell.label, cell.strong, cls))
    return svg("chart", height + 42, label, parts, walked=True)


def _heat_words(cells: Sequence[Heat], band: HeatBand | None, peak: str, y0: int, height: int) -> list[Markup]:
    parts: list[Markup] = [Markup(f'<text class="now-t hide-s" x="0" y="{y0 - 8}">now</text>')]
    place = max(range(len(cells)), key=lambda number: cells[number].value) / len(cells) if cells and peak else 0.0
    if band is not None:
        x = per_cent(band.line * 100)
        parts.append(line("dst-line", x, x, y0 - 6, y0 + height))
        text = Markup('<text class="t-warn {} hide-s" x="{}" dx="{}" y="{}">{}</text>')
        parts.append(text.format("end" if band.line > 0.4 else "", x, -6 if band.line > 0.4 else 6, y0 - 8, band.text))
        if band.since - 0.05 < place < band.until + 0.05:
            place = band.until
    if peak:
        side, dx = ("end", -6) if place > 0.5 else ("", 6)  # half a phone's width has room for it
        near_now = max(place, 0.05) * 100
        text = Markup('<text class="strong {}" x="{}" dx="{}" y="{}">{}</text>')
        parts.append(text.format(side, per_cent(near_now), dx, y0 - 8, peak))
    return parts


LONE_POINT: Final = 0.4
"""The width to each side of a point without neighbours, in steps."""


class Series(NamedTuple):
    """One line of a chart; None is a gap. `cls` is one of l1 to l5, or bad or warn."""

    name: str
    values: Sequence[float | None]
    cls: str = "l1"


def lines(
    series: Sequence[Series],
    ticks: Sequence[tuple[float, str]],
    times: Sequence[tuple[float, ClockLabel]],
    label: str,
    *,
    height: int = 150,
) -> Markup:
    """Draw lines on a logarithmic scale, each with its name at its end; `times` are shares of the width."""
    low, high = math.log(ticks[0][0] / 2), math.log(ticks[-1][0] * 1.2)

    def y(value: float) -> float:
        share = (math.log(max(value, ticks[0][0] / 2)) - low) / (high - low)
        return 10 + (height - 14) * (1 - min(1.0, share))

    number = max((len(each.values) for each in series), default=2)
    parts = [line("gl", "0", "100%", round(y(value)), round(y(value))) for value, _ in ticks]
    box = f'<svg x="0" y="0" width="90%" height="{height}" viewBox="0 0 {max(1, number - 1)} {height}"'
    parts.append(Markup(f'{box} preserveAspectRatio="none">'))
    for each in series:
        for piece in _pieces(each.values):
            if len(piece) == 1:  # a single point becomes a short line
                [(place, value)] = piece
                piece = [(place - LONE_POINT, value), (place + LONE_POINT, value)]
            points = " ".join(f"{k:g},{y(value):.1f}" for k, value in piece)
            parts.append(
                Markup(f'<polyline class="ln {each.cls}" points="{points}" vector-effect="non-scaling-stroke"/>')
            )
    parts.append(Markup("</svg>"))
    for each, place in _ends(series, y):
        dot = f'<circle class="dot {each.cls}" cx="90%" cy="{y(_last(each.values)):.1f}" r="2.5"/>'
        name = Markup('<text class="lb {}" x="90%" dx="8" y="{}">{}</text>').format(
            each.cls, f"{place + 4:.1f}", each.name
        )
        parts += [Markup(dot), name]
    parts += [axis_label(share * 90, height + 16, text, strong) for share, (text, strong) in times]
    labels = [(y(value), text) for value, text in ticks]
    return plot(y_axis(44, height + 22, labels), svg("chart", height + 22, label, parts, walked=True))


def _pieces(values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Split a line at its gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((number, value))
    return [piece for piece in pieces if piece]


def _last(values: Sequence[float | None]) -> float:
    return next((value for value in reversed(values) if value is not None), 0.0)


def _ends(series: Sequence[Series], y: Callable[[float], float]) -> list[tuple[Series, float]]:
    """Place the names at the ends of the lines without overlaps."""
    placed: list[tuple[Series, float]] = []
    for each in sorted((each for each in series if _pieces(each.values)), key=lambda each: -_last(each.values)):
        place = y(_last(each.values))
        if placed and place - placed[-1][1] < 12:
            place = placed[-1][1] + 12
        placed.append((each, place))
    return placed


def durations(steps: Sequence[Step], label: str, unit: str, scale: float, marks: Sequence[Deploy] = ()) -> Markup:
    """Draw run durations: `good` is the duration in seconds of a success, `bad` is 1 for a failure."""
    up, down = 116, 26
    base = up + 12
    top = round_top(max((step.good / scale for step in steps), default=0))
    labels, parts = [(float(base), "0")], []
    for share in (0.5, 1.0):
        y = base - share * up
        parts.append(line("gl", "0", "100%", round(y), round(y)))
        labels.append((y, f"{top * share:g} {unit}"))
    width = 100 / max(1, len(steps))
    for number, step in enumerate(steps):
        x = number * width
        place, wide = per_cent(x + width * 0.15), per_cent(width * 0.7)
        if step.bad:
            parts.append(rect("b-bad", place, base + 3, wide, down - 6, 1))
        elif step.good:
            tall = max(1.5, step.good / scale / top * up)
            parts.append(rect("b-ok", place, base - tall, wide, tall, 1))
        parts.append(hit(x, width, base + down, step.tip))
        if step.label:
            parts.append(axis_label(x + width / 2, base + down + 14, step.label, step.strong))
    parts.append(line("base", "0", "100%", base + 1, base + 1))
    parts += _deploys(marks, base + down)
    height = base + down + 24
    return plot(y_axis(_axis_width(labels), height, labels), svg("chart", height, label, parts, walked=True))
