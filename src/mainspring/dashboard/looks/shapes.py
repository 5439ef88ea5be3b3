"""Shapes: icons, the mark of each status, the product's mark. Pure functions from names to markup.

Each status has a distinct shape, so that colour only repeats the information.
"""

# The paths are drawings: breaking the lines would not make them readable.
# ruff: noqa: E501

from __future__ import annotations

import math
from typing import Final

from markupsafe import Markup

__all__ = ["MARKS", "TONES", "icon", "mark", "spiral", "sprite", "status_word", "tone"]

_ICONS: Final = {
    "overview": '<path d="M2.5 9.5a5.5 5.5 0 1 1 11 0"/><path d="M8 9.5 10.6 6"/><path d="M2.5 12.5h11"/>',
    "jobs": '<circle cx="8" cy="8" r="5.75"/><path d="M8 4.75V8l2.25 1.5"/>',
    "timeline": '<path d="M2.5 4h5M6 8h6.5M4 12h6"/><path d="M13.5 2.5v11" stroke-dasharray="1.5 2"/>',
    "runs": '<path d="M2.5 4h7M2.5 8h5M2.5 12h4"/><path d="m9.75 7.75 4 2.5-4 2.5z"/>',
    "flows": '<rect x="1.75" y="6" width="4" height="4" rx="1"/><rect x="10.25" y="2" width="4" height="4" rx="1"/><rect x="10.25" y="10" width="4" height="4" rx="1"/><path d="M5.75 8H8V4h2.25M8 8v4h2.25"/>',
    "queues": '<path d="m8 2 6 3-6 3-6-3z"/><path d="m2 8.25 6 3 6-3"/><path d="m2 11.25 6 3 6-3"/>',
    "errors": '<path d="M5.4 2h5.2L14 5.4v5.2L10.6 14H5.4L2 10.6V5.4z"/><path d="M8 5v3.5M8 10.9v.1"/>',
    "nodes": '<rect x="2" y="2.5" width="12" height="4.5" rx="1.25"/><rect x="2" y="9" width="12" height="4.5" rx="1.25"/><path d="M4.75 4.75h.01M4.75 11.25h.01"/>',
    "system": '<path d="M2.5 5h6M12 5h1.5M2.5 11H4M7.5 11h6"/><circle cx="10.25" cy="5" r="1.75"/><circle cx="5.75" cy="11" r="1.75"/>',
    "search": '<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3 3"/>',
    "play": '<path d="M5 3.25v9.5l7.5-4.75z"/>',
    "resume": '<path d="M3.5 3.5v9M6.75 3.5v9L13.5 8z"/>',
    "user": '<circle cx="8" cy="5.5" r="2.75"/><path d="M2.75 13.5c.6-2.6 2.6-4 5.25-4s4.65 1.4 5.25 4"/>',
    "pause": '<path d="M5.5 3.5v9M10.5 3.5v9"/>',
    "skip": '<path d="M3.5 3.5v9L10 8zM12.5 3.5v9"/>',
    "retry": '<path d="M13 8a5 5 0 1 1-1.6-3.7"/><path d="M13.25 2.25v2.5h-2.5"/>',
    "edit": '<path d="m3 13 .6-2.7 7-7 2.1 2.1-7 7z"/><path d="m9.2 4.7 2.1 2.1"/>',
    "trash": '<path d="M3 4.5h10M6.5 4.25V2.75h3v1.5M4.5 4.5l.5 8.75h6l.5-8.75"/>',
    "copy": '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 5.25V3.5a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h1.75"/>',
    "more": '<path d="M3.5 8h.01M8 8h.01M12.5 8h.01" stroke-width="2.25"/>',
    "right": '<path d="m6 3.5 4.5 4.5L6 12.5"/>',
    "left": '<path d="M10 3.5 5.5 8l4.5 4.5"/>',
    "down": '<path d="M3.5 6 8 10.5 12.5 6"/>',
    "x": '<path d="m4 4 8 8M12 4l-8 8"/>',
    "check": '<path d="m3.5 8.5 3 3 6-7"/>',
    "theme": '<circle cx="8" cy="8" r="5.75"/><path d="M8 2.25a5.75 5.75 0 0 1 0 11.5z" fill="currentColor" stroke="none"/>',
    "globe": '<circle cx="8" cy="8" r="5.75"/><path d="M2.25 8h11.5M8 2.25c4 3.6 4 7.9 0 11.5-4-3.6-4-7.9 0-11.5z"/>',
    "menu": '<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11"/>',
    "eye": '<path d="M1.75 8S4 3.75 8 3.75 14.25 8 14.25 8 12 12.25 8 12.25 1.75 8 1.75 8z"/><circle cx="8" cy="8" r="1.75"/>',
    "flag": '<path d="M4 14V2.5M4 3h7.5L10 5.75 11.5 8.5H4"/>',
    "keep": '<path d="M4.25 2.5h7.5v11L8 10.75 4.25 13.5z"/>',
    "terminal": '<rect x="1.75" y="2.75" width="12.5" height="10.5" rx="1.5"/><path d="m4.5 6 2 2-2 2M8.5 10.25h3"/>',
    "move": '<path d="M2.5 8h10M9 4.5 12.5 8 9 11.5"/>',
    "fold": '<path d="M3.5 5.5 8 2l4.5 3.5M3.5 10.5 8 14l4.5-3.5"/>',
    "clockback": '<path d="M3 8a5 5 0 1 0 1.6-3.7"/><path d="M2.75 2.25v2.5h2.5"/><path d="M8 5.25V8l1.75 1.25"/>',
    "code": '<path d="m5.5 4.5-3.5 3.5 3.5 3.5M10.5 4.5 14 8l-3.5 3.5"/>',
    "hand": '<path d="M4 8.5V5.25a1 1 0 0 1 2 0V8m0-.5V3.75a1 1 0 0 1 2 0V7.5m0-.25v-2.5a1 1 0 0 1 2 0V8m0-1a1 1 0 0 1 2 0v3c0 2.5-1.6 4-4 4-2 0-3-1-4-2.75L2.75 9"/>',
}

