"""Flows: runs that are stored together, all or none, and that depend on each other without a cycle."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec.structs import replace

from mainspring.app.declaring.task import TaskCall
from mainspring.app.enqueuing.enqueue import Calls
from mainspring.app.flows.acting import cancel_flow, retry_flow
from mainspring.app.flows.shapes import all_inline, refuse_options
from mainspring.app.flows.storing import FlowWriter
from mainspring.app.handle import RunHandle
from mainspring.app.runs import Runs
from mainspring.core.ids import check_name, check_run_id, check_text, pin
from mainspring.core.run import FINAL, UNFINISHED, Call, Run, Status
from mainspring.core.showing.run_view import RunView
from mainspring.core.waiting.flows import SIGNAL_QUEUE, SIGNAL_TASK, flow_of, is_helper, part_id
from mainspring.errors import RunNotFound
from mainspring.node.new_ids import new_run_id

if TYPE_CHECKING:
    from mainspring.app.store import AppStore

__all__ = ["Flow", "Flows"]

R = TypeVar("R")

_FAILED: Final = (Status.FAILED, Status.BROKEN, Status.MISSED)


class Flow:
    """A flow: add calls inside `with app.flow() as flow:`; they are stored together when the block ends.

    If the block raises, nothing is stored.
    """

    def __init__(self, flow_id: str, flows: Flows, *, named: bool = False) -> None:
        self.id = flow_id
        self._flows, self._named = flows, named
        self._calls: list[TaskCall[Any]] = []
        self._added: list[Run] = []
        self._handles: list[RunHandle[Any]] = []
        self._is_open = False
        self.known = False
        """Whether the store already had this flow, by its name or by the unique key of its first call."""

    # -- building ----------------------------------------------------------------------------------------------

    def add(self, call: TaskCall[R], *, after: Any = None, on: str = "success") -> RunHandle[R]:
        """Add a call; it comes after the runs in `after`, and after those whose `output` is among its arguments."""
        self._check_open()
        refuse_options(call, ("id", "group", "shard"), "{}= cannot be given to a call of a flow, which sets it: {}")
        if self._calls:
            refuse_options(call, ("unique",), "only the first call of a flow can have {}=, not {}")
        made = call if after is None else call.after(after, on=on)
        run = self._flows.calls.make(made)
        run = replace(run, id=part_id(self.id, len(self._calls) + 1), group=self.id)
        self._calls.append(call)
        return self._add(run)

    def signal(self, name: str) -> RunHandle[Any]:
        """Add a signal: the runs after it wait until somebody calls `app.signal("<flow>~<name>", value)`."""
        self._check_open()
        check_text("the name of a signal", name)
        if not name or name[0].isdigit() or name.startswith(("!", "hook")) or "~" in name:
            raise ValueError(f"{name!r} cannot name a signal: begin with a letter, not with 'hook', and use no ~")
        run_id = part_id(self.id, name)
        known = next((handle for handle in self._handles if handle.id == run_id), None)
        if known is not None:
            return known
        now = self._flows.app_store.now()
        call = Call(SIGNAL_TASK, name=name)
        return self._add(Run(id=run_id, call=call, queue=SIGNAL_QUEUE, group=self.id, created_at=now, run_at=now))

    def _add(self, run: Run) -> RunHandle[Any]:
        self._added.append(run)
        handle = RunHandle[Any](self._flows.runs, run.id)
        self._handles.append(handle)
        return handle

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError(
                f"the flow {self.id!r} is not open: add calls inside `with app.flow() as flow:`; outside of it, "
                "task.options(after=...) lets a call come after runs of a flow"
            )

    def __enter__(self) -> Self:
        if self._added or self._is_open:
            raise RuntimeError(f"the flow {self.id!r} was stored before; app.flow() makes another")
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if kind is None and self._added:
            self._store()

    def _store(self) -> None:
        flows, first = self._flows, self._added[0].id
        inline = all_inline(flows.calls, self._calls)
        if self._named and flows.runs.store.standings([first])[0] is not None:
            self.known = True
            return
        known = flows.writer.write(self.id, self._added, inline=inline)
        if known is not None:
            self._become(flow_of(known))
        if inline:
            for handle in self._handles:
                handle._runs = flows.app_store.companion.runs

    def _become(self, flow_id: str) -> None:
        """Become the flow in the store whose first run has the same unique key as this flow's first run."""
        for handle in self._handles:
            handle.id = flow_id + handle.id.removeprefix(self.id)
        self.id, self.known = flow_id, True

    # -- looking and acting --------------------------------------------------------------------------------------

    @property
    def _runs(self) -> Runs:
        return self._handles[0]._runs if self._handles else self._flows.runs

    def ids(self) -> list[str]:
        """Return the ids of the runs of the flow, in the order in which they were added."""
        if self._handles and not self.known:
            return [handle.id for handle in self._handles]
        found = [run for run in self._runs.iterate(group=self.id) if not is_helper(run)]
        if not found:
            raise RunNotFound(self.id, "no run of such a flow is there")
        return [run.id for run in sorted(found, key=_place)]

    @property
    def runs(self) -> list[RunView]:
        """The runs of the flow that the store still has, in the order in which they were added."""
        return self._runs.views(self.ids())

    def counts(self) -> dict[Status, int]:
        """Return how many runs of the flow there are in each status, joins included."""
        found = {status: self._runs.count(status=status, group=self.id) for status in Status}
        return {status: number for status, number in found.items() if number}

    def status(self) -> Status:
        """Return the status of the whole flow.

        It is `blocked` or `pending` before anything has started, and `running` until all its runs have ended. Then it
        is `failed` if one failed, `cancelled` if somebody cancelled one, else `succeeded`. A step for a failure that
        did not happen does not count.
        """
        counts = self.counts()
        if not counts:
            raise RunNotFound(self.id, "no run of such a flow is there")
        if not counts.keys().isdisjoint(UNFINISHED):
            begun = Status.RUNNING in counts or not counts.keys().isdisjoint(FINAL - {Status.CANCELLED})
            return Status.RUNNING if begun else Status.PENDING if Status.PENDING in counts else Status.BLOCKED
        if not counts.keys().isdisjoint(_FAILED):
            return Status.FAILED
        if Status.CANCELLED in counts:
            ended = self._runs.iterate(status=Status.CANCELLED, group=self.id)
            if any(run.refused is None for run in ended):
                return Status.CANCELLED
        return Status.SUCCEEDED

    def wait(self, timeout: float | None = None) -> list[RunView]:
        """Wait until all runs of the flow have ended in any way, and return them; raise TimeoutError."""
        return self._runs.wait(self.ids(), timeout)

    def cancel(self) -> int:
        """Cancel all runs of the flow that have not ended, and stop those that run; return how many there were."""
        return cancel_flow(self._runs, self.id)

    def retry(self) -> int:
        """Send back the runs of the flow that failed, were cancelled or are broken; each waits for its predecessors.

        Return how many were sent back. You can repeat this: it changes only such runs.
        """
        return retry_flow(self._runs, self.id)

    def __repr__(self) -> str:
        return f"<Flow {self.id}>"


