"""Builders that assemble calls step by step: AsyncTask, Chain, Iter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.node.new_ids import new_run_id
from mainspring.tasks.broker import Broker
from mainspring.tasks.enqueueing import async_chain, async_iter, async_task
from mainspring.tasks.fetching import FetchedTask, count_group, fetch, fetch_group, result, result_group

__all__ = ["AsyncTask", "Chain", "Iter"]


class _Option:
    """A call option as an attribute; a new value takes effect at the next `run`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, call: AsyncTask, owner: type | None = None) -> Any:
        return self._place(call).get(self._name)

    def __set__(self, call: AsyncTask, value: Any) -> None:
        self._place(call)[self._name] = value
        call.started = False

    def _place(self, call: AsyncTask) -> dict[str, Any]:
        place: dict[str, Any] = call.kwargs.get("q_options", call.kwargs)
        return place


class AsyncTask:
    """A call with its options; `run` enqueues it."""

    broker = _Option()
    sync = _Option()
    save = _Option()
    hook = _Option()
    group = _Option()
    cached = _Option()

    def __init__(self, func: Any, /, *args: Any, **kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        if "q_options" in kwargs:
            kwargs["q_options"] = dict(kwargs["q_options"] or {})
        self.id: str | None = None
        self.started = False

    def run(self) -> str:
        """Enqueue the call; return its id."""
        self.id = async_task(self.func, *self.args, **self.kwargs)
        self.started = True
        return self.id

    def result(self, wait: float = 0) -> Any:
        """Return the result, or None if the call has not ended or was not enqueued."""
        return result(self.id, wait) if self.started and self.id else None

    def fetch(self, wait: float = 0) -> FetchedTask | None:
        """Return the run, or None if it has not ended or was not enqueued."""
        return fetch(self.id, wait) if self.started and self.id else None

    def result_group(self, failures: bool = False, wait: float = 0, count: int | None = None) -> list[Any]:
        """Return the results of the call's group."""
        return result_group(self.group, failures, wait, count) if self.started and self.group else []

    def fetch_group(self, failures: bool = True, wait: float = 0, count: int | None = None) -> list[FetchedTask]:
        """Return the ended runs of the call's group."""
        return fetch_group(self.group, failures, wait, count) if self.started and self.group else []


class Chain:
    """Calls that run one after another as long as they succeed."""

    def __init__(
        self,
        chain: Iterable[Any] | None = None,
        group: str | None = None,
        cached: bool | float | None = None,
        sync: bool = False,
        broker: Broker | None = None,
    ) -> None:
        self.chain: list[Any] = list(chain or ())
        self.group = group or ""
        self.cached, self.sync, self.broker = cached, sync, broker
        self._own_group = not group
        self.started = False

    def append(self, func: Any, /, *args: Any, **kwargs: Any) -> int:
        """Add a call at the end; return the number of calls. The next `run` enqueues a new chain."""
        self.chain.append((func, args, kwargs))
        self.started = False
        return self.length()

    def run(self) -> str:
        """Enqueue the chain; return the id of its group."""
        if self._own_group:
            self.group = new_run_id()
        async_chain(self.chain, self.group, self.cached, self.sync, self.broker)
        self.started = True
        return self.group

    def result(self, wait: float = 0) -> list[Any]:
        """Return the results so far, in order, after waiting until the chain has ended or failed."""
        return result_group(self.group, wait=wait) if self.started else []

    def fetch(self, failures: bool = True, wait: float = 0) -> list[FetchedTask]:
        """Return the ended runs, in order, after waiting until the chain has ended or failed."""
        return fetch_group(self.group, failures, wait) if self.started else []

    def current(self) -> int:
        """Return the number of calls that have ended."""
        return count_group(self.group) if self.started else 0

    def length(self) -> int:
        """Return the number of calls."""
        return len(self.chain)


class Iter:
    """One call for each item, with one collected result."""

    def __init__(
        self,
        func: Any = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        cached: bool | float | None = None,
        sync: bool = False,
        broker: Broker | None = None,
    ) -> None:
        self.func = func
        self.args: list[Any] = list(args or ())
        self.kwargs = dict(kwargs or {})
        self.cached, self.sync, self.broker = cached, sync, broker
        self.id: str | None = None
        self.started = False

    def append(self, *args: Any) -> int:
        """Add an item, the arguments of one call; return the number of items."""
        self.args.append(args)
        self.started = False
        return self.length()

    def run(self) -> str:
        """Enqueue the calls; return the id of the collected result."""
        options = {"sync": self.sync, "broker": self.broker, **(self.kwargs.get("q_options") or {})}
        self.id = async_iter(self.func, self.args, **{**self.kwargs, "q_options": options})
        self.started = True
        return self.id

    def result(self, wait: float = 0) -> Any:
        """Return the list of results, None if some are missing, or text if one call failed."""
        return result(self.id, wait) if self.started and self.id else None

    def fetch(self, wait: float = 0) -> FetchedTask | None:
        """Return the run that collects the results, or None if it has not ended."""
        return fetch(self.id, wait) if self.started and self.id else None

    def length(self) -> int:
        """Return the number of items."""
        return len(self.args)
