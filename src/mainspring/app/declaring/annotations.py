"""Read the annotations of a function, as far as they can be evaluated."""

from __future__ import annotations

import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["hints_of"]


def hints_of(func: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations by parameter; an annotation with an unknown name stays text (a type for checkers only)."""
    written: dict[str, Any] = getattr(func, "__annotations__", None) or {}
    if not written:
        return {}
    try:
        return typing.get_type_hints(func, include_extras=True)
    except Exception:  # an annotation is code, and may raise anything
        names = getattr(func, "__globals__", {})
    found = dict(written)
    for name, annotation in written.items():
        if isinstance(annotation, str):
            with suppress(Exception):
                found[name] = eval(annotation, names)
    return found
