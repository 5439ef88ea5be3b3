"""Read exclusions, also from files. Only this module of the triggers opens files, when a job is declared."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any, Final

from mainspring.triggers.exclusions.ics import events_of
from mainspring.triggers.exclusions.reading import exclusions_of
from mainspring.triggers.exclusions.rules import Exclusions

__all__ = ["read_exclusions"]

MOST_FILE_BYTES: Final = 4 * 1024 * 1024


def read_exclusions(given: Any) -> Exclusions:
    """Read exclusions: dates, spans, weekdays, windows, the path of an iCalendar file, or a list of these."""
    return exclusions_of(given, _read_file)


def _read_file(path: str | PathLike[str]) -> Exclusions:
    name = fspath(path)
    try:
        with open(name, "rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"exclude: cannot read {name!r}: {error.strerror or error}") from error
    if len(content) > MOST_FILE_BYTES:
        raise ValueError(f"exclude: {name!r} has more than {MOST_FILE_BYTES >> 20} MiB")
    try:
        return events_of(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"exclude: {name!r}: {error}") from error
