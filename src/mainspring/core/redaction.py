"""Hide secrets in logs and reprs: values marked `Secret`, and arguments with a telling name. Stores keep them as is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Generic, TypeVar

__all__ = ["HIDDEN", "Secret", "masked", "without_password"]

T = TypeVar("T")

HIDDEN: Final = "***"
_NAMES: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|(api|access|private|signing|encryption|ssh)[-_ ]?key|authorization|credential"
    r"|cookie|(?<![a-z])(pass|pwd|auth|jwt|bearer)(?![a-z])",
    re.IGNORECASE,
)
_MOST_LEVELS: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class Secret(Generic[T]):
    """A value that is stored and passed on unchanged, but shown as `***`; read it from `value`."""

    value: T

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return HIDDEN


class _Placeholder:
    """An object whose repr is a given text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_hidden: Final = _Placeholder(HIDDEN)


def masked(
    args: Sequence[Any], kwargs: Mapping[str, Any], func: Callable[..., Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that are safe to show: those called password, token, secret and the like are hidden.

    With `func`, positional arguments go by the names of its parameters.
    """
    names = _positional_names(func) if func is not None else ()
    shown = [
        _hidden if number < len(names) and _is_secret(names[number]) else _masked(value, 0)
        for number, value in enumerate(args)
    ]
    return tuple(shown), _masked(dict(kwargs), 0)


def _masked(value: Any, depth: int) -> Any:
    if depth > _MOST_LEVELS:
        return _hidden
    kind = type(value)
    if isinstance(value, Mapping):
        return {name: _hidden if _is_secret(name) else _masked(item, depth + 1) for name, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_masked(item, depth + 1) for item in value)
    if isinstance(value, str):
        return without_password(value) if "://" in value else value
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    if names and kind is not Secret:
        parts = _masked({name: getattr(value, name, None) for name in names}, depth)
        return _Placeholder(f"{kind.__qualname__}({', '.join(f'{name}={part!r}' for name, part in parts.items())})")
    return value


def _is_secret(name: object) -> bool:
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    return isinstance(text, str) and _NAMES.search(text) is not None


def _positional_names(func: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # some built-ins tell nothing about themselves
        return ()
    return tuple(each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))


def without_password(url: str) -> str:
    """Return a URL without its password."""
    # Up to the last @, since a password may hold any character, written as it should be or not.
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&;][^=&]*(?:passw|pwd|secret|token)[^=&]*=)[^&;\s]*", r"\1***", shown)
