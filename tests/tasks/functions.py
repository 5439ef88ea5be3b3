"""What the tests have called."""

from __future__ import annotations

from typing import Any

from mainspring import Mainspring

app = Mainspring("memory://")
"""An app to be found by its name."""

events: list[Any] = []


class Shop:
    """A class with something to call in it."""

    @staticmethod
    def price(item: str) -> int:
        return len(item)


def add(a: int, b: int = 0) -> int:
    return a + b


def nothing() -> None:
    return None


def fail(text: str = "no luck") -> None:
    raise ValueError(text)


def note(value: Any) -> Any:
    events.append(value)
    return value


def options(**kwargs: Any) -> dict[str, Any]:
    """Return the keyword arguments that arrived."""
    return kwargs


def report(task: Any) -> str:
    """A hook."""
    return f"{task.name} {task.success} {task.result}"


def dated(day: int, intended: str = "") -> list[Any]:
    return [day, intended]


async def dated_async(intended: str) -> str:
    return intended
