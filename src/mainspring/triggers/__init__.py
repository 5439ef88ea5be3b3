"""Triggers say when a job comes due. They are pure: once made, a trigger reads no clock and has no effects."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mainspring.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
    from mainspring.triggers.combining import AndTrigger, OrTrigger
    from mainspring.triggers.cron import CronTrigger
    from mainspring.triggers.date import DateTrigger
    from mainspring.triggers.excluding import ExcludingTrigger
    from mainspring.triggers.interval import IntervalTrigger

__all__ = [
    "AndTrigger",
    "BaseTrigger",
    "CalendarIntervalTrigger",
    "CronTrigger",
    "DateTrigger",
    "ExcludingTrigger",
    "IntervalTrigger",
    "OrTrigger",
    "register_trigger",
    "trigger_class",
    "trigger_from_data",
]

_BUILT_IN: Final = {
    "date": ("date", "DateTrigger"),
    "interval": ("interval", "IntervalTrigger"),
    "cron": ("cron", "CronTrigger"),
    "calendarinterval": ("calendarinterval", "CalendarIntervalTrigger"),
    "and": ("combining", "AndTrigger"),
    "or": ("combining", "OrTrigger"),
    "excluding": ("excluding", "ExcludingTrigger"),
}
_MODULES: Final = {name: module for module, name in _BUILT_IN.values()}
_classes: dict[str, type[BaseTrigger]] = {}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register_trigger(cls: type[BaseTrigger]) -> type[BaseTrigger]:
    """Register a trigger class under its `alias`, so that stores can restore its triggers; works as a decorator."""
    if not cls.alias:
        raise ValueError(f"{cls.__module__}.{cls.__qualname__} has no `alias` to be known by")
    known = _classes.get(cls.alias)
    if cls.alias in _BUILT_IN or (known is not None and known.__qualname__ != cls.__qualname__):
        raise ValueError(f"the trigger alias {cls.alias!r} of {cls.__module__}.{cls.__qualname__} is taken")
    _classes[cls.alias] = cls
    return cls


def trigger_class(alias: str) -> type[BaseTrigger]:
    """Return the trigger class with an alias: built in, registered, or an entry point of `mainspring.triggers`."""
    cls = _classes.get(alias)
    if cls is not None:
        return cls
    if alias in _BUILT_IN:
        module, name = _BUILT_IN[alias]
        cls = getattr(import_module(f"{__name__}.{module}"), name)
    else:
        cls = _plugged_in(alias)
    _classes[alias] = cls
    return cls


def _plugged_in(alias: str) -> type[BaseTrigger]:
    from importlib.metadata import entry_points

    from mainspring.errors import PluginNotFound

    plugins = entry_points(group="mainspring.triggers")
    for plugin in plugins:
        if plugin.name == alias:
            cls = plugin.load()
            if not (isinstance(cls, type) and issubclass(cls, BaseTrigger)):
                raise TypeError(f"the entry point {plugin.value!r} of trigger {alias!r} is not a trigger class")
            return cls
    raise PluginNotFound("trigger", alias, tuple({*_BUILT_IN, *_classes, *plugins.names}))


def trigger_from_data(data: Mapping[str, Any]) -> BaseTrigger:
    """Make a trigger from the plain data that its `to_data` returned."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError(f"this is not a trigger's data, since it names no type: {data!r}")
    cls = trigger_class(data["type"])
    try:
        return cls.from_data(data)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the data of a trigger of type {data['type']!r} are damaged ({reason}): {data!r}") from error
