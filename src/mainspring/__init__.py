"""mainspring schedules, queues, runs and tracks jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
version = __version__
version_info = tuple(map(int, version.split(".")))

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.declaring.dependencies import Needs
    from mainspring.app.handle import RunHandle
    from mainspring.core.policy import Backoff
    from mainspring.core.waiting.previous import previous
    from mainspring.errors import Cancel, Retry
    from mainspring.executors.current_run import current_run

__all__ = [
    "Backoff",
    "Cancel",
    "Mainspring",
    "Needs",
    "Retry",
    "RunHandle",
    "__version__",
    "current_run",
    "previous",
    "version",
    "version_info",
]

_PLACES = {
    "Backoff": "mainspring.core.policy",
    "Cancel": "mainspring.errors",
    "Mainspring": "mainspring.app",
    "Needs": "mainspring.app.declaring.dependencies",
    "Retry": "mainspring.errors",
    "RunHandle": "mainspring.app.handle",
    "current_run": "mainspring.executors.current_run",
    "previous": "mainspring.core.waiting.previous",
}


def __getattr__(name: str) -> Any:
    # Import the public names on first use, so that `import mainspring` stays cheap.
    if name not in _PLACES:
        raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value
