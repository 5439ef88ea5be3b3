"""Read a trigger's plain data back. The data come from a store, so each value is checked."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from mainspring.triggers.zones import MAX_INSTANT, MIN_INSTANT, Zone, astimezone, zone_of

__all__ = ["check_jitter", "read_instant", "read_jitter", "read_optional_instant", "read_zone"]


def read_instant(data: Mapping[str, Any], name: str) -> int:
    """Return an instant."""
    value = data.get(name)
    if type(value) is not int or not MIN_INSTANT <= value <= MAX_INSTANT:
        raise ValueError(f"{name} is not an instant in microseconds since 1970: {value!r}")
    return value


def read_optional_instant(data: Mapping[str, Any], name: str) -> int | None:
    """Return an instant, or None if there is none."""
    return None if data.get(name) is None else read_instant(data, name)


def read_zone(data: Mapping[str, Any]) -> Zone:
    """Return the time zone."""
    name = data.get("timezone")
    if not isinstance(name, str):
        raise ValueError(f"timezone is not a name: {name!r}")
    return zone_of(astimezone(name))


def read_jitter(data: Mapping[str, Any]) -> float | None:
    """Return the jitter."""
    return check_jitter(data.get("jitter"))


def check_jitter(jitter: float | None) -> float | None:
    """Return a jitter; raise an error unless it is None or a number of seconds from 0 on."""
    if jitter is None:
        return None
    if not isinstance(jitter, int | float) or not isfinite(jitter) or jitter < 0:
        raise ValueError(f"jitter is a number of seconds from 0 on, not {jitter!r}")
    return jitter
