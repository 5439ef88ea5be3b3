"""Tasks that are executed in processes of their own, which import this module."""

from __future__ import annotations

import logging
import os

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


@app.task
def crash() -> None:
    """End the process that executes it, if it is not that of the tests."""
    os._exit(3)


@app.middleware
def marked(run: object, call_next: object) -> object:
    """Leave a mark, to be seen in the child's result."""
    return call_next()  # type: ignore[operator]