MARKS: Final = {
    "waiting": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.75"/>',
    "delayed": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M8 5v3.2h2.4" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/>',
    "blocked": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M5.5 8h5" fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round"/>',
    "running": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="2" opacity=".28"/><path class="turn" d="M8 2.75A5.25 5.25 0 0 1 13.25 8" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>',
    "retrying": '<path d="M13 8.25a5 5 0 1 1-1.5-3.75" fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round"/><path d="M13.6 1.9v3.7H9.9z" fill="currentColor"/>',
    "succeeded": '<circle cx="8" cy="8" r="6.25" fill="currentColor"/><path class="cut" d="m5.1 8.3 2 2 3.9-4.5" fill="none" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round"/>',
    "failed": '<rect x="2" y="2" width="12" height="12" rx="2.5" fill="currentColor"/><path class="cut" d="m5.6 5.6 4.8 4.8M10.4 5.6l-4.8 4.8" fill="none" stroke-width="1.75" stroke-linecap="round"/>',
    "cancelled": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="m4.4 11.6 7.2-7.2" stroke="currentColor" stroke-width="1.5"/>',
    "missed": '<path d="M8 1.9 14.1 8 8 14.1 1.9 8z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.6 1.7"/>',
    "broken": '<path d="M4.9 2h6.2l3.4 6-3.4 6H4.9L1.5 8z" fill="currentColor"/><path class="cut" d="M8 4.9v3.7M8 11v.1" fill="none" stroke-width="1.9" stroke-linecap="round"/>',
    "late": '<path d="M8 1.8c.4 0 .8.2 1 .6l5.4 9.7c.5.8-.1 1.7-1 1.7H2.6c-.9 0-1.5-.9-1-1.7L7 2.4c.2-.4.6-.6 1-.6z" fill="currentColor"/><path class="cut" d="M8 5.8v3.3M8 11.4v.1" fill="none" stroke-width="1.75" stroke-linecap="round"/>',
    "paused": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M6.5 6v4M9.5 6v4" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/>',
    "new": '<circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.2 1.9"/>',
}
MARKS["held"] = MARKS["blocked"]
MARKS["up"] = MARKS["flowing"] = MARKS["succeeded"]
MARKS["down"] = MARKS["unserved"] = MARKS["failed"]
MARKS["warn"] = MARKS["growing"] = MARKS["full"] = MARKS["silent"] = MARKS["late"]
MARKS["draining"] = MARKS["paused"]

