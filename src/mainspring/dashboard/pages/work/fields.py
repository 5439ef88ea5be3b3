"""Runs in addresses, and the fields that forms about runs share: start time and priority."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from mainspring.core.quantities import read_seconds
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.page import BadParameter, NoSuchThing, View
from mainspring.errors import RunNotFound

__all__ = ["read_delay", "read_priority", "run_of"]


def run_of(view: View, run_id: str) -> RunView:
    """Return a run; raise NoSuchThing if there is none with this id."""
    try:
        return view.app.get(run_id)
    except RunNotFound:
        raise NoSuchThing("run", run_id) from None


def read_delay(form: Mapping[str, str], name: str) -> timedelta | None:
    """Read the delay until a run starts; None if the field is empty."""
    text = form.get(name, "").strip()
    seconds = read_seconds(text) if text else None
    if text and seconds is None:
        raise BadParameter(f"{text[:50]!r} is not a length of time; write 30s, 5m, 2h or 1d")
    return None if seconds is None else timedelta(seconds=seconds)


def read_priority(form: Mapping[str, str]) -> int | None:
    """Read a priority; None if the field is empty."""
    text = form.get("priority", "").strip()
    if text and not re.fullmatch(r"-?\d{1,3}", text):
        raise BadParameter(f"the priority {text[:20]!r} is not a number from -100 to 100")
    return int(text) if text else None
