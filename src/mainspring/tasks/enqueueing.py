"""Enqueue function calls: one call, a chain of calls, or one call for each item."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mainspring.node.new_ids import new_run_id
from mainspring.tasks.current import inline_twin
from mainspring.tasks.options import CallOptions, call_of, read_options

if TYPE_CHECKING:
    from mainspring.tasks.broker import Broker

__all__ = ["async_chain", "async_iter", "async_task"]


def async_task(func: Any, /, *args: Any, **kwargs: Any) -> str:
    """Enqueue a call of a function; return the id of the run.

    Options are keywords (`task_name`, `hook`, `group`, `save`, `sync`, `cached`, `ack_failure`, `chain`, `broker`,
    `cluster`, `timeout`), or entries of `q_options`, where they cannot clash with the function's keyword arguments.
    """
    asked = read_options(kwargs)
    if asked.chain:
        return _enqueue_chain(asked, [(func, args, kwargs), *asked.chain], asked.changes.get("group"))
    app = inline_twin(asked.app) if asked.sync else asked.app
    return app.enqueue_call(call_of(app, func, args, asked)).id


def async_chain(
    chain: Iterable[Any],
    group: str | None = None,
    cached: bool | float | None = None,
    sync: bool = False,
    broker: Broker | None = None,
) -> str:
    """Enqueue calls `(func, args, kwargs)` that run one after another while they succeed; return their group's id."""
    steps = list(chain)
    if not steps:
        raise ValueError("a chain needs one call at least: (func, args, kwargs)")
    group = group or new_run_id()
    _enqueue_chain(read_options({}, sync=sync, broker=broker, cached=cached), steps, group)
    return group


def _enqueue_chain(asked: CallOptions, steps: list[Any], group: str | None) -> str:
    app = inline_twin(asked.app) if asked.sync else asked.app
    common = {name: value for name, value in asked.changes.items() if name in _OF_ALL_STEPS}
    calls = []
    for step in steps:
        func, args, kwargs = _parts(step)
        own = read_options(kwargs, app)
        calls.append(call_of(app, func, args, own._replace(changes={**common, **own.changes})))
    return app.chain(calls, group=group)[0].id


def _parts(step: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Split a step into function, arguments and keyword arguments; it is a function or a tuple of these."""
    if not isinstance(step, tuple | list):
        return step, (), {}
    if not 1 <= len(step) <= 3:
        raise TypeError(f"a step of a chain is (func, args, kwargs), not {step!r}")
    args = step[1] if len(step) > 1 else ()
    kwargs = step[2] if len(step) > 2 else {}
    return step[0], tuple(args) if isinstance(args, tuple | list) else (args,), dict(kwargs or {})


def async_iter(func: Any, args_iter: Iterable[Any], /, **kwargs: Any) -> str:
    """Enqueue one call for each item, a tuple as several arguments; return the id of the collected result."""
    asked = read_options(kwargs)
    # `gather` gives the items their own group and collects their results, so these options do not apply to them.
    changes = {name: value for name, value in asked.changes.items() if name not in _NOT_OF_ITEMS}
    app = inline_twin(asked.app) if asked.sync else asked.app
    items = asked._replace(changes=changes)
    calls = [call_of(app, func, item if isinstance(item, tuple) else (item,), items) for item in args_iter]
    return app.gather(calls).id


_OF_ALL_STEPS = ("queue", "retention")
_NOT_OF_ITEMS = ("group", "hook", "id", "unique")
