"""Turn calls into runs, one or many, and store them or execute them inline."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from msgspec.structs import replace

from mainspring.app.declaring.task import Options, RunPattern, TaskCall, make_options
from mainspring.app.enqueuing.admission import PLAIN_ADMISSION, admitted, replacement
from mainspring.app.handle import RunHandle
from mainspring.app.loading.import_guard import warn_of_enqueuing
from mainspring.app.runs import ALIAS, Runs
from mainspring.core.ids import pin
from mainspring.core.instants import SECOND, to_us
from mainspring.core.lanes import needed_executor
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.run import UNTIL_START_PREFIX, WAITING, Call, Run, is_local
from mainspring.core.transitions import cancel
from mainspring.core.waiting.bridges import bridged
from mainspring.core.waiting.followups import with_hooks
from mainspring.core.waiting.placeholders import Placeholder, with_inputs
from mainspring.errors import OutcomeUnknown, RunNotFound, StoreUnavailable, add_note, near
from mainspring.events import EVENT_JOB_SUBMITTED
from mainspring.node.new_ids import new_run_id, new_run_ids
from mainspring.util import localize

if TYPE_CHECKING:
    from mainspring.app.middleware import Middleware
    from mainspring.app.queues import Queues
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore
    from mainspring.jobstores.base import JobStore, PackLike

__all__ = ["Calls", "check_call"]

BATCH_RUNS: Final = 1000
"""Store this many runs in one round trip."""
CALLS_AT_ONCE: Final = 100
"""Make the runs of this many calls at once: short-lived calls cost the garbage collector nothing."""
HEAD_START_SECONDS: Final = 0.001
"""Sleep this long before packing the next batch, so that the sender thread gets the GIL and reaches the driver."""

_ID: Final = attrgetter("id")
_PREDECESSORS: Final = attrgetter("after")

log = logging.getLogger("mainspring.app")


class Calls:
    """Turns an app's calls into runs."""

    def __init__(
        self, app_store: AppStore, tasks: Registry, middleware: Middleware, queues: Queues, runs: Runs
    ) -> None:
        self.app_store, self._tasks, self._middleware = app_store, tasks, middleware
        self._queues, self.runs = queues, runs
        self._strange_queues: set[str] = set()

    def over(self, app_store: AppStore) -> Calls:
        """Return a `Calls` with the same parts over another store."""
        return Calls(app_store, self._tasks, self._middleware, self._queues, self.runs)

    def check(self, call: TaskCall[Any]) -> None:
        """Raise if a call cannot be stored."""
        self.app_store.lasting.pack_run(self.make(check_call(call)))

    # -- making runs -------------------------------------------------------------------------------------------

    def enqueue_one(self, call: TaskCall[Any]) -> RunHandle[Any]:
        """Store the run of a call."""
        if self.is_inline(call):
            return self.execute([self.make_announced(call)])[0]
        pack = self._packing(call)
        if pack is None:
            run = self.make_announced(call)
            (run_id,) = self.store([run])
        else:
            run = pack(new_run_id(), call.args, call.kwargs, self.app_store.now())
            (run_id,) = self._store_packed([run], [run], [run])
        if run_id is None:
            self.raise_missing([run], [run_id])
        return RunHandle(self.runs, run_id)

    def again(
        self, run: Run, args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> RunHandle[Any]:
        """Store a copy of a run's call as a new run, which comes only after the runs whose results it takes."""
        if is_local(run.queue):
            raise ValueError(f"run {run.id!r} belongs to an executor of a scheduler; call run_now for its job instead")
        task = self._tasks.resolve(run.call.func)
        call = TaskCall(task, tuple(run.args if args is None else args), dict(run.kwargs if kwargs is None else kwargs))
        policy = replace(run.policy, priority=run.priority)
        base = Options(queue=run.queue, policy=policy, name=run.name or None, group=run.group)
        call.options = make_options(base, options)
        copy = replace(self.make_announced(call), copied_from=run.id)
        (handle,) = (self.execute if self.is_inline(call) else self.send)([copy])
        return handle

    def enqueue(self, calls: Iterable[TaskCall[Any]]) -> list[RunHandle[Any]]:
        """Store the runs of calls, a thousand at a time."""
        handles: list[RunHandle[Any]] = []
        transactions = self.app_store.transactions
        here = transactions is not None and transactions.is_open()  # a helper thread is outside the transaction
        with Sender(self.send, handles, here=here) as sender:
            for inline, some in itertools.groupby(map(check_call, calls), key=self.is_inline):
                make = self._make_announced_runs if inline else self._make_packed_runs
                while runs := make(itertools.islice(some, BATCH_RUNS)):
                    if inline:
                        sender.wait()
                        handles += self.execute(runs)
                    else:
                        sender.send(self.app_store.lasting, runs)
        return handles

    def _make_announced_runs(self, calls: Iterator[TaskCall[Any]]) -> list[Run]:
        return [self.make_announced(call) for call in calls]

    def _make_packed_runs(self, calls: Iterator[TaskCall[Any]]) -> list[Any]:
        """Return the runs of calls, ready to be stored."""
        runs: list[Any] = []
        while some := list(itertools.islice(calls, CALLS_AT_ONCE)):
            runs += map(self._make_packed, some, new_run_ids(len(some)))
        return runs

    def _make_packed(self, call: TaskCall[Any], run_id: str) -> Any:
        """Return the run of a call: packed at once under this id, or as an object if a listener has to see it first."""
        pack = self._packing(call)
        return self.make_announced(call) if pack is None else pack(run_id, call.args, call.kwargs, self.app_store.now())

    def is_inline(self, call: TaskCall[Any]) -> bool:
        """Return True if a call is executed where it is enqueued."""
        return self.app_store.inline or call.options.inline

    def send(self, runs: Sequence[Run], packed: Sequence[Any] = ()) -> list[RunHandle[Any]]:
        """Store runs and return their handles; raise RunNotFound if one should come after a run that does not exist."""
        ids = self.store(runs, packed)
        if None in ids:
            self.raise_missing(runs, ids)
        return [RunHandle(self.runs, run_id) for run_id in ids if run_id is not None]

    def store(self, runs: Sequence[Run], packed: Sequence[Any] = ()) -> list[str | None]:
        """Store runs and their hooks, which may already be packed; return the answers of the store for the runs.

        Raise OutcomeUnknown with the ids if both the store's reply and the reply to the retry were lost.
        """
        store = self.app_store.lasting
        whole = with_hooks(runs)
        if any(map(_PREDECESSORS, whole)) and (far := store.far_edges(whole)):
            bridges, whole = bridged(whole, far)
            answers = self._add(store, bridges, bridges, list(map(store.pack_run, bridges)))
            if None in answers:
                self.raise_missing(bridges, answers)
            packed = ()
        return self._store_packed(runs, whole, packed or list(map(store.pack_run, whole)))

    def _store_packed(self, runs: Sequence[Run], whole: Sequence[Run], packed: Sequence[Any]) -> list[str | None]:
        """Store packed runs, at once or when the caller's transaction commits."""
        app_store = self.app_store
        store, transactions = app_store.opened or app_store.lasting, app_store.transactions
        if transactions is not None and transactions.defer(lambda: self._add(store, runs, whole, packed), packed):
            return [run.id for run in runs]
        return self._add(store, runs, whole, packed)

    def _add(
        self, store: JobStore, runs: Sequence[Run], whole: Sequence[Run], packed: Sequence[Any]
    ) -> list[str | None]:
        app_store = self.app_store
        try:
            answers = store.add_runs(packed)
        except OutcomeUnknown as unknown:
            try:
                answers = store.add_runs(packed)  # the ids are the same, so no run is stored twice
            except StoreUnavailable as error:  # this error says nothing about the first try
                unknown.run_ids = tuple(run.id for run in runs)
                raise unknown from error
        new = whole
        if answers != list(map(_ID, whole)):
            for number, (run, answer) in enumerate(zip(whole, answers, strict=True)):
                if answer not in (run.id, None) and run.unique is not None and run.unique[0] == UNTIL_START_PREFIX:
                    answers[number] = self._replace(store, run, answer)
            # Another id in the answer means that a run with this unique key already existed.
            new = [run for run, answer in zip(whole, answers, strict=True) if answer == run.id]
        app_store.count_added(new)
        if app_store.events.listeners.mask & EVENT_JOB_SUBMITTED:
            app_store.events.submitted([run for run in new if isinstance(run, Run)], ALIAS)
        if app_store.opened_by_import:
            warn_of_enqueuing()
        if answers.refused:
            self.runs.cancel_refused(answers.refused)
        if app_store.link is not None:
            app_store.wake_worker(runs)
        if len(whole) == len(runs):
            return answers
        by_id = {run.id: answer for run, answer in zip(whole, answers, strict=True)}
        return [by_id[run.id] for run in runs]

    def _replace(self, store: JobStore, run: Run, holder_id: str) -> str:
        """Replace the waiting run that has the same unique key by this run, in one write; return the new id."""
        while True:
            holder = store.get_runs([holder_id])[0]
            if holder is None or holder.status not in WAITING:  # it has started or ended meanwhile
                found = store.add_runs(list(map(store.pack_run, with_hooks([run]))))[0]
                if found is None or found == run.id:
                    return run.id
                holder_id = found
                continue
            new = replacement(run, holder)
            ended = cancel(replace(holder, reason=f"replaced by {new.id}"), self.app_store.now())
            if store.settle([store.pack_outcome(replace(ended, then=(*ended.then, *with_hooks([new]))))])[0]:
                return new.id

    def raise_missing(self, runs: Sequence[Run], ids: Sequence[str | None]) -> NoReturn:
        """Raise RunNotFound for the first run that was not stored because one of its predecessors does not exist."""
        run = next(run for run, run_id in zip(runs, ids, strict=True) if run_id is None)
        wanted = [edge.id for edge in run.after]
        found = zip(wanted, self.app_store.lasting.standings(wanted), strict=True)
        missing = next((run_id for run_id, standing in found if standing is None), wanted[0])
        error = RunNotFound(missing, f"{run.name!r} cannot come after it")
        stored = len(runs) - list(ids).count(None)
        if stored:
            add_note(error, f"{stored:,} of these {len(runs):,} calls are stored")
        raise error

    def make_announced(self, call: TaskCall[Any]) -> Run:
        """Make the run of a call, and show it to the `pre_enqueue` listeners."""
        run = self.make(call)
        self._middleware.emit("pre_enqueue", run)
        return run

    def announce(self, run: Run) -> None:
        """Show the `pre_enqueue` listeners a run that is about to be stored."""
        self._middleware.emit("pre_enqueue", run)

    def make(self, call: TaskCall[Any]) -> Run:
        """Make the run of a call; make and check only once the parts that all calls of the task share."""
        pattern = self._pattern(call)
        if pattern is None:
            run = self._make(call)
            if is_repeatable(call.options) and call.task.registry is self._tasks and not Placeholder.made:
                bare = replace(run, call=replace(run.call, args=(), kwargs={}, headers=None))
                call.task.pattern = RunPattern(self, call.options, bare)
            return run
        common, now = pattern.run.call, self.app_store.now()
        headers: dict[str, str] | None = {} if self._middleware.signals["pre_enqueue"] else None
        own = Call(common.func, tuple(call.args), dict(call.kwargs), common.name, headers=headers)
        return replace(pattern.run, id=new_run_id(), call=own, created_at=now, run_at=now)

    def _pattern(self, call: TaskCall[Any]) -> RunPattern | None:
        """Return the pattern for the run of a call; None if the task's last pattern has other options."""
        made = call.task.pattern
        if made is None or made.maker is not self or made.options is not call.options or Placeholder.made:
            return None
        return made

    def _packing(self, call: TaskCall[Any]) -> PackLike | None:
        """Return the function that packs such runs; None if a listener has to see the run, or if it has a hook."""
        pattern = self._pattern(call)
        if (
            pattern is None
            or pattern.run.policy.hook is not None
            or self._middleware.signals["pre_enqueue"]
            or self.app_store.events.listeners.mask & EVENT_JOB_SUBMITTED
        ):
            return None
        store, packing = self.app_store.opened or self.app_store.lasting, pattern.packing
        if packing is None or packing[0] is not store:
            packing = pattern.packing = store, store.pack_like(pattern.run)
        return packing[1]

    def _make(self, call: TaskCall[Any]) -> Run:
        app_store, task, options = self.app_store, call.task, call.options
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
        admission = options.admission
        if options.unique is not None:
            unique = f"{task.name}:{options.unique}"
            if admission is None and "{" in options.unique:
                admission = PLAIN_ADMISSION
        if options.shard is not None:  # a run with a unique key is stored in the shard of its key
            run_id, unique = pin(options.shard, run_id), unique and pin(options.shard, unique)
        run = Run(
            id=run_id,
            call=Call(
                task.name if task.registry is self._tasks else self._tasks.stored(task),
                tuple(call.args),
                dict(call.kwargs),
                options.name or task.__name__,
                headers={} if self._middleware.signals["pre_enqueue"] else None,  # listeners may write into it
            ),
            queue=options.queue,
            executor=needed_executor(task.is_async, policy.isolation),
            group=options.group,
            unique=unique,
            policy=policy,
            priority=policy.priority,
            created_at=now,
            run_at=run_at,
            after=options.after,
        )
        if admission is not None:
            if options.shard is not None and (admission.replaces or admission.throttle_us):
                raise ValueError("shard= cannot be given with debounce=, throttle= or on_conflict='replace'")
            run = admitted(run, admission, task.name, task.func, options.unique)
        if options.after or Placeholder.made:
            run = with_inputs(run)
        return delayed(run, options.delay) if run.after and options.delay else run

    def execute(self, runs: Sequence[Run]) -> list[RunHandle[Any]]:
        """Execute runs here and now."""
        inline = self.app_store.companion
        return [RunHandle(inline.runs, run_id) for run_id in inline.execute(runs)]


def is_repeatable(options: Options) -> bool:
    """Return True if the runs of calls with these options differ only by their ids, arguments and times."""
    special = options.id or options.unique or options.at or options.shard or options.admission
    return not (special or options.delay or options.after)


def delayed(run: Run, delay: float) -> Run:
    """Return a run that starts this many seconds after its last predecessor has ended."""
    after = int(delay * SECOND)
    return replace(run, run_at=-after, delay=after)


class Sender:
    """Stores batches of runs in order, and collects their handles."""

    def __init__(
        self,
        send: Callable[..., list[RunHandle[Any]]],
        handles: list[RunHandle[Any]],
        *,
        all_or_none: bool = False,
        here: bool = False,
    ) -> None:
        self._send, self._handles, self._all_or_none, self._here = send, handles, all_or_none, here
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
            if failed is not None and self._handles and not self._all_or_none:
                add_note(failed, f"the first {len(self._handles):,} calls are stored")
            if self._pool is not None:
                self._pool.shutdown()

    def send(self, store: JobStore, runs: Sequence[Run]) -> None:
        """Store a batch of runs; a full batch goes to a server in the background while the caller makes the next."""
        if len(runs) < BATCH_RUNS or self._here or not store.remote:
            self.wait()
            self._handles += self._send(runs)
            return
        packed = [store.pack_run(run) for run in with_hooks(runs)]
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


def check_call(call: Any) -> TaskCall[Any]:
    """Return a call; raise TypeError unless a task made it."""
    if not isinstance(call, TaskCall):
        raise TypeError(f"a call is made by task.call(...), not {call!r}")
    return call
