"""Interrupt some work wherever a signal handler may: when a function begins, and when a call into C has returned."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class Interrupted(BaseException):
    """What a signal handler raises: no error of a program."""


def interrupted_everywhere(work: Callable[[], object], inside: tuple[str, ...]) -> Iterator[str]:
    """Do some work again and again, each time interrupted one step later; yield after each, until it is through.

    Only steps in modules whose names begin with a text of `inside` count.
    """
    number = 1
    while place := _interrupted_at(number, work, inside):
        yield place
        number += 1


def _interrupted_at(number: int, work: Callable[[], object], inside: tuple[str, ...]) -> str:
    """Do some work, interrupted at one of its steps; return that place, or an empty text if it has fewer steps."""
    left, place = number, ""

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left, place
        if frame.f_code.co_flags & inspect.CO_GENERATOR:  # what is raised while one is deleted goes nowhere
            return
        if event in ("call", "c_return") and str(frame.f_globals.get("__name__")).startswith(inside):
            left -= 1
            if left == 0:
                place = f"{frame.f_globals['__name__']}:{frame.f_lineno} ({frame.f_code.co_name}, {event})"
                raise Interrupted(place)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    except Interrupted:
        pass
    finally:
        sys.setprofile(before)
    return place
