"""The ribbon of a run: one bar, true to scale, that shows each start and the waits between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from markupsafe import Markup

from mainspring.core.insight.story import Episode
from mainspring.core.insight.wording import took
from mainspring.dashboard.looks.charts import per_cent, svg
from mainspring.dashboard.looks.times import Times

__all__ = ["legend", "ribbon", "running_seconds"]

DAY: Final = 86_400.0
CUT_SHARE: Final = 0.06
"""The share of the bar for a wait of more than a day, which is drawn cut."""
LABEL_SHARE: Final = 0.07
"""The share above which a piece carries a text."""
LEAST_SHARE: Final = 0.004
_HEIGHT: Final = 66


class _Piece(NamedTuple):
    cls: str
    share: float
    seconds: float
    label: str
    tip: str
    episode: Episode
    cut: bool


_WORDS: Final = (
    ("rb-ok", "ran"),
    ("rb-run", "runs"),
    ("rb-bad", "ran, failed"),
    ("rb-idle", "stopped"),
    ("rb-int", "interrupted"),
    ("rb-off", "backing off"),
    ("rb-wait", "waiting"),
)


def legend(story: Sequence[Episode]) -> list[tuple[str, str]]:
    """Return the meanings of the colours that occur in the ribbon."""
    there = {_cls(each) for each in story if each.kind in ("start", "wait", "gap")}
    backs_off = any(each.text.startswith("backs off") for each in story)
    words = {**dict(_WORDS), "rb-off": "backing off" if backs_off else "set for later"}
    return [(cls, said) for cls, said in words.items() if cls in there]


def running_seconds(story: Sequence[Episode], now: datetime) -> float:
    """Return the seconds of execution of a run, over all its starts."""
    return sum(((each.until or now) - each.since).total_seconds() for each in story if each.kind == "start")


def ribbon(story: Sequence[Episode], times: Times) -> Markup:
    """Draw the history of a run: starts tall, back-offs middle, waits thin, lost starts hatched."""
    now = times.local(times.now)
    pieces = _pieces([each for each in story if each.kind in ("start", "wait", "gap")], now)
    if not pieces:
        return Markup("")
    words = f"{len([each for each in pieces if each.episode.kind == 'start'])} starts, {len(pieces)} pieces"
    parts: list[Markup] = []
    x = 0.0
    for number, piece in enumerate(pieces):
        parts += _drawn(piece, x, last=number == len(pieces) - 1)
        x += piece.share * 100
    return svg("chart", _HEIGHT, words, [*parts, *_axis(pieces, times)])


def _pieces(story: Sequence[Episode], now: datetime) -> list[_Piece]:
    lengths = [max(0.0, ((each.until or now) - each.since).total_seconds()) for each in story]
    cuts = [length > DAY and each.kind != "start" for each, length in zip(story, lengths, strict=True)]
    whole = sum(length for length, cut in zip(lengths, cuts, strict=True) if not cut)
    room = 1.0 - CUT_SHARE * sum(cuts)
    raw = [
        CUT_SHARE if cut else (length / whole * room if whole else room / len(story))
        for length, cut in zip(lengths, cuts, strict=True)
    ]
    least = [max(LEAST_SHARE, share) for share in raw]
    total = sum(least) or 1.0
    return [
        _Piece(_cls(each), share / total, length, _label(each, length), _tip(each, length), each, cut)
        for each, length, share, cut in zip(story, lengths, least, cuts, strict=True)
    ]


def _cls(episode: Episode) -> str:
    if episode.kind == "start":
        if "fell silent" in episode.text or "was stopped" in episode.text or "process died" in episode.text:
            return "rb-int"
        if "succeeded" in episode.text:
            return "rb-ok"
        return "rb-run" if episode.until is None else "rb-idle" if "cancelled" in episode.text else "rb-bad"
    return "rb-off" if episode.text.startswith(("backs off", "set for later")) else "rb-wait"


def _label(episode: Episode, seconds: float) -> str:
    length = took(int(seconds * 1e6))
    if episode.kind == "start":
        return f"start {episode.number} · {length}"
    if episode.text.startswith("backs off"):
        return f"back-off {length}"
    return f"{'later' if episode.text.startswith('set for') else 'wait'} {length}"


def _tip(episode: Episode, seconds: float) -> str:
    return f"{episode.since:%H:%M:%S}, {took(int(seconds * 1e6))}\n{episode.text[:200]}"


def _drawn(piece: _Piece, x: float, *, last: bool) -> list[Markup]:
    tall = piece.episode.kind == "start"
    height, y = (26, 8) if tall else (10, 16) if piece.cls == "rb-off" else (4, 19)
    wide = piece.share * 100 - (0 if last else 0.15)
    box = '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="3" data-tip="{}"/>'
    parts = [Markup(box).format(piece.cls, per_cent(x), y, per_cent(max(0.1, wide)), height, piece.tip)]
    if piece.cut:
        middle = per_cent(x + piece.share * 50)
        parts.append(Markup('<text class="mid cut-mark" x="{}" y="26">//</text>').format(middle))
    if piece.share > LABEL_SHARE:
        inside = tall and piece.cls in ("rb-bad", "rb-ok", "rb-run")
        if inside:
            text = '<text class="rb-lab rb-on hide-s" x="{}" dx="8" y="25">{}</text>'
            parts.append(Markup(text).format(per_cent(x), piece.label))
        else:
            text = '<text class="rb-lab mid hide-s" x="{}" y="49">{}</text>'
            parts.append(Markup(text).format(per_cent(x + piece.share * 50), piece.label))
    return parts


def _axis(pieces: Sequence[_Piece], times: Times) -> list[Markup]:
    """Write the time at the beginning, at starts with enough room, and at the end."""
    first, last = pieces[0].episode.since, pieces[-1].episode
    end = last.until or times.local(times.now)
    parts = [Markup('<text x="0" y="64">{}</text>').format(f"{first.astimezone(times.zone):%H:%M:%S}")]
    x, written = 0.0, 0.0
    for piece in pieces:
        if piece.episode.kind == "start" and x - written > 12 and x < 86:
            text = '<text class="mid hide-s" x="{}" y="64">{}</text>'
            parts.append(Markup(text).format(per_cent(x), f"{piece.episode.since.astimezone(times.zone):%H:%M:%S}"))
            written = x
        x += piece.share * 100
    parts.append(Markup('<text class="end" x="100%" y="64">{}</text>').format(f"{end.astimezone(times.zone):%H:%M:%S}"))
    return parts
