"""Small drawings inside a table row: the last runs, bars, meters, slots, arrivals and departures."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from mainspring.dashboard.looks.charts import line, per_cent, rect, svg

__all__ = ["bars", "in_out", "meter", "slots", "strip"]


def strip(letters: str, shares: Sequence[float] = (), label: str = "") -> Markup:
    """Draw the last runs, oldest first: s(ucceeded) f(ailed) m(issed) c(ancelled) r(unning) -(none).

    The height is the duration of a run, as a share. Failures hang below the line.
    """
    wide, gap, up, down = 4, 2, 15, 9
    drawn: dict[str, list[str]] = {}
    for number, letter in enumerate(letters):
        x = number * (wide + gap)
        tall = max(3.0, round((shares[number] if number < len(shares) else 1.0) * up, 1))
        if letter in "sr":
            drawn.setdefault("s-ok" if letter == "s" else "s-run", []).append(f"M{x} {up}v-{tall:g}h{wide}v{tall:g}z")
        elif letter == "f":
            drawn.setdefault("s-bad", []).append(f"M{x} {up + 2}h{wide}v{down}h-{wide}z")
        elif letter == "m":
            drawn.setdefault("s-miss", []).append(f"M{x + 0.6:g} {up + 2.6:g}h2.8v{down - 1.2:g}h-2.8z")
        elif letter == "c":
            drawn.setdefault("s-idle", []).append(f"M{x} {up - 3}h{wide}v3h-{wide}z")
        else:
            drawn.setdefault("s-none", []).append(f"M{x} {up - 1}h{wide}v1.5h-{wide}z")
    # Use one path per kind: otherwise fifty strips on a page would add a thousand nodes.
    parts = [Markup(f'<path class="{cls}" d="{"".join(pieces)}"/>') for cls, pieces in drawn.items()]
    width = max(0, len(letters) * (wide + gap) - gap)
    return svg("strip", up + 2 + down, label, parts, str(width))


def bars(
    values: Sequence[float], cls: str = "b-ok", width: int = 96, height: int = 24, *, hang: bool = False
) -> Markup:
    """Draw small bars; bars of failures hang."""
    top, step = max(values, default=0) or 1, width / max(1, len(values))
    parts = []
    for number, value in enumerate(values):
        tall = max(1.0, value / top * height) if value else 1.0
        y = 0 if hang else height - tall
        parts.append(rect(cls if value else "b-none", f"{number * step:.2f}", y, f"{step - 1:.2f}", tall))
    return svg("spark", height, "", parts, str(width))


def meter(share: float, cls: str = "", ticks: Sequence[float] = (), height: int = 6, label: str = "") -> Markup:
    """Draw the used share of something; a tick may mark the usual share."""
    parts = [rect("bg", "0", 0, "100%", height, height / 2)]
    parts.append(rect("fg", "0", 0, per_cent(min(1.0, max(0.0, share)) * 100), height, height / 2))
    parts += [line("mt", per_cent(tick * 100), per_cent(tick * 100), 0, height) for tick in ticks]
    return svg(f"meter {cls}", height, label, parts)


def slots(busy: int, total: int, stuck: int = 0, per_row: int = 8) -> Markup:
    """Draw the slots of a process as squares: busy, free, stuck."""
    size, gap, parts = 9, 3, []
    for number in range(total):
        x, y = number % per_row * (size + gap), number // per_row * (size + gap)
        cls = "sl-bad" if number < stuck else "sl-busy" if number < busy else "sl-free"
        inset = 0.5 if cls == "sl-free" else 0
        side = size - 2 * inset
        parts.append(rect(cls, f"{x + inset:g}", y + inset, f"{side:g}", side, 2))
    rows = -(-total // per_row)
    width = max(0, min(total, per_row) * (size + gap) - gap)
    return svg("slots", max(0, rows * (size + gap) - gap), f"{busy} of {total} slots busy", parts, str(width))


def in_out(ins: Sequence[float], outs: Sequence[float], width: int = 132, height: int = 30) -> Markup:
    """Draw the arrivals in a queue and the departures from it."""
    if len(ins) < 2:
        return Markup("")
    top, step = max(*ins, *outs) or 1, width / (len(ins) - 1)

    def points(values: Sequence[float]) -> str:
        return " ".join(
            f"{k * step:.1f},{height - 2 - value / top * (height - 4):.1f}" for k, value in enumerate(values)
        )

    return Markup(
        f'<svg class="io" width="{width}" height="{height}" aria-hidden="true">'
        f'<polyline class="io-in" points="{points(ins)}"/><polyline class="io-out" points="{points(outs)}"/></svg>'
    )
