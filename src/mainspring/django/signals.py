"""django-q's signals, for calls and worker processes. A call is a dict with django-q's keys.

| signal | arguments | sent |
|---|---|---|
| `pre_enqueue` | `task` | before a call is stored, in the process that enqueues it |
| `pre_execute` | `func, task` | before the function is called, in the worker |
| `post_execute_in_worker` | `func, task` | after the function has returned or raised, in the worker |
| `post_execute` | `task` | once the store has accepted the outcome, in the worker process |
| `post_spawn` | `proc_name` | after a worker process has started |

The sender is `"django_q"`. A `task` is a copy: changing it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from mainspring.core.instants import from_us
from mainspring.core.run import Run, Status
from mainspring.errors import RunNotFound
from mainspring.events import EVENT_RUN_ENDED

__all__ = ["post_execute", "post_execute_in_worker", "post_spawn", "pre_enqueue", "pre_execute"]

SENDER = "django_q"


class AppSignal(Signal):
    """A signal that starts listening to the project's app with its first receiver."""

    def __init__(self, listen: Callable[[Any, AppSignal], None]) -> None:
        super().__init__()
        self._listen: Callable[[Any, AppSignal], None] | None = listen

    def connect(self, receiver: Any, *args: Any, **kwargs: Any) -> None:
        """Connect a receiver; with the first one, listen to the app."""
        super().connect(receiver, *args, **kwargs)
        listen, self._listen = self._listen, None
        if listen is not None:
            from mainspring.django.application import app  # receivers are connected after the settings are read

            listen(app, self)

    def tell(self, **named: Any) -> None:
        """Call the receivers."""
        self.send(sender=SENDER, **named)


def _task(run: Run, **known: Any) -> dict[str, Any]:
    """Return a run as a dict with django-q's keys."""
    error = run.errors[-1] if run.errors else None
    result = run.result if run.status is Status.SUCCEEDED or error is None else f"{error.message} : {error.traceback}"
    return {
        "id": run.id,
        "name": run.name,
        "func": run.call.task_name,
        "args": run.args,
        "kwargs": dict(run.kwargs),
        "group": run.group,
        "hook": run.policy.hook,
        "cluster": run.queue,
        "timeout": run.policy.timeout,
        "attempt_count": run.attempt,
        "started": from_us(run.started_at or run.created_at),
        "stopped": None if run.finished_at is None else from_us(run.finished_at),
        "success": run.status is Status.SUCCEEDED,
        "result": result,
        **known,
    }


def _before_enqueue(app: Any, signal: AppSignal) -> None:
    app.on("pre_enqueue", lambda run: signal.tell(task=_task(run)))


def _before_call(app: Any, signal: AppSignal) -> None:
    def tell(run: Any) -> None:
        if run is not None:
            signal.tell(func=run.record.call.func, task=_task(run.record))

    app.on("pre_execute", tell)


def _after_call(app: Any, signal: AppSignal) -> None:
    def tell(run: Any, value: Any, error: BaseException | None) -> None:
        if run is not None:
            result = value if error is None else f"{error}"
            signal.tell(func=run.record.call.func, task=_task(run.record, success=error is None, result=result))

    app.on("post_execute", tell)


def _after_settle(app: Any, signal: AppSignal) -> None:
    def tell(event: Any) -> None:
        try:
            run = app.get(event.run_id).record
        except RunNotFound:  # the retention of this success is 0
            return
        signal.tell(task=_task(run))

    app.on(EVENT_RUN_ENDED, tell)


def _after_spawn(app: Any, signal: AppSignal) -> None:
    app.on("post_spawn", lambda name: signal.tell(proc_name=name))


pre_enqueue = AppSignal(_before_enqueue)
pre_execute = AppSignal(_before_call)
post_execute_in_worker = AppSignal(_after_call)
post_execute = AppSignal(_after_settle)
post_spawn = AppSignal(_after_spawn)
