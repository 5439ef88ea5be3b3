"""Calls become runs: one, many, chained, gathered; stored, or executed inline."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.app.handle import RunHandle
from mainspring.app.registry import COLLECT, Options, Task, TaskCall, reference_of
from mainspring.app.sending import BATCH, Sender, send
from mainspring.core.followups import MOST_STEPS, step_id, step_of
from mainspring.core.ids import pin
from mainspring.core.instants import SECOND, to_us
from mainspring.core.policy import Backoff, Policy
from mainspring.core.references import obj_to_ref, ref_to_obj
from mainspring.core.run import UNFINISHED, Call, Run, Status
from mainspring.errors import (
    CallableReferenceError,
    ConfigurationError,
    Retry,
    RunFailed,
    TaskNotFound,
    UnverifiedOutcome,
    near,
)
from mainspring.executors.current_run import current_run
from mainspring.node.new_ids import new_run_id
from mainspring.util import localize

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.inline import Inline

__all__ = ["Calls"]

_LOOK_AGAIN: Final = 60.0
_GIVEN_UP: Final = 600 * SECOND
"""How long after a gather was enqueued all of its items have been, whatever held its enqueuer up."""

_UNCOLLECTED: Final = 86400.0
"""Seconds for which the result of an item is kept at least."""

log = logging.getLogger("mainspring.app")


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
        by_name = isinstance(func, str)
        # A store of objects keeps the callable itself; any other needs a name, and a worker that may import it.
        if (by_name or not app.keeps_objects) and not app.may_import:
            raise TaskNotFound(name, tuple(task.name for task in app.tasks), _NEEDS_KEY)
        if by_name:
            try:
                func = ref_to_obj(name)
            except (LookupError, ValueError) as error:
                raise TaskNotFound(name, tuple(task.name for task in app.tasks), f" ({error})") from error
            if isinstance(func, Task):
                return func
        if not callable(func):
            raise TypeError(f"only something callable can be enqueued, not {func!r}")
        if not (by_name or app.keeps_objects):
            _check_importable(func)
        return Task(app, func, name, Options())

    def check_policy(self, policy: Policy) -> None:
        """Raise if a worker could not call what a policy names."""
        if policy.hook is not None:
            self._app.as_task(policy.hook)
        if not isinstance(policy.backoff, (Backoff, tuple)):
            self._app.as_task(policy.backoff)

    # -- making runs -------------------------------------------------------------------------------------------

    def enqueue_one(self, call: TaskCall[Any]) -> RunHandle[Any]:
        """Store the run of a call."""
        inline, run = self._is_inline(call), self._run(call)
        (handle,) = self._execute([run]) if inline else send(self._app, [run])
        return handle

    def enqueue(self, calls: Iterable[TaskCall[Any]]) -> list[RunHandle[Any]]:
        """Store the runs of calls, a thousand at a time."""
        handles: list[RunHandle[Any]] = []
        with Sender(self._app, handles) as sender:
            for inline, some in itertools.groupby(calls, key=self._is_inline):
                while runs := [self._run(call) for call in itertools.islice(some, BATCH)]:
                    if inline:
                        sender.wait()
                        handles += self._execute(runs)
                    else:
                        sender.send(runs)
        return handles

    def _is_inline(self, call: TaskCall[Any]) -> bool:
        return _checked(call).options.inline or self._app.inline

    def _are_inline(self, calls: Sequence[TaskCall[Any]]) -> bool:
        """Tell whether calls that belong together are executed here; raise if only some of them are."""
        kinds = set(map(self._is_inline, calls))
        if len(kinds) > 1:
            raise ValueError("calls that are chained or gathered are all of them or none inline: give each inline=True")
        return self._app.inline or True in kinds

    def chain(self, calls: Sequence[TaskCall[Any]], group: str | None) -> list[RunHandle[Any]]:
        """Store the first of a chain of calls, the others inside it."""
        if not calls:
            raise ValueError("a chain needs at least one call")
        if len(calls) > MOST_STEPS:
            raise ValueError(
                f"a chain has at most {MOST_STEPS:,} calls, not {len(calls):,}; let its last call enqueue another chain"
            )
        inline = self._are_inline(calls)
        first, *rest = calls
        run = self._make(first)
        group = group or run.group
        later_runs = [self._later_run(call, step_id(run.id, number), group) for number, call in enumerate(rest, 1)]
        steps = tuple(_step(each, call.options.delay or 0.0) for each, call in zip(later_runs, rest, strict=True))
        run = replace(run, policy=replace(run.policy, then=steps), group=group)
        for each in (run, *later_runs):
            self._app.emit("pre_enqueue", each)
        (handle,) = self._execute([run]) if inline else send(self._app, [run])
        # Of a run that is known already, by its id or its unique key, these are the steps, if it has any.
        later = [RunHandle[Any](handle._runs, step_id(handle.id, number)) for number in range(1, len(calls))]
        return [handle, *later]

    def gather(self, calls: Iterable[TaskCall[Any]]) -> RunHandle[list[Any]]:
        """Store calls as a group, and a run that collects their results."""
        group, now, calls = new_run_id(), self._app.now(), list(calls)
        inline = self._are_inline(calls)
        runs = [self._item(call, group, number) for number, call in enumerate(calls)]
        collector = Run(
            id=group,
            call=Call(COLLECT, (len(runs),), {"inline": True} if inline else {}, "collect"),
            queue=runs[0].queue if runs else "default",
            data={"group": group},
            created_at=now,
            run_at=now + (int(_LOOK_AGAIN * SECOND) if runs else 0),
        )
        if inline:
            return self._execute([*runs, collector])[-1]
        (handle,) = send(self._app, [collector])  # first, so that nobody can end the group before it is there
        with Sender(self._app, []) as sender:
            for start in range(0, len(runs), BATCH):
                sender.send(runs[start : start + BATCH])
        return handle

    def _item(self, call: TaskCall[Any], group: str, number: int) -> Run:
        for name in ("id", "unique", "group"):
            if getattr(_checked(call).options, name) is not None:
                raise ValueError(f"{name}= cannot be given to a call that is gathered, which has one already: {call!r}")
        run = self._make(call)
        # However short its own retention, and however many they are, results are kept until they are collected.
        policy = replace(run.policy, collect=group, retention=max(_UNCOLLECTED, run.policy.retention or 0.0))
        run = replace(run, id=f"{group}.{number}", group=group, policy=policy)
        self._app.emit("pre_enqueue", run)
        return run

    def _collect(self, number: int, inline: bool = False) -> list[Any]:
        """Return the results of a group, when all its runs have ended."""
        app, run = self._app, current_run()
        store = self.companion().store if inline else app.store
        results: list[Any] = []
        for start in range(0, number, BATCH):
            ids = [f"{run.id}.{n}" for n in range(start, min(number, start + BATCH))]
            for run_id, item in zip(ids, store.get_runs(ids), strict=True):
                if item is None and app.now() - run.record.created_at > _GIVEN_UP:
                    raise RunFailed(run.id, "ItemGone", f"item {run_id} was deleted before it could be collected", "")
                if item is None or item.status in UNFINISHED:
                    raise Retry(_LOOK_AGAIN, f"waits for {run_id}", counted=False)
                if item.unverified is not None:
                    raise UnverifiedOutcome(item.id, item.status.value, item.unverified)
                if item.status is not Status.SUCCEEDED:
                    last = item.errors[-1] if item.errors else None
                    text = f"item {run_id} is {item.status}" + (f": {last.type}: {last.message}" if last else "")
                    raise RunFailed(run.id, "ItemFailed", text, last.traceback if last else "")
                results.append(item.result)
        return results

    def _run(self, call: TaskCall[Any]) -> Run:
        run = self._make(call)
        self._app.emit("pre_enqueue", run)
        return run

    def _make(self, call: TaskCall[Any]) -> Run:
        app, task, options = self._app, _checked(call).task, call.options
        self.check_policy(options.policy)
        run_at = now = app.now()
        if options.delay:
            run_at += app.slack + int(options.delay * SECOND)  # never early, if anything late
        elif options.at is not None:
            run_at = max(now, to_us(options.at if options.at.tzinfo else localize(options.at, app.timezone)))
        if options.queue not in app._queues and options.queue not in self._strange_queues:
            self._strange_queues.add(options.queue)
            text = "no task of this app uses the queue %r%s (if it is meant, tell a worker: -Q %s)"
            log.warning(text, options.queue, near(options.queue, app.declared_queues()), options.queue)
        return Run(
            id=_id(options),
            call=Call(app.stored_func(task), tuple(call.args), dict(call.kwargs), options.name or task.__name__),
            queue=options.queue,
            group=options.group,
            unique=_unique(task.name, options),
            policy=options.policy,
            priority=options.policy.priority,
            created_at=now,
            run_at=run_at,
        )

    def _later_run(self, call: TaskCall[Any], run_id: str, group: str | None) -> Run:
        """Make the run of a later call of a chain, as it will be stored when its turn has come."""
        for name in ("id", "unique", "group", "at"):
            if getattr(_checked(call).options, name) is not None:
                raise ValueError(f"{name}= can be given to the first call of a chain only, not to {call!r}")
        return replace(self._make(call), id=run_id, group=group)

    # -- inline ------------------------------------------------------------------------------------------------

    def _execute(self, runs: Sequence[Run]) -> list[RunHandle[Any]]:
        inline = self.companion()
        return [RunHandle(inline.runs, run_id) for run_id in inline.execute(runs)]

    def forget(self) -> None:
        """Look names up anew: the app's tasks or middleware have changed."""
        if self._inline is not None:
            self._inline.forget()

    def companion(self) -> Inline:
        """Return the place where calls are executed inline."""
        if self._inline is None:
            from mainspring.app.inline import Inline

            self._inline = Inline(self._app)
        return self._inline


