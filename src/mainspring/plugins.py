"""Find triggers, executors and job stores by name: built in, by entry point, or by import path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final, cast

from mainspring.core.references import ref_to_obj
from mainspring.core.store_urls import STORE_CLASSES
from mainspring.errors import PluginNotFound, install_command, near
from mainspring.triggers import trigger_class
from mainspring.triggers.base import BaseTrigger

__all__ = ["check_options", "find_plugin", "make_trigger", "takes_option", "without_excluded"]

# List the built-in ones here: reading the metadata of the installed packages takes milliseconds.
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
    "job store": STORE_CLASSES,
}
_EXTRAS: Final = ("gevent", "tornado", "twisted", "sqlalchemy", "redis", "zookeeper")


@lru_cache(maxsize=256)
def find_plugin(kind: str, name: str) -> type[Any]:
    """Return the class of a trigger, executor or job store by its name or its import path `module:Class`."""
    if ":" in name:
        # A configuration written for APScheduler names its classes; ours have the same paths.
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
                f"the {kind} {name!r} needs a package that is missing: {install_command(name)} ({error})"
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
    """Raise TypeError for an option that the class does not take, suggesting near names, also from `besides`."""
    names = _parameters(factory)
    if names is None:
        return
    for option in options:
        if option not in names:
            raise TypeError(f"the {kind} {name!r} takes no argument {option!r}{near(option, {*names, *besides})}")


def takes_option(factory: Callable[..., Any], name: str) -> bool:
    """Return True if a class takes a keyword argument of this name."""
    names = _parameters(factory)
    return names is None or name in names


def make_trigger(
    trigger: Any,
    options: dict[str, Any],
    *,
    zone: tzinfo,
    now: Callable[[], int],
    crontab: bool = True,
    besides: Iterable[str] = (),
) -> BaseTrigger:
    """Make a trigger from its name and arguments, or from a crontab expression; an interval starts at `now`.

    The option `exclude` leaves out fires of any trigger. `besides` are the other options that the caller accepts: the
    error about a misspelt option suggests those, too.
    """
    exclude = options.pop("exclude", None)
    made = _make_trigger(trigger, options, zone, now, crontab, besides)
    return made if exclude is None else without_excluded(made, exclude, zone, now())


def without_excluded(trigger: BaseTrigger, exclude: Any, zone: tzinfo, now: int) -> BaseTrigger:
    """Return a trigger with these exclusions and no others; raise ValueError if they leave it no fire."""
    from mainspring.triggers.excluding import excluding, is_all_excluded  # most triggers exclude nothing

    made = excluding(trigger, exclude, zone)
    if is_all_excluded(made, now):
        raise ValueError(f"this schedule can never fire: all its times are excluded ({made.describe()})")
    return made


def _make_trigger(
    trigger: Any,
    options: dict[str, Any],
    zone: tzinfo,
    now: Callable[[], int],
    crontab: bool,
    besides: Iterable[str],
) -> BaseTrigger:
    if trigger is not None and not isinstance(trigger, str):
        if isinstance(trigger, BaseTrigger):
            _refuse(options, "a job, and the trigger is made already", besides)
            return trigger
        raise TypeError(f"trigger must be a trigger object, its name or a crontab expression, not {trigger!r}")
    if crontab and trigger is not None and (len(trigger.split()) > 1 or trigger.startswith("@")):
        zone = options.pop("timezone", None) or zone
        _refuse(options, "a crontab schedule", {"timezone", *besides})
        return find_plugin("trigger", "cron").from_crontab(trigger, timezone=zone)  # type: ignore[no-any-return]
    name = trigger or "date"
    factory, zoned, dated = _trigger_factory(name)
    if zoned:
        options.setdefault("timezone", zone)
    if dated:
        options.setdefault("made_at", now())
    try:
        return factory(**options)  # type: ignore[no-any-return]
    except TypeError:
        check_options("trigger", name, factory, options, besides)  # names the wrong argument, if there is one
        raise


def _refuse(options: Iterable[str], what: str, known: Iterable[str]) -> None:
    """Raise an error if an unknown option is left."""
    for option in options:
        raise TypeError(f"{option!r} is not an argument of {what}{near(option, known)}")


@lru_cache(maxsize=256)
def _trigger_factory(name: str) -> tuple[Callable[..., Any], bool, bool]:
    """Return the class of a trigger by its name, and whether it takes `timezone` and `made_at`."""
    factory = find_plugin("trigger", name)
    names = _parameters(cast(Any, factory))
    return factory, names is None or "timezone" in names, names is not None and "made_at" in names


@lru_cache(maxsize=256)
def _parameters(factory: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keyword arguments of a class by name, or None if it takes any."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
