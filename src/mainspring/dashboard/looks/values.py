"""User values for pages: text only, secrets hidden, coloured by type, cut at a limit.

Everything that comes from a user's code goes through here or through Jinja's escaping.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from markupsafe import Markup, escape

from mainspring.core.references import parameters_of
from mainspring.core.showing.redaction import call_text, masked
from mainspring.core.showing.searching import RunCount
from mainspring.dashboard.looks.times import NO_TIME

__all__ = ["argument_names", "arguments_text", "both_ends", "count_text", "cut_middle", "percent", "pretty"]
__all__ += ["shown_arguments", "shown_value"]

MOST_CHARS: Final = 4000
"""The most characters of a value that a page shows."""
_LEFT_OUT: Final = "…"
END_CHARS: Final = 8
"""The number of characters at the end of a long name that are always shown."""


def cut_middle(text: str, most: int = 40) -> str:
    """Return a name of at most this many characters, cut in the middle: its ends say most."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}{_LEFT_OUT}{text[len(text) - (most - 1 - head) :]}"


def shown_value(value: Any, most: int = MOST_CHARS) -> Markup:
    """Return a value as markup: its repr, escaped, in the colour of its type."""
    kind = _kind(value)
    return Markup('<span class="{}">{}</span>').format(kind, _text(value, most))


def shown_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None = None
) -> list[tuple[str, Markup]]:
    """Return arguments by name, or by number if the name is unknown, with secrets hidden."""
    try:
        hidden_args, hidden_kwargs = masked(args, kwargs, func)
        names = argument_names(func, len(hidden_args))
    except Exception as error:  # a user's class may do anything
        return [("?", shown_value(f"cannot be shown: {type(error).__name__}"))]
    listed = [(name, shown_value(value)) for name, value in zip(names, hidden_args, strict=True)]
    return listed + [(name, shown_value(value)) for name, value in hidden_kwargs.items()]


def arguments_text(args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None = None) -> str:
    """Return arguments in one short line, with secrets hidden."""
    return call_text("", args, kwargs, func)[1:-1]


def count_text(count: RunCount) -> str:
    """Return a count as text: 12 if complete, 10,000+ if capped; a dash if a partial search found none."""
    return f"{count.number:,}{'' if count.exact else '+'}" if count.number or count.exact else NO_TIME


def percent(share: float) -> str:
    """Return a share in per cent: `40 %`."""
    return f"{share:.0%}".replace("%", " %")


def both_ends(text: str, most: int = 60) -> Markup:
    """Return a name whose middle the browser cuts if there is no room: names often differ at their ends."""
    text = cut_middle(text, most)
    if len(text) <= 2 * END_CHARS:
        return escape(text)
    pair = '<span class="ends" dir="auto"><span>{}</span><span>{}</span></span>'
    return Markup(pair).format(text[:-END_CHARS], text[-END_CHARS:])


def argument_names(func: Callable[..., Any] | None, number: int) -> list[str]:
    """Return the names of positional arguments, or their numbers if they have no names."""
    known = list(parameters_of(func))
    return [known[k] if k < len(known) else str(k) for k in range(number)]


def _kind(value: Any) -> str:
    if isinstance(value, str | bytes):
        return "s"
    if isinstance(value, bool | int | float | Decimal | datetime | date | timedelta):
        return "d"
    return "z" if value is None else "v"


def _text(value: Any, most: int) -> str:
    try:
        text = pretty(value) if isinstance(value, Mapping | list | tuple) and len(value) <= 1000 else repr(value)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= most else f"{text[:most]}{_LEFT_OUT} ({len(text):,} characters)"


def pretty(value: Any, wide: int = 80) -> str:
    """Return a value on one line, or over several if a container is wider than `wide`."""
    line = repr(value)
    if len(line) <= wide or not isinstance(value, Mapping | list | tuple):
        return line
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    except (TypeError, ValueError):
        return line
