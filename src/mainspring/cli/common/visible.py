"""Make untrusted text safe for a terminal: anyone who can write to a store chooses the names in it."""

from __future__ import annotations

from typing import Any

__all__ = ["visible"]


def visible(value: Any) -> Any:
    """Return a text, or all texts in lists and dicts, with escape sequences and control characters spelt out."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {visible(name): visible(item) for name, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, list) else value


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
