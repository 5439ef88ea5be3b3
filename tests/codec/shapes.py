"""Types to store, an exact way to compare, and values that do harm when they are unpickled."""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from mainspring.codec import Keyring

KEY = "a secret key of the tests 1"
OTHER_KEY = "a secret key of the tests 2"
KEYRING = Keyring([KEY])
JOB = "job:1"


class Color(Enum):
    RED = 1
    GREEN = "green"
    CRIMSON = 1


class Level(IntEnum):
    LOW = 1
    HIGH = 10


class Word(StrEnum):
    YES = auto()
    NO = auto()


class Access(Flag):
    NONE = 0
    READ = auto()
    WRITE = auto()


class Mode(IntFlag):
    X = 1
    W = 2


class Outer:
    class Inner(Enum):
        ONE = 1


class Point(NamedTuple):
    x: float
    y: float = 0.0


Pair = namedtuple("Pair", "first second")


class NamedPair(Pair):
    def swapped(self) -> NamedPair:
        return NamedPair(self.second, self.first)


@dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    lines: tuple[Money, ...]
    placed: datetime | None = None
    color: Color = Color.RED


@dataclass
class Doubling:
    """Changes itself when it is made, so that making it a second time would show."""

    amount: int
    total: int = field(init=False)
    scale: dataclasses.InitVar[int] = 2

    def __post_init__(self, scale: int) -> None:
        self.amount *= scale
        self.total = self.amount + 1

    @cached_property
    def slow(self) -> Callable[[], int]:
        return lambda: self.total


@dataclass
class Carrying:
    a: int

    def __post_init__(self) -> None:
        self.undeclared = self.a


@dataclass
class Half:
    done: int
    undone: int = field(init=False)


class Text(str):
    """A kind of str that has more to it."""


class Blind(str):
    """A kind of str of which no two are equal."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(eq=False)
class Labelled(str):
    """A kind of str that also is a dataclass."""

    label: str = ""


class Odd:
    """Can be a key, but cannot be stored."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"odd {self.name}"


class Plain:
    """A class like any other, which only a pickle can hold."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class Raises:
    """Raises when it is unpickled."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.error,)


def _raise(error: type[BaseException]) -> None:
    raise error


def exact(value: Any) -> str:
    """Write a value so that two texts are equal only if types and values are, down to order, fold and sign of zero."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, deque):
        return f"{name}[{', '.join(map(exact, value))}]<={value.maxlen}"
    if isinstance(value, defaultdict):
        name += f" of {value.default_factory}"
    if isinstance(value, set | frozenset):
        return f"{name}{{{', '.join(sorted(map(exact, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{name}[{', '.join(map(exact, value))}]"
    if isinstance(value, dict):
        return f"{name}{{{', '.join(f'{exact(key)}: {exact(item)}' for key, item in value.items())}}}"
    if dataclasses.is_dataclass(value):
        return f"{name}({', '.join(exact(getattr(value, part.name)) for part in dataclasses.fields(value))})"
    return f"{name} {hex(value) if type(value) is int else repr(value)}"
