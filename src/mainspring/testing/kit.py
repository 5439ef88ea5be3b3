"""Test a program that uses mainspring: its app on an in-memory store, with a clock that only the test moves.

    with Kit(app) as kit:
        place_order(7)
        kit.assert_enqueued(send_mail, "ann@example.com")
        kit.run_due()

Everything else is real: the codec, the states of a run, retries, flows, limits and schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from mainspring.app.inline import ALIAS, InlineRunner
from mainspring.app.runs import Runs
from mainspring.clock import Clock
from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.run import FINAL, WAITING, Run
from mainspring.core.showing.run_view import RunView
from mainspring.executors.current_run import keep_logs, release_logs
from mainspring.node.node import Node
from mainspring.testing.clock import VirtualClock

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Kit"]

MOST_TURNS: Final = 100_000
"""Give up after this many busy turns in a row: tasks that enqueue themselves would never end."""
ENDED: Final = tuple(status.value for status in FINAL)
WAITS: Final = tuple(status.value for status in WAITING)


class _HeldRunner(InlineRunner):
    """A runner that keeps enqueued runs in memory until a test executes them."""

    def __init__(self, app: Mainspring, clock: VirtualClock) -> None:
        super().__init__(app)
        self.store.use_clock(clock)
        self.runs = _PatientRuns(self, app)
        self.node = Node(
            self._place.executors,
            clock=clock,
            queues={},
            prepare=self._prepare,
            schedules=True,
            timezone=app.timezone,
            events=app.events,
        )
        self._link = self.node.add_store(ALIAS, self.store)
        for executor in self._place.executors.values():
            executor.now = self.node.elapsed

    def execute(self, runs: Sequence[Run]) -> list[str]:
        """Add runs without executing them: the test decides when."""
        return self.add(runs)

    def work(self, run_ids: Sequence[str] = ()) -> None:
        """Do nothing: the test decides when runs are executed."""

    def _made_ready(self, run: Run, now: int) -> Run:
        return replace(run, call=self._through_codec(run), created_at=now, run_at=run.run_at or now)

    def _prepare(self, run: Run) -> Run:
        prepared = super()._prepare(run)  # keep the delays between attempts: the test's clock skips them
        return replace(prepared, policy=replace(prepared.policy, backoff=run.policy.backoff))

    def turn(self) -> bool:
        """Fire the due jobs and execute the due runs, once; return False if there were none."""
        self.node.queues = {}  # while it fires, serve no queue: fired runs wait until the due runs are executed below
        self._link.scheduler()
        queues = self.store.stats().queues
        due = [queue.name for queue in queues if queue.waiting and not queue.paused and queue.name[0] != "!"]
        if not due:
            next_at = self.next_fire()
            return next_at is not None and next_at <= self.store.beat()
        self.node.queues = dict.fromkeys(due)
        keep_logs()
        try:
            self._link.worker.look_everywhere()
            self._link.worker()
            while self._link.worker.outbox:
                self._link.worker()
        finally:
            release_logs()
        return True

    def next_fire(self) -> int | None:
        """Return the instant of the next fire, or None."""
        return self.store.due(0, 0).next_at

    def next_run(self) -> int | None:
        """Return the instant at which the next waiting run may start, or None."""
        paused = self._paused()
        waiting = self.runs.iterate(status="pending")
        return min((run.run_at for run in waiting if run.queue not in paused and run.queue[0] != "!"), default=None)


class _PatientRuns(Runs):
    """The runs of a kit. Waiting for a run executes everything that can run, and never sleeps."""

    def __init__(self, runner: _HeldRunner, app: Mainspring) -> None:
        super().__init__(
            *(lambda: runner.store, runner.store.beat, lambda: app.timezone, app.events, app.tasks),
            explain=app.explain,
            record=app.acts.record,
        )
        self.drain: Callable[[], object] = int

    def wait_for_records(self, run_ids: Sequence[str], timeout: float | None = None) -> list[Run]:
        """Execute everything that waits, then return the runs; raise TimeoutError for a run that has not ended."""
        self.drain()
        return super().wait_for_records(run_ids, timeout=0)


class Kit:
    """An in-memory app with a clock that only the test moves, and verbs that execute its runs.

    `now` is the time at which the test begins, by default the machine's time. The kit does not touch the app's store.
    """

    def __init__(self, app: Mainspring, now: datetime | None = None) -> None:
        self.app = app
        self.clock = VirtualClock(to_us(now if now is not None else datetime.now(app.timezone)))
        self._runner: _HeldRunner | None = None
        self._before: tuple[bool, InlineRunner | None, Clock] | None = None

    def __enter__(self) -> Self:
        shared = self.app._app_store
        self._before = shared.inline, shared._companion, shared.clock
        self.app.load()
        shared.clock = self.clock
        runner = self._runner = shared._companion = _HeldRunner(self.app, self.clock)
        shared.inline = True
        runner.runs.drain = self.drain  # type: ignore[attr-defined]
        self.app.jobs.reconcile()
        return self

    def __exit__(self, *exc_info: object) -> None:
        shared = self.app._app_store
        if self._before is not None:
            shared.inline, shared._companion, shared.clock = self._before
        self._runner = None
        self.app._lifespan.close()  # so that the next test opens its own resources

    # -- time and work ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The current time of the test."""
        return from_us(self.clock.now(), self.app.timezone)

    def run_due(self) -> list[RunView]:
        """Fire the due jobs and execute the due runs until none is left; return the runs that ended."""
        return self._ended_by(self._run_due)

    def drain(self) -> list[RunView]:
        """Execute all waiting runs, moving the clock forward to delayed ones; return the runs that ended.

        Jobs that come due on the way fire. The clock never moves forward just to reach a fire.
        """

        def work() -> None:
            self._run_due()
            while (at := self._held.next_run()) is not None:
                self._move(at)
                self._run_due()

        return self._ended_by(work)

    def advance(self, seconds: float = 0, **parts: float) -> list[RunView]:
        """Move time forward, by `advance(60)` or `advance(days=365)`; execute each run at its time.

        Return the runs that ended, in the order in which they ended.
        """
        if (left := timedelta(seconds=seconds, **parts)) < timedelta(0):
            raise ValueError("time does not go back; begin with an earlier one: Kit(app, now=...)")
        until = self.clock.now() + round(left.total_seconds() * SECOND)

        def work() -> None:
            while True:
                self._run_due()
                instants = [at for at in (self._held.next_fire(), self._held.next_run()) if at is not None]
                if not instants or min(instants) > until:
                    break
                self._move(min(instants))
            self._move(until)

        return self._ended_by(work)

    # -- what was enqueued -----------------------------------------------------------------------------------------

    def enqueued(self, task: Callable[..., Any] | str | None = None) -> list[RunView]:
        """Return the waiting runs of one task, or of all, oldest first."""
        name = None if task is None else self._name(task)
        waiting = self._held.runs.iterate(status=WAITS)
        found = [run for run in waiting if name is None or run.call.task_name == name]
        return list(map(self._held.runs.view, sorted(found, key=lambda run: (run.created_at, run.id))))

    def assert_enqueued(self, task: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> RunView:
        """Return the only waiting run of a task with these arguments; raise AssertionError for none or several.

        Without arguments, any call of the task matches.
        """
        waiting = self.enqueued(task)
        found = [run for run in waiting if not (args or kwargs) or (run.args, dict(run.kwargs)) == (args, kwargs)]
        if len(found) == 1:
            return found[0]
        wanted = f"{self._name(task)}({_words(args, kwargs)})"
        others = "".join(f"\n  {run.name}({_words(run.args, run.kwargs)})" for run in waiting or self.enqueued())
        raise AssertionError(f"{wanted} waits {len(found)} times, not once; there wait:{others or ' none'}")

    def assert_not_enqueued(self, task: Callable[..., Any] | str) -> None:
        """Raise AssertionError if a run of a task waits."""
        if waiting := self.enqueued(task):
            calls = "".join(f"\n  {run.name}({_words(run.args, run.kwargs)})" for run in waiting)
            raise AssertionError(f"{self._name(task)} was enqueued:{calls}")

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _held(self) -> _HeldRunner:
        if self._runner is None:
            raise RuntimeError("the kit is not in use; write: with Kit(app) as kit: ...")
        return self._runner

    def _run_due(self) -> None:
        for _ in range(MOST_TURNS):
            if not self._held.turn():
                return
        raise RuntimeError(f"there was always more to run, {MOST_TURNS:,} times: does a task enqueue itself?")

    def _move(self, at: int) -> None:
        self.clock.advance(max(0, at - self.clock.now()) / SECOND)

    def _ended_by(self, work: Callable[[], None]) -> list[RunView]:
        before = {run.id: run.finished_at for run in self._held.runs.iterate(status=ENDED)}
        work()
        ended = [run for run in self._held.runs.iterate(status=ENDED) if before.get(run.id, 0) != run.finished_at]
        return list(map(self._held.runs.view, sorted(ended, key=lambda run: (run.finished_at or 0, run.id))))

    def _name(self, task: Callable[..., Any] | str) -> str:
        return str(self.app.tasks.resolve(task).name)


def _words(args: Sequence[Any], kwargs: Any) -> str:
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
