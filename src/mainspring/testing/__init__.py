"""Tools for tests of programs that use mainspring, and of stores for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.testing.kit import Kit as Kit

__all__ = ["Kit"]


def __getattr__(name: str) -> object:
    # The tests of a store need nothing of an app, so the kit is imported when it is asked for.
    if name == "Kit":
        from mainspring.testing.kit import Kit

        return Kit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
