"""Tools to test programs that use mainspring, and stores for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.testing.kit import Kit as Kit

__all__ = ["Kit"]


def __getattr__(name: str) -> object:
    # Tests of a store need no app, so the kit is imported only on request.
    if name == "Kit":
        from mainspring.testing.kit import Kit

        return Kit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
