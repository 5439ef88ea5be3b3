"""What the project has done in the background."""

from __future__ import annotations

import time
from typing import Any


def add(one: Any, other: Any = 0) -> Any:
    return one + other


def name_of(user: Any) -> str:
    return str(user.get_username())


def sleep(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def after(task: Any) -> str:
    return f"{task.name}: {task.success} {task.result} {task.cluster} {task.attempt_count}"
