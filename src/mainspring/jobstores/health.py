"""The durability of a store: the level that its settings really give, and the reasons."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from mainspring.errors import ConfigurationError, near

if TYPE_CHECKING:
    from mainspring.jobstores.base import JobStore

__all__ = ["Health", "check_requirement", "check_version", "enforce", "lacks"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A store's report about its durability. Each reason and warning also names the right setting."""

    durable: bool | None = None
    """Whether acknowledged writes survive a power failure of the server; None if unknown."""
    replicas: int = 0
    """The number of other servers that receive a write before it is acknowledged."""
    reasons: tuple[str, ...] = ()
    version: str = ""
    schema: int | None = None
    warnings: tuple[str, ...] = ()
    size: int | None = None
    """The size in bytes of the store's tables and indexes, or of its servers' memory; None if it cannot tell."""

    @property
    def level(self) -> str:
        """`replicated(n)`, `durable`, `volatile`, or `unknown`."""
        if self.replicas:
            return f"replicated({self.replicas})"
        return {True: "durable", False: "volatile", None: "unknown"}[self.durable]


def check_version(place: str, version: str, name: str, oldest: tuple[int, int]) -> None:
    """Raise ConfigurationError if a server is too old; accept a server that does not report its version."""
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found and found < oldest:
        needed = ".".join(map(str, oldest))
        raise ConfigurationError(f"{place} is version {version}; mainspring needs {name} {needed} or newer")


def check_requirement(require: str) -> str:
    """Check and return a level that can be required: `durable`, `replicated` or `replicated(n)`."""
    if require == "durable" or _replicas(require):
        return require
    raise ConfigurationError(
        f"require={require!r} is no level; it can be 'durable', 'replicated' or 'replicated(2)'"
        f"{near(require, ['durable', 'replicated']) if isinstance(require, str) else ''}"
    )


def lacks(health: Health, require: str) -> bool:
    """Return True if a store promises less than is required.

    `durable` and `replicated(n)` are different promises: one needs the disk, the other needs other servers.
    """
    wanted = _replicas(require)
    return health.replicas < wanted if wanted else not health.durable


def enforce(store: JobStore, require: str | None) -> None:
    """Raise ConfigurationError, with the reason and the setting, if a store promises less than is required."""
    if require is None:
        return
    health = store.health()
    if lacks(health, require):
        store.shutdown()
        why = "; ".join(health.reasons) or "the store gives no reason"
        raise ConfigurationError(f"the app has require={require!r}, and {store!r} is {health.level}: {why}")


def _replicas(require: str) -> int:
    """Return the number in `replicated(n)`; 1 for `replicated`, 0 for any other level."""
    found = re.fullmatch(r"replicated(?:\(([1-9]\d?)\))?", require) if isinstance(require, str) else None
    return 0 if found is None else int(found[1] or 1)