class Flows:
    """An app's flows."""

    def __init__(self, app_store: AppStore, calls: Calls, writer: FlowWriter, runs: Callable[[], Runs]) -> None:
        self.app_store, self.calls, self.writer, self._runs = app_store, calls, writer, runs

    @property
    def runs(self) -> Runs:
        """The verbs about runs."""
        return self._runs()

    def new(self, name: str | None = None, *, shard: str | None = None) -> Flow:
        """Make a flow: `with app.flow() as flow: flow.add(...)` stores all calls of the block together, or none.

        The name becomes the id of the flow. If the store already has a flow with this name, nothing is stored.
        """
        flow_id = new_run_id() if name is None else check_run_id(check_name("the name of a flow", name, 200))
        return Flow(flow_id if shard is None else pin(shard, flow_id), self, named=name is not None)

    def get(self, flow_id: str) -> Flow:
        """Return a flow by its id; raise RunNotFound if the store has no run of it."""
        if not self.runs.count(group=flow_id):
            raise RunNotFound(flow_id, "no run of such a flow is there")
        return Flow(flow_id, self)


def _place(run: Run) -> tuple[int, int, str]:
    """Return the sort key of a run in its flow: numbered runs in order, then signals."""
    part = run.id.rpartition("~")[2]
    return (0, int(part), "") if part.isdecimal() else (1, run.created_at, run.id)