TONES: Final = {
    **dict.fromkeys(("waiting", "delayed", "blocked", "held", "cancelled", "paused", "draining", "new"), "idle"),
    **dict.fromkeys(("retrying", "missed", "late", "warn", "growing", "full", "silent"), "warn"),
    **dict.fromkeys(("succeeded", "up", "flowing"), "ok"),
    **dict.fromkeys(("failed", "down", "unserved"), "bad"),
    "running": "run",
    "broken": "odd",
}
"""The colour of each mark."""
_PATTERNS: Final = (
    '<pattern id="p-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch-bg" width="5" height="5"/><line class="hatch-line" x1="0" y1="0" x2="0" y2="5"/></pattern>'
    '<pattern id="p-plan" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="plan-line" x1="0" y1="0" x2="0" y2="4"/></pattern>'
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="arrowhead" d="M1 1 7 4 1 7"/></marker>'
)


def tone(status: str) -> str:
    """Return the tone of a status: ok, bad, warn, run, idle or odd."""
    return TONES.get(status, "idle")


def sprite() -> Markup:
    """Return all icons and marks, to be placed once at the top of a page."""
    strokes = 'fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"'
    icons = (
        f'<symbol id="i-{name}" viewBox="0 0 16 16"><g {strokes}>{body}</g></symbol>' for name, body in _ICONS.items()
    )
    marks = (f'<symbol id="m-{name}" viewBox="0 0 16 16">{body}</symbol>' for name, body in MARKS.items())
    return Markup(f"<defs>{''.join(icons)}{''.join(marks)}{_PATTERNS}</defs>")


def icon(name: str, cls: str = "") -> Markup:
    """Return an icon; the text beside it gives its meaning."""
    return Markup('<svg class="i {}" aria-hidden="true"><use href="#i-{}"/></svg>').format(cls, name)


def mark(status: str, label: str = "") -> Markup:
    """Return the mark of a status; `label` is its text for screen readers, if no word stands beside it."""
    word = Markup('<span class="sr">{}</span>').format(label) if label else ""
    shape = status if status in MARKS else "waiting"
    return Markup('<svg class="m t-{}" aria-hidden="true"><use href="#m-{}"/></svg>{}').format(
        tone(status), shape, word
    )


def status_word(status: str, text: object = "") -> Markup:
    """Return the mark and the word of a status."""
    return Markup('<span class="st t-{}">{}<span>{}</span></span>').format(tone(status), mark(status), text or status)


def spiral(size: float = 24, turns: float = 2.6) -> Markup:
    """Return the product's mark: a mainspring."""
    centre, points, steps = size / 2, [], 90
    for step in range(steps + 1):
        part = step / steps
        radius, angle = (0.10 + 0.36 * part) * size, -math.pi / 2 + turns * 2 * math.pi * part
        points.append(f"{centre + radius * math.cos(angle):.1f} {centre + radius * math.sin(angle):.1f}")
    return Markup(
        f'<svg class="spiral" viewBox="0 0 {size} {size}" width="{size}" height="{size}" aria-hidden="true">'
        f'<path d="M{" L".join(points)}"/><circle cx="{centre}" cy="{centre - 0.10 * size:.1f}" r="1.6"/></svg>'
    )