def _step(run: Run, delay: float) -> dict[str, Any]:
    func = run.call.func
    return step_of(run.call, func if isinstance(func, str) else reference_of(func), run.queue, run.policy, delay)


def _checked(call: Any) -> TaskCall[Any]:
    if not isinstance(call, TaskCall):
        raise TypeError(f"a call is made by task.call(...), not {call!r}")
    return call


def _check_importable(func: Any) -> None:
    """Raise if a worker that imports a callable by its name would not find it."""
    try:
        obj_to_ref(func)
    except (CallableReferenceError, LookupError) as error:
        raise ConfigurationError(f"no worker can import {func!r}: {error}; make it a function of a module") from error
    if inspect.ismethod(func) and not inspect.isclass(func.__self__):
        raise ConfigurationError(f"{func!r} is bound to an object, which no worker has; pass the object as an argument")


_NEEDS_KEY: Final = (
    "; only registered tasks can be called without a signing key: register it with @app.task, or give the app a "
    "secret_key (or set MAINSPRING_SECRET_KEY)"
)


def _id(options: Options) -> str:
    run_id = options.id or new_run_id()
    return run_id if options.shard is None else pin(options.shard, run_id)


def _unique(task: str, options: Options) -> str | None:
    """Return the unique key, scoped by task; a run with a key lives in its key's shard."""
    if options.unique is None:
        return None
    key = f"{task}:{options.unique}"
    return key if options.shard is None else pin(options.shard, key)
