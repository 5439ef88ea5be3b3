"""Exceptions that resist whoever handles them; a child process can import them, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from mainspring.errors import Cancel, Retry


@dataclass(frozen=True)
class Frozen(Exception):
    """None of its attributes can be set: no traceback, no note, no cause."""

    code: int

    def __str__(self) -> str:
        return f"code {self.code}"


class Sealed(Exception):
    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise SystemExit(f"{name} is sealed")


class Blind(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(f"{name} is nobody's business")


class Disguised(Exception):
    @property
    def __class__(self) -> Any:
        raise SystemExit("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Trapped(Exception):
    __traceback__ = property(lambda self: 1 / 0)
    __cause__ = property(lambda self: 1 / 0)
    __notes__ = 5  # type: ignore[assignment]
    args = property(lambda self: 1 / 0)


class Unprintable(Exception):
    def __str__(self) -> NoReturn:
        raise SystemExit("no text")


class Incomparable(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> NoReturn:
        raise SystemExit("no comparison")

    def __bool__(self) -> NoReturn:
        raise SystemExit("no truth")


class Unreducible(Exception):
    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise SystemExit("no pickle")


class Moody(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Moody):
    """Its class has no name to whoever asks."""


class HalfACharacter(Exception):
    def __str__(self) -> str:
        return "\ud800\0"


class BadRetry(Retry):
    counted = property(lambda self: 1 / 0)

    def __init__(self) -> None:
        Exception.__init__(self)


class BadCancel(Cancel):
    def __str__(self) -> str:
        raise SystemExit("no reason")


class BadGroup(ExceptionGroup[Exception]):
    exceptions = property(lambda self: 1 / 0)


KINDS: dict[str, Callable[[], BaseException]] = {
    "frozen": lambda: Frozen(7),
    "sealed": lambda: Sealed("no"),
    "blind": lambda: Blind("no"),
    "disguised": lambda: Disguised("no"),
    "trapped": lambda: Trapped("no"),
    "unprintable": lambda: Unprintable("no"),
    "incomparable": lambda: Incomparable("no"),
    "unreducible": lambda: Unreducible("no"),
    "nameless": lambda: Nameless("no"),
    "half a character": lambda: HalfACharacter("no"),
    "bad retry": BadRetry,
    "bad cancel": lambda: BadCancel("no"),
    "bad group": lambda: BadGroup("no", [ValueError("inside")]),
}


def raise_hostile(kind: str) -> NoReturn:
    raise KINDS[kind]()


async def raise_hostile_later(kind: str) -> NoReturn:
    raise KINDS[kind]()
