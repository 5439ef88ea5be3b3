"""Tasks that are executed in processes of their own, which import this module."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from mainspring import Mainspring, current_run

app = Mainspring("memory://", timezone="UTC")


@app.task(isolation="process", timeout=30)
def talk(number: int) -> list[int]:
    """Say something in every way there is."""
    run = current_run()
    run.progress(number, number)
    run.update(place="child")
    logging.getLogger("shop").warning("from a child")
    return [number, os.getpid()]


@app.task(isolation="process")
def pid() -> int:
    """Tell the process that executes it."""
    return os.getpid()


@app.middleware
def marked(run: object, call_next: Callable[[], Any]) -> Any:
    """Leave a mark that can be seen in a result: numbers come back negative."""
    value = call_next()
    return -value if isinstance(value, int) else value
