"""The filter of a page: turn URL parameters into the text that the app searches by, and back into links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mainspring.core.instants import from_us
from mainspring.core.run import Call, Run
from mainspring.core.showing.filters import KEYS, FilterError, is_term, parse_filter
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.page import BadParameter, View, address

__all__ = ["Token", "WantedRuns", "cursor_of", "run_at_cursor", "text_of"]

_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_CURSOR: Final = re.compile(r"(\d{1,18})\.(.{1,600})", re.DOTALL)
FIELD: Final = "q"
"""The field in which people type a filter; each term becomes a separate parameter."""


class Token(NamedTuple):
    """One condition in the filter box, with the link of its cross."""

    key: str
    text: str
    drop: str


class WantedRuns:
    """The filter in a URL: one parameter per key; a repeated one means "or", a minus in front means "not"."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.problem = ""
        self.terms: dict[str, list[str]] = {}
        for name, values in view.query.items():
            if _is_key(name):
                self.terms[name] = [value[:500] for value in values if value.strip()]
        try:
            self._add(view.text(FIELD))
        except (FilterError, BadParameter) as error:
            self.problem = str(error)

    def _add(self, typed: str) -> None:
        """Add the terms that a person typed; words without a key become a text search."""
        if typed.count('"') % 2:
            raise FilterError(f"a quote is not closed in {typed!r}")
        words = _WORD.findall(typed)
        plain = [word.replace('"', "") for word in words if ":" not in word]
        if plain:
            self.terms.setdefault("text", []).append(" ".join(plain))
        named = [word for word in words if ":" in word]
        for word in named:
            if not is_term(word):
                parse_filter(word, from_us(self._view.now))  # it raises, and says what is wrong
        for term in parse_filter(" ".join(named), from_us(self._view.now)).terms:
            self.terms[f"-{term.key}" if term.negated else term.key] = list(term.values)

    @property
    def text(self) -> str:
        """The filter in the syntax of the app and the command line."""
        return text_of(self.terms)

    def without(self, *keys: str) -> str:
        """Return the filter without some keys."""
        return text_of({key: values for key, values in self.terms.items() if key not in keys})

    def url(self, path: str = "/runs", /, **changes: str | None) -> str:
        """Return the address of this filter with some keys changed, from the first page; None drops a key."""
        terms = {key: values for key, values in self.terms.items() if key not in changes}
        pairs = [(key, value) for key, values in terms.items() for value in values]
        pairs += [(key, value) for key, value in changes.items() if value]
        return address(self._view.root + path, sorted(pairs))

    def tokens(self) -> list[Token]:
        """Return the conditions for the filter box."""
        return [
            Token(key.replace("-", "not "), " or ".join(values), self.url(**{key: None}))
            for key, values in sorted(self.terms.items())
            if values
        ]


def text_of(terms: Mapping[str, Iterable[str]]) -> str:
    """Return conditions as one text."""
    return " ".join(f"{key}:{','.join(map(_quoted, values))}" for key, values in sorted(terms.items()) if values)


def _quoted(value: str) -> str:
    if not re.search(r'[\s,"]', value):
        return value
    return '"' + value.replace('"', "") + '"'


def _is_key(name: str) -> bool:
    key = name.removeprefix("-")
    return key in KEYS or (key.startswith("arg.") and re.search(r"[\s:]", key) is None)


def cursor_of(run: RunView) -> str:
    """Return the position of a run in lists, for a URL."""
    return f"{run.record.created_at}.{run.id}"


def run_at_cursor(cursor: str) -> RunView | None:
    """Return the run after which a page begins, with the fields that stores need."""
    if not cursor:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadParameter(f"after={cursor[:50]!r} is no place in the list; it looks like 1792930800000000.01f3")
    return RunView(Run(id=found[2], call=Call(""), created_at=int(found[1])), None)
