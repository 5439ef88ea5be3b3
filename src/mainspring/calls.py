"""Calls become runs: one, many, chained, gathered; stored, or executed inline."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.clock import SECOND, to_us
from mainspring.context import current_run
from mainspring.errors import ConfigurationError, OutcomeUnknown, Retry, RunFailed, TaskNotFound
from mainspring.follow import step_of
from mainspring.handle import RunHandle
from mainspring.registry import Options, Task, TaskCall, reference_of
from mainspring.run import Call, Run, Status
from mainspring.task import ref_to_obj

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.inline import Inline

__all__ = ["Calls", "new_run_id"]

BATCH: Final = 1000
COLLECT: Final = "mainspring:collect"
_LOOK_AGAIN: Final = 60.0

log = logging.getLogger("mainspring.app")


def new_run_id() -> str:
    """Make an id that sorts by time, so that indexes stay small, and that nobody else makes."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


class Calls:
    """Turns an app's calls into runs."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._inline: Inline | None = None
        self._strange_queues: set[str] = set()
        app.tasks.add(Task(app, self._collect, COLLECT, Options()))

    def unregistered(self, func: Any) -> Task[..., Any]:
        """Make a task of a callable that is not registered, if it may be called by name."""
        app, name = self._app, reference_of(func)
        if isinstance(func, str):
            if not app.may_import:
                raise TaskNotFound(name, tuple(task.name for task in app.tasks), _NEEDS_KEY)
            try:
                func = ref_to_obj(name)
            except (LookupError, ValueError) as error:
                raise TaskNotFound(name, tuple(task.name for task in app.tasks), f" ({error})") from error
            if isinstance(func, Task):
                return func
        if not callable(func):
            raise TypeError(f"only something callable can be enqueued, not {func!r}")
        if not app.store.keeps_objects:
            if not app.may_import:
                raise TaskNotFound(name, tuple(task.name for task in app.tasks), _NEEDS_KEY)
            found = ref_to_obj(name) if "<" not in name else None
            if found is None:
                raise ConfigurationError(f"{name!r} has no name that a worker could import; make it a task of a module")
        return Task(app, func, name, Options())

    # -- making runs -------------------------------------------------------------------------------------------

    def enqueue(self, calls: Iterable[TaskCall[Any]]) -> list[RunHandle[Any]]:
        """Store the runs of calls, a thousand at a time."""
        handles: list[RunHandle[Any]] = []
        batch: list[Run] = []
        inline: list[Run] = []
        for call in calls:
            if not isinstance(call, TaskCall):
                raise TypeError(f"a call is made by task.call(...), not {call!r}")
            run = self._run(call)
            if self._app.inline or call.options.inline:
                inline.append(run)
                continue
            batch.append(run)
            if len(batch) == BATCH:
                handles += self._add(batch)
                batch = []
        if batch:
            handles += self._add(batch)
        if inline:
            handles += self._execute(inline)
        return handles

    def chain(self, calls: Sequence[TaskCall[Any]], group: str | None) -> list[RunHandle[Any]]:
        """Store the first of a chain of calls, the others inside it."""
        if not calls:
            raise ValueError("a chain needs at least one call")
        first, *rest = calls
        steps = tuple(self._step(call) for call in rest)
        run = self._run(first)
        run = replace(run, policy=replace(run.policy, then=steps), group=group or run.group)
        handle = (self._execute if self._app.inline else self._add)([run])[0]
        later = [RunHandle[Any](handle._runs, f"{handle.id}/{number}") for number in range(1, len(calls))]
        return [handle, *later]

    def gather(self, calls: Iterable[TaskCall[Any]]) -> RunHandle[list[Any]]:
        """Store calls as a group, and a run that collects their results."""
        group, now = new_run_id(), self._app.now()
        runs = [
            replace(run, id=f"{group}.{number}", group=group, policy=replace(run.policy, collect=group))
            for number, run in enumerate(map(self._run, calls))
        ]
        collector = Run(
            id=group,
            call=Call(COLLECT, (len(runs),), {}, "collect"),
            queue=runs[0].queue if runs else "default",
            data={"group": group},
            created_at=now,
            run_at=now + (int(_LOOK_AGAIN * SECOND) if runs else 0),
        )
        store = self._execute if self._app.inline else self._add
        handle: RunHandle[list[Any]] = store([collector])[0] if not self._app.inline else RunHandle(self._runs(), group)
        for start in range(0, len(runs), BATCH):
            if not self._app.inline:
                store(runs[start : start + BATCH])
        if self._app.inline:
            store([*runs, collector])
        return handle

    def _collect(self, number: int) -> list[Any]:
        """Return the results of a group, when all its runs have ended."""
        run = current_run()
        store = self._inline.store if self._app.inline and self._inline is not None else self._app.store
        results: list[Any] = []
        for start in range(0, number, BATCH):
            ids = [f"{run.id}.{n}" for n in range(start, min(number, start + BATCH))]
            for run_id, item in zip(ids, store.get_runs(ids), strict=True):
                if item is None or item.status in (Status.PENDING, Status.RUNNING):
                    raise Retry(_LOOK_AGAIN, f"waits for {run_id}", counted=False)
                if item.status is not Status.SUCCEEDED:
                    last = item.errors[-1] if item.errors else None
                    text = f"item {run_id} is {item.status}" + (f": {last.type}: {last.message}" if last else "")
                    raise RunFailed(run.id, "ItemFailed", text, last.traceback if last else "")
                results.append(item.result)
        return results

    def _run(self, call: TaskCall[Any]) -> Run:
        app, task, options = self._app, call.task, call.options
        now = app.now() if not app.inline else 0
        run_at = now
        if options.delay:
            run_at += int(options.delay * SECOND)
        elif options.at is not None:
            run_at = max(now, to_us(options.at))
        policy = options.policy
        if policy.hook is not None:
            app.as_task(policy.hook)  # raises if a worker could not call it
        if options.queue not in app._queues and options.queue not in self._strange_queues:
            self._strange_queues.add(options.queue)
            log.warning("no task of this app uses the queue %r; a worker has to be told: -Q %s", *[options.queue] * 2)
        run = Run(
            id=options.id or new_run_id(),
            call=Call(
                app.stored_func(task) if not app.inline else task.name if app.tasks.get(task.name) else task.func,
                tuple(call.args),
                dict(call.kwargs),
                options.name or task.__name__,
            ),
            queue=options.queue,
            group=options.group,
            unique=None if options.unique is None else f"{task.name}:{options.unique}",
            policy=policy,
            priority=policy.priority,
            created_at=now,
            run_at=run_at,
        )
        app.emit("pre_enqueue", run)
        return run

    def _step(self, call: TaskCall[Any]) -> dict[str, Any]:
        run = self._run(call)
        func = run.call.func
        return step_of(run.call, func if isinstance(func, str) else reference_of(func), run.queue, run.policy)

    # -- storing them ------------------------------------------------------------------------------------------

    def _add(self, runs: Sequence[Run]) -> list[RunHandle[Any]]:
        store = self._app.store
        try:
            ids = store.add_runs(runs)
        except OutcomeUnknown:
            ids = store.add_runs(runs)  # with the same ids, so none is stored twice
        return [RunHandle(self._app.runs, run_id) for run_id in ids]

    def _runs(self) -> Any:
        return self._companion().runs

    def _execute(self, runs: Sequence[Run]) -> list[RunHandle[Any]]:
        inline = self._companion()
        return [RunHandle(inline.runs, run_id) for run_id in inline.execute(runs)]

    def _companion(self) -> Inline:
        if self._inline is None:
            from mainspring.inline import Inline

            self._inline = Inline(self._app)
            if self._app.inline:
                self._app.runs = self._inline.runs
        return self._inline


_NEEDS_KEY: Final = (
    "; only registered tasks can be called without a signing key: register it with @app.task, or give the app a "
    "secret_key (or set MAINSPRING_SECRET_KEY)"
)
