"""The policy of a run: how it is executed, retried and kept. Pure: chance comes in as `noise`, a number in [0, 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from mainspring.core.quantities import LONGEST_DELAY_SECONDS, check_number

__all__ = [
    "DEFAULT_POLICY",
    "Backoff",
    "Policy",
    "bounded",
    "delay_after",
    "kind_name",
    "policy_from_data",
    "policy_to_data",
]

Delays = Callable[[int], float | timedelta]


def bounded(delay: float) -> float:
    """Limit a delay to the range that every store can add to its time."""
    return min(max(0.0, delay), LONGEST_DELAY_SECONDS)


class Backoff(msgspec.Struct, frozen=True):
    """Exponential delays: `first`, `first * factor`, ... up to `longest` seconds; `jitter` is their random share."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 3600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first", "factor", "longest"):  # `delay` bounds values that are too long
            check_number(f"{name} of a Backoff", getattr(self, name), least=0, most=math.inf)
        check_number("jitter of a Backoff", self.jitter, least=0, most=1)

    def delay(self, failures: int, noise: float) -> float:
        """Return the seconds to wait after the `failures`-th failure."""
        try:
            full = min(self.longest, self.first * self.factor ** min(failures - 1, 64))
        except OverflowError:
            full = self.longest
        return full * (1 - self.jitter * noise)


class Policy(msgspec.Struct, frozen=True):
    """The rules by which a run is executed, retried and kept. Jobs with the default policy share one object.

    Callables and exception types may be objects or references `module:name`. Exceptions are compared by name, so
    reading a policy never imports a name that somebody wrote into a store.
    """

    retries: int = 0
    backoff: Backoff | tuple[float, ...] | Delays | str = Backoff()
    timeout: float | None = None
    retention: float | None = None
    priority: int = 0
    delivery: str = "at_least_once"
    retry_on: tuple[type[BaseException] | str, ...] = ()
    give_up_on: tuple[type[BaseException] | str, ...] = ()
    isolation: str | None = None
    """`process` executes the run in a separate child process, which can be killed at once."""
    hook: Callable[..., Any] | str | None = None
    """A callable that gets the finished run. It executes as a separate run."""

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        found = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [pair for pair, default in zip(found, self.__struct_defaults__, strict=True) if pair[1] != default]

    def wants_retry(self, failures: int, exception: BaseException | None) -> bool:
        """Return True if a run should be tried again after its `failures`-th failure."""
        if failures > self.retries:
            return False
        if exception is None:
            return True
        if self.give_up_on and _is_one_of(exception, self.give_up_on):
            return False
        return not self.retry_on or _is_one_of(exception, self.retry_on)


def kind_name(kind: type | str) -> str:
    """Return the reference of an exception type; the bare name for a built-in one."""
    if isinstance(kind, str):
        return kind
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}:{kind.__qualname__}"


def _is_one_of(exception: BaseException, kinds: tuple[type[BaseException] | str, ...]) -> bool:
    names = {kind_name(cls) for cls in type(exception).__mro__}
    return any(kind_name(kind) in names for kind in kinds)


DEFAULT_POLICY = Policy()


def policy_to_data(policy: Policy, reference: Callable[[Any], str] | None = None) -> dict[str, Any]:
    """Return the fields of a policy that differ from the default as plain data; `reference` names callables."""
    data: dict[str, Any] = {}
    for name in Policy.__struct_fields__:
        value = getattr(policy, name)
        if value == getattr(DEFAULT_POLICY, name):
            continue
        if isinstance(value, Backoff):
            value = {"exponential": list(msgspec.structs.astuple(value))}
        elif name in ("retry_on", "give_up_on"):
            value = [kind_name(kind) for kind in value]
        elif callable(value):
            if reference is None:
                raise TypeError(f"{name} must be a reference such as 'package.module:name' here, not {value!r}")
            value = reference(value)
        data[name] = value
    return data


def policy_from_data(data: Mapping[str, Any]) -> Policy:
    """Rebuild a policy from the data of `policy_to_data`, without importing anything."""
    fields = dict(data)
    for name, value in data.items():
        if isinstance(value, dict) and "exponential" in value:
            fields[name] = Backoff(*value["exponential"])
        elif isinstance(value, list):
            fields[name] = tuple(value)
    return Policy(**fields)


def delay_after(backoff: Backoff | tuple[float, ...] | Delays | str, failures: int, noise: float) -> float:
    """Return the seconds to wait after the `failures`-th failure; the last delay of a list repeats."""
    if isinstance(backoff, str):
        raise TypeError(f"the back-off {backoff!r} is a reference; resolve it to a function first")
    if isinstance(backoff, Backoff):
        return bounded(backoff.delay(failures, noise))
    if isinstance(backoff, tuple):
        return bounded(backoff[min(failures, len(backoff)) - 1]) if backoff else 0.0
    delay = backoff(failures)
    return bounded(delay.total_seconds() if isinstance(delay, timedelta) else float(delay))
