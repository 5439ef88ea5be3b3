"""Gates limit the runs of a key: how many go on at once, or how many start in a period. Pure: a store keeps the state.

A run names one gate and carries its limit as text. Each running run of the gate is a slot, so no slot can leak. The
generic cell rate algorithm keeps the rate: `tat` is the instant at which the next start is due if all start evenly.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.quantities import check_count

__all__ = ["KEY_GATE", "PARKED", "QUEUE_GATE", "STARTS", "GateState", "Limit", "judge", "key_of"]
__all__ += ["limit_of", "make_limit", "room"]

QUEUE_GATE: Final = "queue:"
"""The prefix of a queue's gate; every run of the queue passes that gate, besides the gate that the run names."""
KEY_GATE: Final = "key:"
"""The prefix of the gate of a task, or of a key of its limit."""
STARTS: Final = 0
"""The verdict on a run that may start."""
PARKED: Final = -1
"""The verdict on a run for which no slot is free: it stays blocked until a run of its gate ends."""
TOLERANCE_US: Final = SECOND // 10
"""A claim may come this much late and still use the start that was due."""
MOST_AT_ONCE: Final = 1_000_000
"""The highest limit, which also stands for no limit."""
KEY_CHARS: Final = 200
"""The longest key of a limit, in characters."""
_RATE: Final = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*(s|sec|second|m|min|minute|h|hour|d|day)s?")
_PERIOD_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Limit(msgspec.Struct, frozen=True, gc=False):
    """The most runs at once (None: any number), and the interval between starts; `burst` runs may start together."""

    at_once: int | None = None
    every_us: int = 0
    burst: int = 1

    def to_text(self) -> str:
        """Return the limit as a run carries it, `2/0/1` for two at once."""
        return f"{'' if self.at_once is None else self.at_once}/{self.every_us}/{self.burst}"

    @classmethod
    def from_text(cls, text: str) -> Limit:
        """Rebuild a limit from the text of `to_text`; raise ValueError if the text is wrong."""
        at_once, every_us, burst = text.split("/")
        return cls(int(at_once) if at_once else None, int(every_us), int(burst))


class GateState(msgspec.Struct, gc=False):
    """The state of a gate in a store: the number that a person has set for all its runs, and the state of its rate."""

    allowed: int | None = None
    tat: int = 0
    line: int = 0  # the last instant that `judge` returned as a time to look again


def judge(limit: Limit, state: GateState, running: int, now: int) -> int:
    """Return STARTS, PARKED, or the instant at which to look at the run again; a start changes the state.

    A run that comes too early for the rate gets the next place in a line. The place is only a time to look again: the
    claim of the run uses up the start. So the rate holds whenever workers come, also after an outage.
    """
    at_once = limit.at_once if state.allowed is None else state.allowed
    if at_once is not None and running >= at_once:
        return PARKED
    if not limit.every_us:
        return STARTS
    early = state.tat - (limit.burst - 1) * limit.every_us
    if early <= now:
        state.tat = max(state.tat, now - min(TOLERANCE_US, limit.every_us)) + limit.every_us
        return STARTS
    state.line = max(state.line + limit.every_us, early, now + 1)
    return state.line


@lru_cache(1000)
def limit_of(spec: str | None) -> Limit:
    """Return the limit that a run carries; a damaged one becomes one run at a time."""
    try:
        return Limit() if spec is None else Limit.from_text(spec)
    except ValueError:
        return Limit(1)


def room(allowed: int | None, parked: Iterable[str | None], running: int) -> int:
    """Return how many more runs a gate lets start, by its number or else by the limits of its parked runs."""
    if allowed is None:
        own = [limit_of(spec).at_once for spec in parked]
        allowed = max((MOST_AT_ONCE if number is None else number for number in own), default=0)
    return max(0, allowed - running)


def make_limit(limit: int | None, rate: str | None, burst: int | None = None) -> Limit | None:
    """Make the limit of a task from its options; return None if it has none.

    `rate` is a number of starts in a period: `10/s`, `100/m`, `5000/h`, `3/10s`. `burst` of them may start together.
    """
    at_once = None if limit is None else check_count("limit", limit, least=1, most=MOST_AT_ONCE)
    if rate is None:
        if burst is not None:
            raise ValueError("burst says how many starts of a rate may come together; give a rate, too: rate='100/m'")
        return None if at_once is None else Limit(at_once)
    found = _RATE.fullmatch(rate.strip()) if isinstance(rate, str) else None
    number = int(found[1]) if found else 0
    period = float(found[2] or 1) * _PERIOD_SECONDS[found[3][0]] if found else 0.0
    every_us = int(period * SECOND / number) if number else 0
    if not every_us:
        raise ValueError(f"rate is {rate!r}; write a number of starts and a period: '10/s', '100/m', '5000/h', '3/10s'")
    return Limit(at_once, every_us, check_count("burst", 1 if burst is None else burst, least=1, most=MOST_AT_ONCE))


def key_of(pattern: str, arguments: Mapping[str, Any], option: str = "limit_key") -> str:
    """Return the key of a limit: its pattern, filled in with the call's arguments by name.

    `tenant-{tenant}` takes the argument `tenant`, `{order.customer}` an attribute of `order`, and `{address[city]}` an
    item of `address`.
    """
    try:
        key = string.Formatter().vformat(pattern, (), arguments)
    except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"{option} {pattern!r} cannot be filled in with the arguments {', '.join(arguments) or '(none)'}: {error}"
        ) from None
    if len(key) > KEY_CHARS:
        raise ValueError(f"limit_key {pattern!r} gives a key of {len(key)} characters; at most {KEY_CHARS} are kept")
    return key
