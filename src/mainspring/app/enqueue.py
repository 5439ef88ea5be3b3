"""Turn calls into runs (one, many, chained or gathered), and store them or execute them inline."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from mainspring.app.handle import RunHandle
from mainspring.app.import_guard import warn_of_enqueuing
from mainspring.app.registry import COLLECT_TASK, Options, TaskCall, make_options, reference_of
from mainspring.app.runs import ALIAS, Runs
from mainspring.core.followups import MOST_STEPS, step_id, step_of
from mainspring.core.ids import pin
from mainspring.core.instants import SECOND, to_us
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.run import UNFINISHED, Call, Run, Status
from mainspring.errors import OutcomeUnknown, Retry, RunFailed, StoreUnavailable, UnverifiedOutcome, add_note, near
from mainspring.executors.current_run import current_run
from mainspring.node.new_ids import new_run_id
from mainspring.util import localize

if TYPE_CHECKING:
    from mainspring.app.middleware import Middleware
    from mainspring.app.queues import Queues
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore
    from mainspring.jobstores.base import JobStore

__all__ = ["Calls", "check_call"]

BATCH_RUNS: Final = 1000
"""Store this many runs in one round trip."""
HEAD_START_SECONDS: Final = 0.005
"""Let the sender thread reach the driver, which releases the GIL, before this thread packs the next batch."""

_GATHER_POLL_SECONDS: Final = 60.0
_GATHER_GRACE_US: Final = 600 * SECOND
"""Assume that all items of a gather are enqueued by then, whatever delayed the process that enqueues them."""

_ITEM_RETENTION_SECONDS: Final = 86400.0
"""Keep the result of an item for at least this many seconds."""

log = logging.getLogger("mainspring.app")


class Calls:
    """Turns an app's calls into runs."""

    def __init__(
        self, app_store: AppStore, tasks: Registry, middleware: Middleware, queues: Queues, runs: Runs
    ) -> None:
        self._app_store, self._tasks, self._middleware = app_store, tasks, middleware
        self._queues, self._runs = queues, runs
        self._strange_queues: set[str] = set()

    # -- making runs -------------------------------------------------------------------------------------------

    def enqueue_one(self, call: TaskCall[Any]) -> RunHandle[Any]:
        """Store the run of a call."""
        run = self._make(call)
        if self._middleware.signals["pre_enqueue"]:
            self._middleware.emit("pre_enqueue", run)
        if self._app_store.inline or call.options.inline:
            return self._execute([run])[0]
        return RunHandle(self._runs, self._store([run])[0])

    def again(
        self, run: Run, args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> RunHandle[Any]:
        """Store a copy of a run's call as a run of its own, without its chain steps and its group's collector."""
        if run.queue.startswith("."):
            raise ValueError(f"run {run.id!r} belongs to an executor of a scheduler; call run_now for its job instead")
        task = self._tasks.resolve(run.call.func)
        call = TaskCall(task, tuple(run.args if args is None else args), dict(run.kwargs if kwargs is None else kwargs))
        policy = replace(run.policy, then=(), collect=None, priority=run.priority)
        base = Options(queue=run.queue, policy=policy, name=run.name or None, group=run.group)
        call.options = make_options(base, options)
        copy = replace(self._run(call), copied_from=run.id)
        (handle,) = (self._execute if self._is_inline(call) else self.send)([copy])
        return handle

    def enqueue(self, calls: Iterable[TaskCall[Any]]) -> list[RunHandle[Any]]:
        """Store the runs of calls, a thousand at a time."""
        handles: list[RunHandle[Any]] = []
        with Sender(self.send, handles) as sender:
            for inline, some in itertools.groupby(map(check_call, calls), key=self._is_inline):
                while runs := [self._run(call) for call in itertools.islice(some, BATCH_RUNS)]:
                    if inline:
                        sender.wait()
                        handles += self._execute(runs)
                    else:
                        sender.send(self._app_store.lasting, runs)
        return handles

    def _is_inline(self, call: TaskCall[Any]) -> bool:
        return self._app_store.inline or call.options.inline

    def _are_inline(self, calls: Iterable[TaskCall[Any]]) -> bool:
        """Return True if these chained or gathered calls are all inline; raise if only some of them are."""
        kinds = {self._is_inline(check_call(call)) for call in calls}
        if len(kinds) > 1:
            raise ValueError("chained or gathered calls are inline all together or not at all: give each inline=True")
        return self._app_store.inline or True in kinds

    def send(self, runs: Sequence[Run], packed: Sequence[Any] = ()) -> list[RunHandle[Any]]:
        """Store runs and return their handles; the runs may already be packed."""
        return [RunHandle(self._runs, run_id) for run_id in self._store(runs, packed)]

    def _store(self, runs: Sequence[Run], packed: Sequence[Any] = ()) -> list[str]:
        """Store runs and return their ids.

        Raise OutcomeUnknown with the ids if the store's reply was lost, and the reply to the retry, too.
        """
        app_store = self._app_store
        store = app_store.opened or app_store.lasting
        packed = packed or list(map(store.pack_run, runs))
        try:
            ids = store.add_runs(packed)
        except OutcomeUnknown as unknown:
            try:
                ids = store.add_runs(packed)  # with the same ids, so none is stored twice
            except StoreUnavailable as error:  # this error says nothing about the first try
                unknown.run_ids = tuple(run.id for run in runs)
                raise unknown from error
        # Another id means that a run with this unique key existed already.
        new = [run for run, run_id in zip(runs, ids, strict=True) if run.id == run_id]
        app_store.count_added(new)
        if app_store.events.listeners.mask:
            app_store.events.submitted(new, ALIAS)
        if app_store.opened_by_import:
            warn_of_enqueuing()
        if app_store.link is not None:
            app_store.wake_worker(runs)
        return ids

    def chain(self, calls: Sequence[TaskCall[Any]], group: str | None) -> list[RunHandle[Any]]:
        """Store the first call of a chain, with the later calls inside it."""
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
            self._middleware.emit("pre_enqueue", each)
        (handle,) = self._execute([run]) if inline else self.send([run])
        # If the first run existed already, by its id or unique key, these are the steps of that run.
        later = [RunHandle[Any](handle._runs, step_id(handle.id, number)) for number in range(1, len(calls))]
        return [handle, *later]

    def gather(self, calls: Iterable[TaskCall[Any]]) -> RunHandle[list[Any]]:
        """Store calls as a group, and a run that collects their results."""
        group, now, calls = new_run_id(), self._app_store.now(), list(calls)
        inline = self._are_inline(calls)
        runs = [self._item(call, group, number) for number, call in enumerate(calls)]
        collector = Run(
            id=group,
            call=Call(COLLECT_TASK, (len(runs),), {"inline": True} if inline else {}, "collect"),
            queue=runs[0].queue if runs else "default",
            data={"group": group},
            created_at=now,
            run_at=now + (int(_GATHER_POLL_SECONDS * SECOND) if runs else 0),
        )
        if inline:
            return self._execute([*runs, collector])[-1]
        (handle,) = self.send([collector])  # first, so that the group cannot end before its collector exists
        with Sender(self.send, []) as sender:
            for start in range(0, len(runs), BATCH_RUNS):
                sender.send(self._app_store.lasting, runs[start : start + BATCH_RUNS])
        return handle

    def _item(self, call: TaskCall[Any], group: str, number: int) -> Run:
        for name in ("id", "unique", "group"):
            if getattr(check_call(call).options, name) is not None:
                raise ValueError(f"{name}= cannot be given to a gathered call, because gather sets it: {call!r}")
        run = self._make(call)
        # Keep results until they are collected, whatever the retention of an item and the number of runs.
        policy = replace(run.policy, collect=group, retention=max(_ITEM_RETENTION_SECONDS, run.policy.retention or 0.0))
        run = replace(run, id=f"{group}.{number}", group=group, policy=policy)
        self._middleware.emit("pre_enqueue", run)
        return run

    def collect(self, number: int, inline: bool = False) -> list[Any]:
        """Return the results of a group once all its runs have ended."""
        app_store, run = self._app_store, current_run()
        store = app_store.companion.store if inline else app_store.store
        results: list[Any] = []
        for start in range(0, number, BATCH_RUNS):
            ids = [f"{run.id}.{n}" for n in range(start, min(number, start + BATCH_RUNS))]
            for run_id, item in zip(ids, store.get_runs(ids), strict=True):
                if item is None and app_store.now() - run.record.created_at > _GATHER_GRACE_US:
                    raise RunFailed(run.id, "ItemGone", f"item {run_id} was deleted before it was collected", "")
                if item is None or item.status in UNFINISHED:
                    raise Retry(_GATHER_POLL_SECONDS, f"waits for {run_id}", counted=False)
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
        self._middleware.emit("pre_enqueue", run)
        return run

    def _make(self, call: TaskCall[Any]) -> Run:
        app_store, task, options = self._app_store, call.task, call.options
        policy, run_id, unique = options.policy, options.id or new_run_id(), None
        if policy is not DEFAULT_POLICY:
            self._tasks.check_policy(policy)
        run_at = now = app_store.now()
        if options.delay:
            run_at += app_store.slack + int(options.delay * SECOND)  # round up: late rather than early
        elif options.at is not None:
            run_at = max(now, to_us(options.at if options.at.tzinfo else localize(options.at, app_store.timezone)))
        if options.queue not in self._queues.declared and options.queue not in self._strange_queues:
            self._strange_queues.add(options.queue)
            text = "no task of this app uses the queue %r%s (if you mean it, start a worker with -Q %s)"
            log.warning(text, options.queue, near(options.queue, self._queues.declared), options.queue)
        if options.unique is not None:
            unique = f"{task.name}:{options.unique}"
        if options.shard is not None:  # a run with a unique key is stored in the shard of its key
            run_id, unique = pin(options.shard, run_id), unique and pin(options.shard, unique)
        return Run(
            id=run_id,
            call=Call(
                task.name if task.registry is self._tasks else self._tasks.stored(task),
                tuple(call.args),
                dict(call.kwargs),
                options.name or task.__name__,
            ),
            queue=options.queue,
            group=options.group,
            unique=unique,
            policy=policy,
            priority=policy.priority,
            created_at=now,
            run_at=run_at,
        )

    def _later_run(self, call: TaskCall[Any], run_id: str, group: str | None) -> Run:
        """Make the run of a later call of a chain, as the store will add it when its turn comes."""
        for name in ("id", "unique", "group", "at"):
            if getattr(check_call(call).options, name) is not None:
                raise ValueError(f"only the first call of a chain can have {name}=, not {call!r}")
        return replace(self._make(call), id=run_id, group=group)

    def _execute(self, runs: Sequence[Run]) -> list[RunHandle[Any]]:
        inline = self._app_store.companion
        return [RunHandle(inline.runs, run_id) for run_id in inline.execute(runs)]


class Sender:
    """Stores batches of runs in order, and collects their handles."""

    def __init__(self, send: Callable[..., list[RunHandle[Any]]], handles: list[RunHandle[Any]]) -> None:
        self._send, self._handles = send, handles
        self._pool: ThreadPoolExecutor | None = None
        self._sent: Future[list[RunHandle[Any]]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failed: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except Exception as error:
            if failed is None:
                failed = error
                raise
            add_note(failed, f"the calls of the batch before may not be stored: {error!r}")
        finally:
            if failed is not None and self._handles:
                add_note(failed, f"the first {len(self._handles):,} calls are stored")
            if self._pool is not None:
                self._pool.shutdown()

    def send(self, store: JobStore, runs: Sequence[Run]) -> None:
        """Store a batch of runs; send a full batch to a server in the background while the caller makes the next."""
        if len(runs) < BATCH_RUNS or not store.remote:
            self.wait()
            self._handles += self._send(runs)
            return
        packed = [store.pack_run(run) for run in runs]
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mainspring-sender")
        self._sent = self._pool.submit(self._send, runs, packed)
        wait([self._sent], HEAD_START_SECONDS)

    def wait(self) -> None:
        """Wait until all batches are stored."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._handles += sent.result()


def _step(run: Run, delay: float) -> dict[str, Any]:
    func = run.call.func
    return step_of(run.call, func if isinstance(func, str) else reference_of(func), run.queue, run.policy, delay)


def check_call(call: Any) -> TaskCall[Any]:
    """Raise TypeError unless a task made this call."""
    if not isinstance(call, TaskCall):
        raise TypeError(f"a call is made by task.call(...), not {call!r}")
    return call
