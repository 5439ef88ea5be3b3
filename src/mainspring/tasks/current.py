"""The app that the verbs act on, and its inline twin, which executes `sync=True` calls in the calling thread."""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakKeyDictionary

from mainspring.app import Mainspring
from mainspring.core.references import ref_to_obj
from mainspring.core.waiting.flows import OWN_TASKS
from mainspring.errors import ConfigurationError
from mainspring.locks import free_in_children
from mainspring.tasks import intended

__all__ = ["get_app", "inline_twin", "set_app", "sides"]

APP_VARIABLE: Final = "MAINSPRING_APP"

_lock = free_in_children(threading.RLock())
_app: Mainspring | None = None
_twins: WeakKeyDictionary[Mainspring, Mainspring] = WeakKeyDictionary()


def set_app(app: Mainspring | None) -> None:
    """Set the app that the verbs act on; with None, find one when a verb needs it."""
    global _app
    if app is not None and not isinstance(app, Mainspring):
        raise TypeError(f"set_app takes a Mainspring, not {app!r}")
    if app is not None:
        intended.register(app)
    with _lock:
        _app = app


def get_app() -> Mainspring:
    """Return the app that the verbs act on; find or make one if none is set."""
    global _app
    found = _app
    if found is None:
        with _lock:
            found = _app = _app or _find_app()
            intended.register(found)
    return found


def _find_app() -> Mainspring:
    name = os.environ.get(APP_VARIABLE)
    if not name:
        return Mainspring()
    try:
        found = ref_to_obj(name)
    except (LookupError, ValueError) as error:
        raise ConfigurationError(f"{APP_VARIABLE} is {name!r}, which names no app: {error}") from error
    if not isinstance(found, Mainspring):
        raise ConfigurationError(f"{APP_VARIABLE} is {name!r}, which is {found!r} and not a Mainspring")
    return found


def inline_twin(app: Mainspring) -> Mainspring:
    """Return an app with the same tasks and middleware that executes its calls in the calling thread."""
    if app.inline:
        return app
    with _lock:
        twin = _twins.get(app)
        if twin is None:
            twin = _twins[app] = Mainspring(
                "memory://",
                inline=True,
                timezone=app.timezone,
                secret_key=app._app_store.keys,
                allow_pickle=app._app_store.allow_pickle,
            )
            twin._listeners = app._listeners
            twin.events.share(app.events)
            twin._middleware.share(app._middleware)
        for task in app.tasks:
            if task.name not in OWN_TASKS and twin.tasks.get(task.name) is not task:
                twin.tasks.add(task)
    return twin


def sides(app: Mainspring) -> list[Mainspring]:
    """Return the apps that may hold the app's runs: the app, and its inline twin if `sync` calls made one."""
    twin = _twins.get(app)
    return [app] if twin is None else [app, twin]
