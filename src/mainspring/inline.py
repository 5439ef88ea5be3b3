"""Inline mode: a call is executed where it is enqueued, through the real codec and the real life of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.clock import SECOND
from mainspring.codec import Codec
from mainspring.executors.debug import DebugExecutor
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node import Node
from mainspring.run import Run
from mainspring.runs import Runs
from mainspring.working import Workplace

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Inline"]

_ALIAS = "threads"


class Inline:
    """A store in memory and a node without threads that executes what is put into it at once."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self.store = MemoryJobStore()
        self.runs = Runs(lambda: self.store, self.store.server_time, lambda: app.timezone)
        self._place = Workplace(app)
        executor = DebugExecutor()
        executor.slots = 1_000_000  # a task may enqueue another, which is executed inside it
        self._place.executors = {_ALIAS: executor}
        self._node = Node(self._place.executors, queues={}, prepare=self._prepare, schedules=False)
        self._link = self._node.add_store("inline", self.store)
        executor.now = self._link.now
        executor.start(self, _ALIAS)

    def _prepare(self, run: Run) -> Run:
        # Everything in this thread, without waiting between attempts.
        alone = replace(run, crashes=0, policy=replace(run.policy, isolation=None, backoff=(0.0,), timeout=None))
        return replace(self._place.prepare(alone), executor=_ALIAS)

    def execute(self, runs: Sequence[Run]) -> list[str]:
        """Add runs, execute them and all that follows from them, and return their ids."""
        now = self.store.server_time()
        codec: Codec = self._app.codec
        ready = []
        for run in runs:
            args, kwargs = codec.loads(codec.dumps([list(run.args), dict(run.kwargs)], "inline"), "inline")
            call = replace(run.call, args=tuple(args), kwargs=kwargs)
            ready.append(replace(run, call=call, run_at=now, policy=replace(run.policy, retention=None)))
        ids = self.store.add_runs(ready)
        while self._work():
            pass
        return ids

    def _work(self) -> bool:
        """Execute what is due; move the clock if all that is left is due later; False if nothing is left."""
        queues = self.store.queues()
        due = [queue.name for queue in queues if queue.waiting]
        if due:
            self._node.queues = dict.fromkeys(due)
            self._link.worker.look_everywhere()
            self._link.worker()  # claims and executes
            self._link.worker()  # settles
            return True
        later = [run.run_at for run in self.runs.iterate(status="pending")]
        if later:
            self.store.shift_clock(max(0, min(later) - self.store.server_time()) / SECOND + 1e-6)
        return bool(later)
