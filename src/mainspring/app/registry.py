"""The registry: the tasks of an app by name, and tasks made from other callables that workers may call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from types import CellType
from typing import TYPE_CHECKING, Any, Final

from mainspring.app.declaring.dependencies import uninjected
from mainspring.app.declaring.task import Options, Task, reference_of
from mainspring.core.lanes import needed_executor
from mainspring.core.policy import Backoff, Policy
from mainspring.core.references import iscoroutinefunction_partial, loaded, obj_to_ref, ref_to_obj
from mainspring.core.run import Call
from mainspring.errors import CallableReferenceError, ConfigurationError, TaskNotFound

if TYPE_CHECKING:
    from mainspring.app.store import AppStore

__all__ = ["Registry", "is_same", "is_typed_in"]


class Registry:
    """The tasks of an app by name. It also makes tasks from other callables that workers may call."""

    def __init__(self, app_store: AppStore, make: Callable[[Callable[..., Any], str, Options], Task[..., Any]]) -> None:
        self._app_store, self._make = app_store, make
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._aliases: dict[str, Task[Any, Any]] = {}

    def add(self, task: Task[Any, Any], aliases: Iterable[str] = ()) -> None:
        """Add a task; the same function may be declared again, but another function may not take its name.

        Stored calls can also find the task by its aliases.
        """
        for name in (task.name, *aliases):
            known = self.get(name)
            if known is not None and not is_same(known.func, task.func):
                raise ConfigurationError(
                    f"two functions have the task name {name!r}: {known.func!r}, {task.func!r}; give one of them name="
                )
        self._tasks[task.name] = task
        self._aliases |= dict.fromkeys(aliases, task)
        task.registry, task.aliases = self, tuple(aliases)

    def get(self, name: str) -> Task[Any, Any] | None:
        """Return the task with this name or alias, or None."""
        return self._tasks.get(name) or self._aliases.get(name)

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return the function that is registered under a name, or None."""
        task = self.get(name)
        return None if task is None else task.func

    def find(self, name: str) -> Task[Any, Any]:
        """Return the task with this name; raise TaskNotFound with similar names."""
        found = self.get(name)
        if found is None:
            raise TaskNotFound(name, tuple(self._tasks))
        return found

    def resolve(self, func: Any) -> Task[..., Any]:
        """Return the task registered under a name or a function, or make a task from any other allowed callable."""
        if isinstance(func, Task):
            return func
        known = self.get(reference_of(func))
        if known is not None and (isinstance(func, str) or is_same(known.func, func)):
            return known
        return self._unregistered(func)

    def _unregistered(self, func: Any) -> Task[..., Any]:
        """Make a task from an unregistered callable, if workers may call it by name."""
        name, by_name, keeps_objects = reference_of(func), isinstance(func, str), self._app_store.store.keeps_objects
        # A memory store keeps the callable itself. Any other store needs a name that a worker may import.
        if (by_name or not keeps_objects) and not self._app_store.may_import:
            raise TaskNotFound(name, tuple(self._tasks), _NEEDS_KEY)
        if by_name:
            try:
                func = ref_to_obj(name)
            except (LookupError, ValueError) as error:
                raise TaskNotFound(name, tuple(self._tasks), f" ({error})") from error
            if isinstance(func, Task):
                return func
        if not callable(func):
            raise TypeError(f"only a callable can be enqueued, not {func!r}")
        if not (by_name or keeps_objects):
            _check_importable(func)
        return self._make(func, name, Options())

    def stored(self, task: Task[..., Any]) -> Any:
        """Return the form in which a run stores a task: its name, or the object itself in a memory store."""
        if task.registry is self:
            return task.name
        known = self._tasks.get(task.name)
        named = known is not None and (known.func is task.func or is_same(known.func, task.func))
        return task.name if named or not self._app_store.store.keeps_objects else task.func

    def executor_for(self, call: Call, policy: Policy) -> str | None:
        """Return the executor that a call needs; None if only an import could tell. See `core.lanes`."""
        func = call.func
        if isinstance(func, str):
            task = self.get(func)
            if task is not None:
                return needed_executor(task.is_async, policy.isolation)
            func = loaded(func)
        is_async = func is not None and iscoroutinefunction_partial(func)
        return needed_executor(is_async, policy.isolation)

    def check_policy(self, policy: Policy) -> None:
        """Raise if a worker could not call the hook or the back-off function that a policy names."""
        if policy.hook is not None:
            self.resolve(policy.hook)
        if not isinstance(policy.backoff, (Backoff, tuple)):
            self.resolve(policy.backoff)

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)


_NEEDS_KEY: Final = (
    "; only registered tasks can be called without a signing key: register it with @app.task, or give the app a "
    "secret_key (or set MAINSPRING_SECRET_KEY)"
)


def _check_importable(func: Any) -> None:
    """Raise if a worker could not import a callable by its name."""
    try:
        obj_to_ref(func)
    except (CallableReferenceError, LookupError) as error:
        raise ConfigurationError(f"no worker can import {func!r}: {error}; make it a function of a module") from error
    if inspect.ismethod(func) and not inspect.isclass(func.__self__):
        raise ConfigurationError(f"{func!r} is bound to an object that no worker has; pass the object as an argument")


def _values(func: Any) -> list[int]:
    """Return the identities of the values in a function's closure and defaults."""
    cells = [cell for cell in func.__closure__ or () if cell != CellType()]
    return [id(cell.cell_contents) for cell in cells] + [id(value) for value in func.__defaults__ or ()]


def is_same(one: Any, other: Any) -> bool:
    """Return True if two functions come from the same code, as after a reload or in a notebook cell run again."""
    one, other = uninjected(one), uninjected(other)
    if one is other:
        return True
    first, second = getattr(one, "__code__", None), getattr(other, "__code__", None)
    if first is None or second is None or one.__qualname__ != other.__qualname__:
        return False
    if "<" in one.__qualname__:  # lambdas and functions made by other functions share a name
        return bool(first == second and _values(one) == _values(other))
    if first.co_filename == second.co_filename:
        return True
    return bool(one.__module__ == other.__module__ and is_typed_in(other))


def is_typed_in(func: Any) -> bool:
    """Return True if a function comes from a prompt or a notebook, where code is executed again, not from a file."""
    code = getattr(func, "__code__", None)
    return code is not None and not os.path.exists(code.co_filename)
