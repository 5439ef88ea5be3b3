"""The executors for the runs of queues: threads for `def`, a loop for `async def`, processes for isolation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from mainspring.app.declaring.task import Task, TaskReference
from mainspring.core.lanes import LOOP_EXECUTOR, PROCESSES_EXECUTOR, THREADS_EXECUTOR
from mainspring.core.policy import Policy
from mainspring.core.references import iscoroutinefunction_partial, ref_to_obj, variable_of
from mainspring.core.run import Run
from mainspring.errors import TaskNotFound
from mainspring.executors.base import BaseExecutor
from mainspring.executors.current_run import CURRENT, keep_logs, release_logs
from mainspring.executors.processes.child import preload
from mainspring.executors.threads.pool import ThreadPoolExecutor

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from mainspring.app import Mainspring
    from mainspring.executors.scoreboard import Scoreboard
    from mainspring.node.node import Node

__all__ = ["Workplace"]

T = TypeVar("T")


class ResolvedFunction(NamedTuple):
    """The function that a name stands for in this process."""

    func: Callable[..., Any]
    is_async: bool
    portable: Callable[..., Any] | str
    """The name to send to another process, or the function itself if it has none."""
    is_importable: bool
    """Whether another process is sure to find the function by that name."""


class Workplace:
    """The executors of a node that serves queues; the loop and the processes start when a run first needs them."""

    def __init__(
        self,
        app: Mainspring,
        *,
        threads: int = 8,
        coroutines: int = 1000,
        imported: bool = False,
    ) -> None:
        self._app = app
        # A child process that imports the app as this process did also has these tasks.
        self._imported = frozenset(task.name for task in app.tasks) if imported else frozenset()
        self._coroutines = coroutines
        self._isolated = max(2, os.cpu_count() or 2)
        self.executors: dict[str, BaseExecutor] = {THREADS_EXECUTOR: ThreadPoolExecutor(threads)}
        self.unstarted = {LOOP_EXECUTOR: coroutines, PROCESSES_EXECUTOR: self._isolated}
        """The slots of the executors that start when a run first needs them."""
        self.board: Scoreboard | None = None
        self.worker_name: str | None = None
        """The name of this worker process; None in any other process."""
        self._found: dict[str, ResolvedFunction] = {}
        self._paths: list[str | None] = []
        self._backoffs: dict[str, Callable[..., Any]] = {}
        self._node: Node | None = None

    def start(self, node: Node) -> None:
        """Start the executors; called when the node has its store."""
        self._node = node
        keep_logs()
        for alias, executor in self.executors.items():
            self._start(alias, executor)
        if self._app.needs_loop or any(task.is_async for task in self._app.tasks):
            self._executor(LOOP_EXECUTOR)

    def shutdown(self, wait: bool = True) -> None:
        """Stop the executors."""
        for executor in self.executors.values():
            executor.shutdown(wait)
        release_logs()

    @property
    def loop(self) -> AbstractEventLoop | None:
        """The event loop that executes coroutine tasks, if it has been started."""
        executor: Any = self.executors.get(LOOP_EXECUTOR)
        return None if executor is None else executor.loop

    def executes_here(self) -> bool:
        """Return True if the caller is part of a run, even in a thread that copied the run's context."""
        found, links = CURRENT.get(), () if self._node is None else list(self._node.links.values())
        if found is not None and any(link.claims.get(found[0].id) is found[0] for link in links):
            return True
        return any(executor.executes_here() for executor in list(self.executors.values()))

    def prepare(self, run: Run) -> Run:
        """Find the function of a run and the executor it needs; raise TaskNotFound if it may not be called here."""
        alias, target, policy = PROCESSES_EXECUTOR, run.call.func, run.policy
        # A run that crashed a worker runs alone from then on, in a separate process that imports its code. The
        # exception is code that no other process can find: a function registered after the app was imported.
        if run.crashes and isinstance(target, str) and self._look_up_noted(run, self._is_left_to_child, target):
            policy = self._policy(run)
        else:
            found, policy = self.find(run)
            if policy.isolation == "process" or (run.crashes and found.is_importable):
                target = found.portable
            else:
                alias, target = (LOOP_EXECUTOR if found.is_async else THREADS_EXECUTOR), found.func
        if alias not in self.executors:
            self._executor(alias)
        return replace(run, call=run.call.found(target), policy=policy, executor=alias)

    def find(self, run: Run) -> tuple[ResolvedFunction, Policy]:
        """Find the function of a run, and its policy with the functions that the policy names."""
        func = run.call.func
        if isinstance(func, str):
            found = self._found.get(func) or self._look_up_noted(run, self._look_up, func)
        else:
            found = self._resolved(func, func)
        return found, self._policy(run) if isinstance(run.policy.backoff, str) else run.policy

    def backoff(self, name: str) -> Callable[..., Any]:
        """Return the back-off function with this name; raise TaskNotFound if it may not be called here."""
        named: Callable[..., Any] = self._named(name)
        return named.func if isinstance(named, Task) else named

    def forget(self) -> None:
        """Forget resolved names; call this when the app's tasks or middleware have changed."""
        self._found.clear()
        self._backoffs.clear()

    def _policy(self, run: Run) -> Policy:
        name = run.policy.backoff
        if not isinstance(name, str):
            return run.policy
        known = self._backoffs.get(name)
        if known is None:
            known = self._backoffs[name] = self._look_up_noted(run, self.backoff, name)
        return replace(run.policy, backoff=known)

    def _look_up_noted(self, run: Run, look: Callable[[str], T], name: str) -> T:
        """Look up a name for the first time; if the import kills this process, the scoreboard names the run."""
        board = self.board
        if board is None:
            return look(name)
        board.enter(run.id, None)
        try:
            return look(name)
        finally:
            board.forget(run.id)

    def _is_left_to_child(self, name: str) -> bool:
        """Return True if a name may be imported and this process has not imported it yet."""
        module = name.partition(":")[0]
        if module in sys.modules or self._app.tasks.get(name) is not None or not self._app.may_import:
            return False
        try:
            return find_spec(module) is not None
        except Exception:
            return False

    def _look_up(self, name: str) -> ResolvedFunction:
        named = self._named(name)
        if isinstance(named, Task):
            portable = TaskReference(named.name, self._path, named.import_name)
            found = ResolvedFunction(
                self._app.wrapped(named.func), named.is_async, portable, self._is_importable(named)
            )
        else:
            found = self._resolved(named, name)
        self._found[name] = found
        return found

    def _resolved(self, func: Callable[..., Any], portable: Callable[..., Any] | str) -> ResolvedFunction:
        return ResolvedFunction(
            self._app.wrapped(func), iscoroutinefunction_partial(func), portable, is_importable=True
        )

    @property
    def _path(self) -> str | None:
        """The place from which a child process can import the app, as `module:variable`."""
        # Not functools.cached_property: before Python 3.12 it has a lock, and a forked child would wait for its owner.
        if not self._paths:
            self._paths.append(variable_of(self._app))
        return self._paths[0]

    def _is_importable(self, task: Task[..., Any]) -> bool:
        """Return True if a child process can find a task, through the app that it imports or by its function."""
        try:
            found = ref_to_obj(task.import_name)
        except Exception:
            found = None
        return task.name in self._imported or (found.func if isinstance(found, Task) else found) is task.func

    def _named(self, name: str) -> Any:
        """Return the task with this name, or the function that the name refers to if it may be imported."""
        task = self._app.tasks.get(name)
        if task is not None:
            return task
        known = tuple(each.name for each in self._app.tasks)
        if not self._app.may_import:
            raise TaskNotFound(name, known, _NO_KEY)
        try:
            return ref_to_obj(name)
        except (LookupError, ValueError) as error:
            raise TaskNotFound(name, known, f" ({error})") from error

    def _executor(self, alias: str) -> BaseExecutor:
        executor: BaseExecutor
        if alias == LOOP_EXECUTOR:
            from mainspring.executors.asyncio import AsyncIOExecutor  # asyncio takes 40 ms to import

            executor = AsyncIOExecutor(max_running=self._coroutines, max_workers=1)
        else:
            from mainspring.executors.processes.pool import ProcessPoolExecutor

            # Let child processes import these before the time-out of a run begins.
            modules = {str(task.func.__module__) for task in self._app.tasks}
            modules |= {(self._path or "mainspring").partition(":")[0]}
            executor = ProcessPoolExecutor(self._isolated, {"initializer": preload, "initargs": (sorted(modules),)})
        self._start(alias, executor)
        self.executors[alias] = executor
        return executor

    def _start(self, alias: str, executor: BaseExecutor) -> None:
        node = self._node
        assert node is not None
        executor.now, executor.notify = node.elapsed, node.notify
        executor.board = self.board
        executor.start(self, alias)


_NO_KEY: Final = (
    "; this worker has no signing key, so it executes registered tasks only: register it with @app.task, or give app "
    "and workers a secret_key"
)
