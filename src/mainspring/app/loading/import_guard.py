"""Refuse to start an app while a worker or a child process only imports its module."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from mainspring.errors import ConfigurationError

__all__ = ["import_purpose", "importing", "refuse_to_run", "refuse_to_start", "warn_of_enqueuing"]

_ADVICE: Final = 'put it under if __name__ == "__main__":, or into another module'
_module: str | None = None

log = logging.getLogger("mainspring.app")


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Mark, while the block runs, that this process imports a module only to find its app."""
    global _module
    before, _module = _module, module
    try:
        yield
    finally:
        _module = before


def refuse_to_start() -> None:
    """Raise if a module starts the app while it is imported to find the app."""
    if _module is not None:
        raise ConfigurationError(f"the app is started while {import_purpose()}; {_ADVICE}")


def refuse_to_run() -> None:
    """Raise if `app.run()` is called while its module is imported: the import would never end."""
    if (purpose := import_purpose()) is not None:
        raise ConfigurationError(f"the app is run while {purpose}; {_ADVICE}")


def warn_of_enqueuing() -> None:
    """Warn once that every process that imports this module enqueues the same run."""
    if (purpose := import_purpose()) is not None:
        _warn(purpose)


@cache
def _warn(purpose: str) -> None:
    log.warning("a run was enqueued while %s; %s", purpose, _ADVICE)


def import_purpose() -> str | None:
    """Return why this process imports the module of an app; None if the module runs as a program."""
    if _module is not None:
        return f"the module {_module!r} is imported to find its app, as each worker process does"
    process = sys.modules.get("multiprocessing.process")
    # multiprocessing itself checks this mark before it starts a process.
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        return "a child process imports the main module of its parent"
    return None
