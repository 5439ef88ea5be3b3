"""When a failed run is tried again. Pure: chance comes in as `noise`, a number in [0, 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["Backoff", "Policy", "delay_after"]

Delays = Callable[[int], float]


class Backoff(msgspec.Struct, frozen=True):
    """Exponential delays: `first`, `first * factor`, ... at most `longest` seconds, `jitter` of it left to chance."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 3600.0
    jitter: float = 0.5

    def delay(self, failures: int, noise: float) -> float:
        """Return the seconds to wait after the `failures`-th failure."""
        # 2.0 ** 1100 overflows; long before that the longest delay is reached.
        full = min(self.longest, self.first * self.factor ** min(failures - 1, 64))
        return full * (1 - self.jitter * noise)


class Policy(msgspec.Struct, frozen=True):
    """How a run is executed, retried and kept; shared by all jobs that say nothing special."""

    retries: int = 0
    backoff: Backoff | tuple[float, ...] | Delays = Backoff()
    timeout: float | None = None
    retention: float | None = None
    priority: int = 0
    delivery: str = "at_least_once"
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    hook: Any = None
    then: tuple[Any, ...] = ()

    def wants_retry(self, failures: int, exception: BaseException | None) -> bool:
        """Tell whether a run that has now failed `failures` times is tried again."""
        if failures > self.retries:
            return False
        if exception is not None and self.give_up_on and isinstance(exception, self.give_up_on):
            return False
        return exception is None or not self.retry_on or isinstance(exception, self.retry_on)


DEFAULT_POLICY = Policy()


def delay_after(backoff: Backoff | tuple[float, ...] | Delays, failures: int, noise: float) -> float:
    """Return the seconds to wait after the `failures`-th failure; a list's last delay repeats."""
    if isinstance(backoff, Backoff):
        return backoff.delay(failures, noise)
    if isinstance(backoff, tuple):
        return backoff[min(failures, len(backoff)) - 1] if backoff else 0.0
    return max(0.0, float(backoff(failures)))
