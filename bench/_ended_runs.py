"""Runs that have ended, for benchmarks that fill a store with a past."""

from __future__ import annotations

from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Error, Run, Status

__all__ = ["ended_run"]

_TRACE = 'Traceback:\n  File "/app/shop/client.py", line 27, in get\n    raise TimeoutError\nTimeoutError: no\n'


def ended_run(run_id: str, number: int, made: int, took: int) -> Run:
    """Return a run that was made at an instant and took some microseconds; every fiftieth has failed."""
    bad = number % 50 == 0
    return Run(
        id=run_id,
        call=Call("shop.payments:capture", (), {"order": number, "amount": "12.90"}, "capture"),
        queue=("payments", "mail", "default", "media")[number % 4],
        status=Status.FAILED if bad else Status.SUCCEEDED,
        attempt=1,
        created_at=made,
        run_at=made,
        started_at=made + SECOND // 10,
        finished_at=made + took,
        node="fsn-app-1:2101:aaaa",
        errors=(Error("TimeoutError", f"no answer from {number % 7}", _TRACE, made + took, 1),) if bad else (),
    )
