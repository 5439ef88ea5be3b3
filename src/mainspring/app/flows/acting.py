"""Cancel a whole flow, or send back all of its runs that did not end well."""

from __future__ import annotations

from typing import Final

from mainspring.app.flows.sending_back import write_back
from mainspring.app.runs import Runs
from mainspring.core import transitions
from mainspring.core.run import UNFINISHED, WAITING, Outcome, Status
from mainspring.core.waiting.flows import MARKER_TASK, marker_id
from mainspring.core.waiting.refusals import in_order

__all__ = ["cancel_flow", "retry_flow"]

LOOKS: Final = 5
"""Look this many times for runs that were released or started while others were cancelled."""

_FAILED: Final = (Status.FAILED, Status.CANCELLED, Status.BROKEN)


def cancel_flow(runs: Runs, flow_id: str) -> int:
    """Cancel the unfinished runs of a flow; return how many there were."""
    number = runs.count(status=UNFINISHED, group=flow_id)
    marker = runs.store.get_runs([marker_id(flow_id)])[0]
    if marker is not None and marker.status in WAITING:
        runs.cancel_waiting([marker])  # do this first, so that no further run of the flow starts
    for _ in range(LOOKS):
        waiting = list(runs.iterate(status=WAITING, group=flow_id))
        running = [run.id for run in runs.iterate(status=Status.RUNNING, group=flow_id) if not run.cancelling]
        if not waiting and not running:
            break
        runs.cancel_waiting(waiting)
        runs.stop_running(running)
    if number:
        runs.record("cancel", "flow", flow_id, runs=number)
    return number


def retry_flow(runs: Runs, flow_id: str) -> int:
    """Send back the runs of a flow that failed, were cancelled or are broken; return how many."""
    found = list(runs.iterate(status=(*_FAILED, *WAITING), group=flow_id))
    if any(run.call.task_name == MARKER_TASK for run in found):
        raise ValueError(f"not all of the flow {flow_id!r} was stored, and nothing of it runs; store it anew")
    outcomes: list[Outcome] = []
    again: set[str] = set()
    for run in in_order(found):
        # A refused run runs again if the run that refused it does. The other refusals were right: those runs wait for a
        # failure that did not happen.
        if run.refused in again if run.refused is not None else run.status in _FAILED:
            again.add(run.id)
            outcomes.append(transitions.send_back_one(run, runs.now()))
    sent = write_back(runs.store, outcomes)
    runs.announce_sent_back(sent)
    if sent.runs:
        runs.record("retry", "flow", flow_id, runs=len(sent.runs))
    return len(sent.runs)
