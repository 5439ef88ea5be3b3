"""Inline mode: execute a call where it is enqueued, through the real codec and all states of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec.structs import replace

from mainspring.app.placement import Workplace
from mainspring.app.runs import Runs
from mainspring.codec import Codec
from mainspring.core.instants import SECOND
from mainspring.core.lanes import THREADS_EXECUTOR
from mainspring.core.run import Call, Outcome, Run, Status
from mainspring.core.waiting.followups import with_hooks
from mainspring.errors import RunNotFound
from mainspring.executors.current_run import keep_logs, release_logs
from mainspring.executors.debug import DebugExecutor
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["ALIAS", "InlineRunner"]

ALIAS: Final = "inline"


class _InlineStore(MemoryJobStore):
    """A memory store that refuses results that the app's real store could not keep."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__()
        self._app = app

    def pack_outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome; raise EncodeError if the app's store could not keep its result."""
        self._app.codec.dumps(outcome.run.result, "inline")
        return outcome


class InlineRunner:
    """Executes runs in the thread that enqueues them, on a store in memory."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self.store = _InlineStore(app)
        now, zone = self.store.beat, lambda: app.timezone
        self.runs = Runs(
            *(lambda: self.store, now, zone, app.events, app.tasks),
            on_claimable=self.work,
            explain=app.explain,
            record=app.acts.record,
        )
        self._place = Workplace(app)
        executor = DebugExecutor()
        executor.slots = 1_000_000  # a task may enqueue another one, which then runs inside it
        executor.start(self, THREADS_EXECUTOR)
        self._place.executors = {THREADS_EXECUTOR: executor}

    def forget(self) -> None:
        """Forget resolved names; call this when the app's tasks or middleware have changed."""
        self._place.forget()

    def _prepare(self, run: Run) -> Run:
        """Prepare a run for this thread: without a time-out and without delays between attempts."""
        policy = replace(run.policy, isolation=None, backoff=(0.0,), timeout=None)
        try:
            func = self._place.find(replace(run, policy=policy))[0].func
        except Exception as error:  # fail the run: no other node could execute it
            func = partial(_raise, error)
        return replace(run, call=run.call.found(func), policy=policy, executor=THREADS_EXECUTOR, crashes=0)

    def execute(self, runs: Sequence[Run]) -> list[str]:
        """Add runs, execute them and their follow-ups, and return their ids."""
        wanted = self.add(runs)
        self.work(wanted)
        return wanted

    def add(self, runs: Sequence[Run]) -> list[str]:
        """Add runs, after their arguments have gone through the real codec; return their ids."""
        now = self.store.beat()
        ready = [self._made_ready(run, now) for run in with_hooks(runs)]
        answers = self.store.add_runs(ready)
        ids = {run.id: answer for run, answer in zip(ready, answers, strict=True)}
        new = [run for run in ready if ids[run.id] == run.id]
        self._app.events.sums(ALIAS).added(new, now)
        self._app.events.submitted(new, ALIAS)
        self.runs.cancel_refused(answers.refused)
        return [ids[run.id] or self._unstored(run, ids) for run in runs]

    def _made_ready(self, run: Run, now: int) -> Run:
        """Return the run due at once, with arguments that have been packed and unpacked."""
        policy = replace(run.policy, retention=None)
        return replace(run, call=self._through_codec(run), created_at=now, run_at=min(now, run.run_at), policy=policy)

    def _through_codec(self, run: Run) -> Call:
        codec: Codec = self._app.codec
        frame = codec.dumps([list(run.args), dict(run.kwargs)], "inline", inputs=run.call.inputs)
        args, kwargs = codec.loads(frame, "inline")
        return replace(run.call, args=tuple(args), kwargs=kwargs)

    def _unstored(self, run: Run, ids: Mapping[str, str | None]) -> str:
        """Return the id of a run that is not stored because its flow is known; raise RunNotFound for other reasons."""
        wanted = [edge.id for edge in run.after]
        found = zip(wanted, self.store.standings(wanted), strict=True)
        missing = next((run_id for run_id, standing in found if standing is None), None)
        if missing is None or missing in ids:
            return run.id
        raise RunNotFound(missing, f"{run.name!r}, which is executed inline, cannot come after it")

    def work(self, run_ids: Sequence[str] = ()) -> None:
        """Execute all waiting runs and their follow-ups, except in paused queues; wait until `run_ids` have ended."""
        # Make a node for each call: tasks enqueue from inside other tasks and from several threads.
        node = Node(self._place.executors, queues={}, prepare=self._prepare, schedules=False, events=self._app.events)
        link = node.add_store(ALIAS, self.store)
        keep_logs()
        try:
            while self._work(node, link):
                pass
            paused = self._paused()
            found = [run for run in self.store.get_runs(run_ids) if run is not None and run.queue not in paused]
            # Another thread may have claimed some. Blocked runs wait for a signal, or for a run that encloses this one.
            self.runs.wait_for_records([run.id for run in found if run.status is Status.RUNNING or _is_served(run)])
        finally:
            release_logs()
            link.hand_over_sums()

    def _paused(self) -> set[str]:
        return {queue.name for queue in self.store.stats().queues if queue.paused}

    def _work(self, node: Node, link: StoreLink) -> bool:
        """Execute due runs, or move the clock to the next delayed one; return False if nothing is left."""
        queues = self.store.stats().queues
        due = [queue.name for queue in queues if queue.waiting and not queue.paused and queue.name[0] != "!"]
        if due:
            node.queues = dict.fromkeys(due)
            link.worker.look_everywhere()
            link.worker()  # claims and executes
            while link.worker.outbox:
                link.worker()  # settles, then continues with follow-ups
            return True
        paused = self._paused()
        later = [
            run.run_at for run in self.runs.iterate(status="pending") if run.queue not in paused and _is_served(run)
        ]
        if later:
            self.store.shift_clock(max(0, min(later) - self.store.beat()) / SECOND + 1e-6)
        return bool(later)


def _is_served(run: Run) -> bool:
    """Return True if a run waits in a queue that somebody serves, not for a signal."""
    return run.status is Status.PENDING and not run.queue.startswith("!")


def _raise(error: Exception, *args: Any, **kwargs: Any) -> NoReturn:
    raise error
