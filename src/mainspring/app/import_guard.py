"""What a module does when it is only imported, by a worker or a child process: an app must not be started there."""

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
    """Import a module to find its app."""
    global _module
    before, _module = _module, module
    try:
        yield
    finally:
        _module = before


def refuse_to_start() -> None:
    """Raise if the app is started by a module that is imported to find it."""
    if _module is not None:
        raise ConfigurationError(f"the app is started while {import_purpose()}; {_ADVICE}")


def refuse_to_run() -> None:
    """Raise if the app would keep the import of its module, in whatever process, from ever ending."""
    if (purpose := import_purpose()) is not None:
        raise ConfigurationError(f"the app is run while {purpose}; {_ADVICE}")


def warn_of_enqueuing() -> None:
    """Say, once, that each of several processes enqueues the same."""
    if (purpose := import_purpose()) is not None:
        _warn(purpose)


@cache
def _warn(purpose: str) -> None:
    log.warning("a run was enqueued while %s; %s", purpose, _ADVICE)


def import_purpose() -> str | None:
    """Say for what the module of an app is being imported, if not to be run as a program."""
    if _module is not None:
        return f"the module {_module!r} is imported to find its app, as each worker process does"
    process = sys.modules.get("multiprocessing.process")
    # By this mark multiprocessing itself refuses to start processes there.
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        return "a child process imports the main module of its parent"
    return None
