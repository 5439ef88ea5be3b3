"""Triggers, executors and job stores by name: built in, by entry point, or by import path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, cast

from mainspring.core.references import ref_to_obj
from mainspring.errors import PluginNotFound, near
from mainspring.triggers import trigger_class

__all__ = ["check_options", "find_plugin", "takes_option", "trigger_factory"]

# The built-in ones are known without reading the installed packages' metadata, which takes milliseconds.
_BUILT_IN: Final = {
    "executor": {
        "debug": "mainspring.executors.debug:DebugExecutor",
        "threadpool": "mainspring.executors.pool:ThreadPoolExecutor",
        "processpool": "mainspring.executors.pool:ProcessPoolExecutor",
        "asyncio": "mainspring.executors.asyncio:AsyncIOExecutor",
        "gevent": "mainspring.executors.gevent:GeventExecutor",
        "tornado": "mainspring.executors.tornado:TornadoExecutor",
        "twisted": "mainspring.executors.twisted:TwistedExecutor",
    },
    "job store": {
        "memory": "mainspring.jobstores.memory:MemoryJobStore",
        "sqlalchemy": "mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore",
        "redis": "mainspring.jobstores.redis:RedisJobStore",
    },
}
_EXTRAS: Final = ("gevent", "tornado", "twisted", "sqlalchemy", "redis")


@lru_cache(maxsize=256)
def find_plugin(kind: str, name: str) -> type[Any]:
    """Return the class of a trigger, executor or job store by its name or its import path `module:Class`."""
    if ":" in name:
        # A configuration written for APScheduler names its classes; ours are at the same places.
        ref = name.replace("apscheduler.", "mainspring.", 1) if name.startswith("apscheduler.") else name
        return ref_to_obj(ref)  # type: ignore[no-any-return]
    if kind == "trigger":
        return trigger_class(name)
    built_in = _BUILT_IN[kind]
    if name in built_in:
        try:
            return ref_to_obj(built_in[name])  # type: ignore[no-any-return]
        except LookupError as error:
            if name not in _EXTRAS:
                raise
            raise LookupError(
                f'the {kind} {name!r} needs a package that is missing: pip install "mainspring[{name}]" ({error})'
            ) from error
    from importlib.metadata import entry_points

    group = f"mainspring.{kind.replace(' ', '')}s"
    found = {point.name: point for point in entry_points(group=group)}
    if name in found:
        return found[name].load()  # type: ignore[no-any-return]
    raise PluginNotFound(kind, name, tuple({*built_in, *found}))


def check_options(
    kind: str, name: str, factory: Callable[..., Any], options: dict[str, Any], besides: Iterable[str] = ()
) -> None:
    """Raise TypeError if the class takes no such arguments, naming near ones, also of the options taken besides."""
    names = _parameters(factory)
    if names is None:
        return
    for option in options:
        if option not in names:
            raise TypeError(f"the {kind} {name!r} takes no argument {option!r}{near(option, {*names, *besides})}")


def takes_option(factory: Callable[..., Any], name: str) -> bool:
    """Tell whether a class takes a keyword argument of this name."""
    names = _parameters(factory)
    return names is None or name in names


@lru_cache(maxsize=256)
def trigger_factory(name: str) -> tuple[Callable[..., Any], bool, bool]:
    """Return the class of a trigger by its name, and whether it takes `timezone` and `made_at`."""
    factory = find_plugin("trigger", name)
    names = _parameters(cast(Any, factory))
    return factory, names is None or "timezone" in names, names is not None and "made_at" in names


@lru_cache(maxsize=256)
def _parameters(factory: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names a class takes as keywords, or None if it takes any."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
