"""A small picture of a job's health, for READMEs and wikis."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

__all__ = ["badge"]

_COLOURS: Final = {"up": "#2b9a5b", "late": "#c77f00", "down": "#d63a2f", "paused": "#858ea0", "new": "#858ea0"}
CHAR_PIXELS: Final = 6.6
MOST_CHARS: Final = 40


def badge(name: str, state: str) -> str:
    """Return the picture as SVG."""
    label = name if len(name) <= MOST_CHARS else f"{name[: MOST_CHARS - 1]}…"
    left, right = round(len(label) * CHAR_PIXELS) + 14, round(len(state) * CHAR_PIXELS) + 14
    whole = left + right
    shape = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" aria-label="{label}: {state}">'
        '<rect width="{whole}" height="20" rx="4" fill="#474f60"/>'
        '<path d="M{left} 0h{flat}a4 4 0 0 1 4 4v12a4 4 0 0 1-4 4h-{flat}z" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">'
        '<text x="{x1}" y="14">{label}</text><text x="{x2}" y="14">{state}</text></g></svg>'
    )
    return str(
        Markup(shape).format(
            whole=whole,
            label=label,
            state=state,
            left=left,
            flat=right - 4,
            colour=_COLOURS.get(state, _COLOURS["new"]),
            x1=left / 2,
            x2=left + right / 2,
        )
    )
