"""A request to the API, with checked parameters and body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from mainspring.core.quantities import read_seconds
from mainspring.core.showing.filters import KEYS
from mainspring.dashboard.filtering import text_of
from mainspring.dashboard.page import BadParameter

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["ApiRequest"]

MOST_CHARS: Final = 4000


class ApiRequest:
    """A request: the app, the parameters of path and query, and the body."""

    def __init__(
        self, app: Mainspring, params: Mapping[str, str], query: Mapping[str, list[str]], body: Mapping[str, Any]
    ) -> None:
        self.app, self.params, self.query, self.body = app, params, query, body
        self.now = app.now()

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        given = self.query.get(name, [])
        if len(given) > 1 or (given and len(given[0]) > MOST_CHARS):
            raise BadParameter(f"{name} is given {len(given)} times or is too long")
        return given[0] if given else default

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a number from the query."""
        found = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,9}", found) or not least <= int(found) <= most:
            raise BadParameter(f"{name}={found[:20]!r} is not a number from {least:,} to {most:,}")
        return int(found)

    def since(self, default: timedelta) -> timedelta:
        """Return the length of the time range to read."""
        found = self.text("since")
        if not found:
            return default
        seconds = read_seconds(found)
        if seconds is None or not 0 < seconds <= 366 * 86_400:
            raise BadParameter(f"since={found[:20]!r} is not a length of time up to a year; write 15m, 1h or 7d")
        return timedelta(seconds=seconds)

    @property
    def filter(self) -> str:
        """The filter in the query: `filter` as one text, plus a parameter for each key."""
        terms = {
            name: [value[:500] for value in values]
            for name, values in self.query.items()
            if name.removeprefix("-") in KEYS or name.removeprefix("-").startswith("arg.")
        }
        return " ".join(part for part in (self.text("filter"), text_of(terms)) if part)

    def field(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Return a field of the body; raise if it has another type."""
        found = self.body.get(name, default)
        if found is not None and (not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool)):
            raise BadParameter(f"{name} must be {_words(kind)}, not {type(found).__name__}")
        return found

    def required(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return a field of the body; raise if it is missing."""
        found = self.field(name, kind)
        if found is None:
            raise BadParameter(f"the body needs {name}")
        return found

    def later(self) -> timedelta | None:
        """Return the field `in`: a number of seconds from now, or a text such as 5m."""
        found = self.field("in", (int, float, str))
        seconds = read_seconds(found) if isinstance(found, str) else found
        if found is not None and (seconds is None or not 0 <= seconds <= 1e10):
            raise BadParameter(f"in={found!r} is not a length of time; give seconds, or 5m, 2h, 1d")
        return None if seconds is None else timedelta(seconds=seconds)


def _words(kind: type | tuple[type, ...]) -> str:
    names = {
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "true or false",
        dict: "an object",
        list: "a list",
    }
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(dict.fromkeys(names[each] for each in kinds))
