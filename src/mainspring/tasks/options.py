"""Translate django-q's call options into ours."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from mainspring.app import Mainspring
from mainspring.app.declaring.task import Options, Task, TaskCall, reference_of
from mainspring.core.validation import POLICY_FIELDS
from mainspring.errors import near
from mainspring.tasks.current import get_app

if TYPE_CHECKING:
    from mainspring.tasks.broker import Broker

__all__ = ["JOB_OPTIONS", "CallOptions", "call_of", "find_task", "read_options", "with_options"]

OPTIONS: Final = (
    "ack_failure",
    "broker",
    "cached",
    "chain",
    "cluster",
    "group",
    "hook",
    "iter_cached",
    "iter_count",
    "save",
    "sync",
    "task_name",
    "timeout",
)
OURS: Final = (POLICY_FIELDS | frozenset(Options.__struct_fields__)) - {"policy", "inline"}
JOB_OPTIONS: Final = frozenset({"coalesce", "max_instances", "misfire_grace_time"})
UNACKNOWLEDGED: Final = {"retries": 1000, "backoff": (60.0,)}
"""The meaning of `ack_failure=False` for a task that sets no retries."""


class CallOptions(NamedTuple):
    """The options of a call: the app and how it executes the call, the chain that follows, and our options."""

    app: Mainspring
    sync: bool
    chain: list[Any]
    changes: dict[str, Any]
    keywords: dict[str, Any]
    """The keyword arguments for the function."""


def read_options(kwargs: Mapping[str, Any], app: Mainspring | None = None, **defaults: Any) -> CallOptions:
    """Separate options from the function's keyword arguments.

    A name in `q_options` is always an option; a keyword of the same name then belongs to the function. Besides
    django-q's names, `q_options` accepts ours: `retries`, `priority`, `delay`, `unique`, ...
    """
    keywords = dict(kwargs)
    given = keywords.pop("q_options", None)
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"q_options must be a mapping of options, not {given!r}")
    given = given or {}
    as_keywords = {name: keywords.pop(name) for name in OPTIONS if name in keywords and name not in given}
    options = {**defaults, **as_keywords, **given}
    known = {*OPTIONS, *OURS, *JOB_OPTIONS}
    for name in options:
        if name not in known:
            raise TypeError(f"there is no option {name!r}{near(str(name), known)}")
    broker: Broker | None = options.pop("broker", None)
    if broker is not None:
        app = broker.app
        options.setdefault("cluster", broker.list_key)
    app = app or get_app()
    sync, chain = bool(options.pop("sync", False)), list(options.pop("chain", None) or ())
    return CallOptions(app, sync, chain, _translated(options), keywords)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """Rename the options to ours. `save` and `ack_failure` stay, since they depend on the task."""
    for name in ("iter_count", "iter_cached"):
        options.pop(name, None)
    for theirs, ours in (("task_name", "name"), ("cluster", "queue")):
        value = options.pop(theirs, None)
        if value is not None:
            options.setdefault(ours, value)
    cached = options.pop("cached", None)
    # True, or the number of seconds to keep a result.
    if cached is not None and not isinstance(cached, bool):
        options.setdefault("retention", cached)
    return options


def call_of(app: Mainspring, func: Any, args: tuple[Any, ...], asked: CallOptions) -> TaskCall[Any]:
    """Return the call of a function with its options applied."""
    return with_options(app, find_task(app, func), asked.changes).call(*args, **asked.keywords)


def with_options(app: Mainspring, task: Task[..., Any], changes: Mapping[str, Any]) -> Task[..., Any]:
    """Return a task whose options include django-q's."""
    # A function that is not a registered task has no options, so it gets the app's defaults.
    ours = {**({} if app.tasks.get(task.name) else app.call_defaults), **changes}
    save, ack_failure = ours.pop("save", None), ours.pop("ack_failure", None)
    if ours.get("hook") is not None:
        ours["hook"] = find_task(app, ours["hook"]).name
    if ack_failure is not None:
        if ack_failure:
            ours["retries"] = 0
        elif not task.defaults.policy.retries:
            ours = {**UNACKNOWLEDGED, **ours}
    made = task.options(**ours)
    if save is not None and not save:
        options = made.defaults
        made = Task(task.app, task.func, task.name, replace(options, policy=replace(options.policy, retention=0.0)))
    return made


def find_task(app: Mainspring, func: Any) -> Task[..., Any]:
    """Find a task by name or function, or make one from `module:name`, `module.name` or `module.Class.name`."""
    if isinstance(func, str) and ":" not in func:
        known = app.tasks.get(func) or app.tasks.get(reference_of(func))
        if known is not None:
            return known
        if app.may_import:
            func = _with_colon(func)
    return app.as_task(func)


def _with_colon(path: str) -> str:
    """Turn a dotted path into a reference, with a colon after the module."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            found = find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        if found:
            return f"{module}:{'.'.join(parts[end:])}"
    return path
