"""The zone in which a person reads times."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

__all__ = ["zone_of"]


@lru_cache(maxsize=64)
def _named(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        return None


def zone_of(name: str, default: tzinfo) -> tzinfo:
    """Return the zone of this name, or the default for an empty or unknown one."""
    if name.lower() == "utc":
        return UTC
    return (_named(name) if 0 < len(name) < 64 else None) or default
