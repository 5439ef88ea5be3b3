"""Hide secrets in logs and reprs: values marked `Secret`, and arguments named like one. Stores keep the real values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from mainspring.core.references import parameters_of
from mainspring.errors import is_own

__all__ = [
    "HIDDEN",
    "Secret",
    "call_text",
    "is_secret_name",
    "masked",
    "masked_text",
    "parameters_text",
    "without_password",
]

T = TypeVar("T")

HIDDEN: Final = "***"
_NAMES: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|(api|access|private|signing|encryption|ssh)[-_ ]?key|authorization|credential"
    r"|cookie|(?<![a-z])(pass|pwd|auth|jwt|bearer)(?![a-z])",
    re.IGNORECASE,
)
_MOST_LEVELS: Final = 8
_LEFT_OUT: Final = "…"
_URL_CHARS: Final = 2000
ARGUMENTS_CHARS: Final = 80
"""Show at most this many characters of a call's arguments in one line."""


@dataclass(frozen=True, slots=True, repr=False)
class Secret(Generic[T]):
    """A value that is stored and passed on unchanged, but shown as `***`; read it from `value`."""

    value: T

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return HIDDEN


class _MaskedValue:
    """An object whose repr is a given text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_hidden: Final = _MaskedValue(HIDDEN)


def masked(
    args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that are safe to show: those named password, token, secret and the like are hidden.

    `func` provides the names of positional arguments.
    """
    names = _positional_names(func) if func is not None else ()
    shown = [
        _hidden if number < len(names) and is_secret_name(names[number]) else _masked(value, 0)
        for number, value in enumerate(args)
    ]
    return tuple(shown), _masked(dict(kwargs), 0)


def masked_text(args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None) -> str:
    """Return arguments as a call shows them, with secrets masked."""
    args, kwargs = masked(args, kwargs, func)
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


def _masked(value: Any, depth: int) -> Any:
    if depth > _MOST_LEVELS:
        return _hidden
    kind = type(value)
    if isinstance(value, Mapping):
        return {name: _hidden if is_secret_name(name) else _masked(item, depth + 1) for name, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_masked(item, depth + 1) for item in value)
    if isinstance(value, str):
        return without_password(value) if "://" in value else value
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    if names and kind is not Secret:
        parts = _masked({name: getattr(value, name, None) for name in names}, depth)
        return _MaskedValue(f"{kind.__qualname__}({', '.join(f'{name}={part!r}' for name, part in parts.items())})")
    return value


def call_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None = None) -> str:
    """Write a call in one short line, such as `send_mail('ann', password=***)`; never raise, whatever the arguments.

    Read no more of the arguments than the line shows. Leave out positional arguments without `func`: any of them may be
    a secret.
    """
    names = () if func is None else _known_names(func)
    shown: list[str] = []
    room = ARGUMENTS_CHARS
    for number, value in enumerate(args) if func is not None else ():
        if room <= 0:
            break
        secret = number < len(names) and is_secret_name(names[number])
        shown.append(HIDDEN if secret else _brief(value, room, 0))
        room -= len(shown[-1]) + 2
    complete = len(shown) == len(args)
    for keyword, value in kwargs.items():
        if room <= 0:
            complete = False
            break
        shown.append(f"{keyword}={HIDDEN if is_secret_name(keyword) else _brief(value, room, 0)}")
        room -= len(shown[-1]) + 2
    return f"{name}({', '.join([*shown, *([] if complete else [_LEFT_OUT])])})"


def _brief(value: Any, room: int, depth: int) -> str:
    """Write a value in about this many characters, without its secrets."""
    try:
        return _cut(_plain(value, room, depth), room)
    except BaseException as error:  # a user's `__repr__` may even raise SystemExit
        if not is_own(error):
            raise
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def _plain(value: Any, room: int, depth: int) -> str:
    kind = type(value)
    if isinstance(value, str | bytes | bytearray):
        start = value[: room + 1]
        if isinstance(start, str) and "://" in start:
            start = without_password(str(value[:_URL_CHARS]))
        return repr(start)
    if depth > _MOST_LEVELS:
        return _LEFT_OUT
    if isinstance(value, Mapping):
        pairs = (
            f"{_brief(name, room, depth + 1)}: {HIDDEN if is_secret_name(name) else _brief(item, room, depth + 1)}"
            for name, item in value.items()
        )
        return f"{{{_listed(pairs, room)}}}"
    if kind in (list, tuple, set, frozenset):
        inside = _listed((_brief(item, room, depth + 1) for item in value), room)
        if kind is tuple:
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        return f"[{inside}]" if kind is list else f"{{{inside}}}" if value else f"{kind.__name__}()"
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    if names and kind is not Secret:
        parts = (
            f"{name}={HIDDEN if is_secret_name(name) else _brief(getattr(value, name, None), room, depth + 1)}"
            for name in names
        )
        return f"{kind.__qualname__}({_listed(parts, room)})"
    return repr(value)


def _listed(texts: Iterable[str], room: int) -> str:
    shown: list[str] = []
    for text in islice(texts, room):
        shown.append(text)
        room -= len(text) + 2
        if room <= 0:
            break
    return ", ".join(shown) if room > 0 else f"{', '.join(shown)}, {_LEFT_OUT}"


def _cut(text: str, room: int) -> str:
    text = text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: room + 1])
    return text if len(text) <= room else f"{text[: max(1, room - 1)]}{_LEFT_OUT}"


def _known_names(func: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return _cached_names(func)
    except TypeError:  # it cannot be hashed
        return _positional_names(func)


def is_secret_name(name: object) -> bool:
    """Return True if a value with this name must be hidden: password, token, secret and the like."""
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    return isinstance(text, str) and _NAMES.search(text) is not None


def _positional_names(func: Callable[..., Any]) -> tuple[str, ...]:
    parameters = parameters_of(func).values()
    return tuple(each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))


_cached_names = lru_cache(maxsize=1024)(_positional_names)


def parameters_text(func: Callable[..., Any], *, annotations: bool = True) -> str:
    """Return the parameters of a function as its signature shows them, with secret defaults hidden."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some built-ins have no signature
        return "(...)"
    shown = [each.replace(annotation=_bare(each.annotation)) for each in signature.parameters.values()]
    signature = signature.replace(return_annotation=_bare(signature.return_annotation))
    if not annotations:
        signature = signature.replace(return_annotation=signature.empty)
        shown = [each.replace(annotation=each.empty) for each in shown]
    hidden = masked((), {each.name: each.default for each in shown if each.default is not each.empty})[1]
    shown = [each.replace(default=hidden.get(each.name, each.empty)) for each in shown]
    return str(signature.replace(parameters=shown))


class _BareText(str):
    """A text that a signature shows without quotes."""

    __repr__ = str.__str__


def _bare(annotation: Any) -> Any:
    """Return an annotation as people write it; with postponed evaluation, annotations are texts."""
    return _BareText(annotation) if isinstance(annotation, str) else annotation


def without_password(url: object) -> str:
    """Return a URL without its password; return the repr of any other value, such as a store object."""
    if not isinstance(url, str):
        return repr(url)
    # Match up to the last @: a password may contain any character, quoted properly or not.
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    # An option may itself be a quoted URL.
    shown = re.sub(r"(?i)(%3a%2f%2f[^%&;\s]*%3a)[^&;\s]*(%40)", r"\1***\2", shown)
    return re.sub(r"(?i)([?&;](?:[^=&]*(?:passw|pwd|secret|token)[^=&]*|auth)=)[^&;\s]*", r"\1***", shown)
