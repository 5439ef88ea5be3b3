"""Names that people know from other libraries, and their equivalents here, for the errors about unknown names.

The names come from Celery, RQ, arq, dramatiq, huey, Procrastinate and APScheduler. Add a name here when people type it.
A name that resembles its equivalent here needs no line, because `near` finds the equivalent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from mainspring.errors import near

__all__ = [
    "APP_HABITS",
    "HANDLE_HABITS",
    "TASK_HABITS",
    "attributes_elsewhere",
    "named_arguments",
    "option_hint",
    "unknown_option",
]

P = ParamSpec("P")
R = TypeVar("R")

_LATER: Final = "task.options(delay=5).enqueue(...), or options(at=...) for a time of day"
_SCHEDULE: Final = '@app.schedule("interval", minutes=5) or @app.schedule("0 9 * * *")'

TASK_HABITS: Final = {
    "apply_async": "task.options(delay=5, queue='mail').enqueue(...)",
    "apply": "task(...), which calls it here and now",
    "s": "task.call(...), and app.chain([...]) or app.gather([...])",
    "si": "task.call(...), and app.chain([...]) or app.gather([...])",
    "signature": "task.call(...)",
    "subtask": "task.call(...)",
    "map": "app.enqueue_many(task.call(n) for n in ...) or app.gather(...)",
    "starmap": "app.enqueue_many(task.call(*each) for each in ...)",
    "chunks": "app.enqueue_many(task.call(n) for n in ...)",
    "retry": "@app.task(retries=3), or raise mainspring.Retry(delay=60) in the task",
    "request": "mainspring.current_run() in the task",
    "update_state": "mainspring.current_run().progress(done, total) in the task",
    "send": "task.enqueue(...)",
    "send_with_options": "task.options(delay=5).enqueue(...)",
    "defer": "task.enqueue(...)",
    "configure": "task.options(...)",
    "kiq": "task.enqueue(...)",
    "schedule": _LATER,
    "enqueue_in": _LATER,
    "enqueue_at": "task.options(at=...).enqueue(...)",
    "aenqueue": "await app.aio.enqueue(task, ...)",
    "enqueue_async": "await app.aio.enqueue(task, ...)",
}
"""For attributes that a task lacks."""

APP_HABITS: Final = {
    "send_task": "app.enqueue('module:function', ...)",
    "enqueue_job": "app.enqueue('module:function', ...)",
    "delay": "task.enqueue(...) or app.enqueue(task, ...)",
    "shared_task": "@app.task",
    "actor": "@app.task",
    "job": "@app.task for a function, app.get_job(id) for a stored job",
    "conf": "arguments of Mainspring(...), and options of @app.task(...)",
    "config_from_object": "arguments of Mainspring(...), and options of @app.task(...)",
    "configure": "arguments of Mainspring(...)",
    "autodiscover_tasks": "Mainspring(include=['shop.tasks'])",
    "worker_main": "app.run(), or mainspring worker module:app",
    "start_worker": "app.start(work=True)",
    "work": "app.run(), or app.start(work=True) in the background",
    "shutdown": "app.stop(), or app.close()",
    "on_after_configure": _SCHEDULE,
    "add_periodic_task": _SCHEDULE,
    "periodic_task": _SCHEDULE,
    "scheduled_job": _SCHEDULE,
    "every": '@app.schedule("interval", minutes=5)',
    "cron": '@app.schedule("0 9 * * *")',
    "beat_schedule": _SCHEDULE,
    "control": "app.cancel(id), app.nodes(), app.stop_node(name)",
    "AsyncResult": "app.handle(id)",
    "result": "app.handle(id).result()",
    "fetch_job": "app.handle(id), or app.get(id) for the record",
    "get_run": "app.get(id)",
    "get_jobs": "app.jobs()",
    "list_jobs": "app.jobs()",
    "print_jobs": "app.jobs(), or mainspring jobs list",
    "pause": "app.pause_queue(name) or app.pause_job(id)",
    "resume": "app.resume_queue(name) or app.resume_job(id)",
    "add_listener": "app.on(mask, callback)",
    "enqueue_in": "app.enqueue_call(task.options(delay=5).call(...))",
    "enqueue_at": "app.enqueue_call(task.options(at=...).call(...))",
    "group": "app.gather([task.call(...), ...])",
    "chord": "app.gather([...]), and task.options(after=...) for what follows",
}
"""For attributes that an app lacks."""

HANDLE_HABITS: Final = {
    "get": "handle.result(timeout=...)",
    "return_value": "handle.result(timeout=...)",
    "result_or_none": "handle.fetch().result",
    "state": "handle.status()",
    "get_status": "handle.status()",
    "info": "handle.fetch()",
    "meta": "handle.fetch().data",
    "ready": "handle.done()",
    "is_finished": "handle.done()",
    "successful": "handle.status() == 'succeeded'",
    "failed": "handle.status() == 'failed'",
    "is_failed": "handle.status() == 'failed'",
    "revoke": "handle.cancel()",
    "abort": "handle.cancel()",
    "forget": "app.delete(handle)",
    "delete": "app.delete(handle)",
    "task_id": "handle.id",
    "traceback": "handle.fetch().errors",
    "exc_info": "handle.fetch().errors",
}
"""For attributes that a handle on a run lacks."""

OPTION_HABITS: Final = {
    "countdown": "delay=",
    "_defer_by": "delay=",
    "eta": "at=",
    "schedule_at": "at=",
    "_defer_until": "at=",
    "run_at": "at=",
    "max_retries": "retries=",
    "max_tries": "retries=, which does not count the first try",
    "retry": "retries=",
    "default_retry_delay": "backoff=",
    "retry_backoff": "backoff=",
    "retry_delay": "backoff=",
    "min_backoff": "backoff=Backoff(first, factor, longest)",
    "max_backoff": "backoff=Backoff(first, factor, longest)",
    "autoretry_for": "retry_on=",
    "dont_autoretry_for": "give_up_on=",
    "bind": "current_run() in the function, in place of self",
    "context": "current_run() in the function",
    "pass_context": "current_run() in the function",
    "rate_limit": 'rate="10/m"',
    "time_limit": "timeout=",
    "soft_time_limit": "timeout=",
    "job_timeout": "timeout=",
    "acks_late": 'nothing: a run is done when it has ended, unless delivery="at_most_once"',
    "reject_on_worker_lost": 'nothing: the runs of a lost worker are taken over, unless delivery="at_most_once"',
    "ignore_result": "retention=0, which does not keep a success",
    "result_ttl": "retention=",
    "result_expires": "retention=",
    "keep_result": "retention=",
    "failure_ttl": "retention=",
    "ttl": "expires=",
    "max_age": "expires=",
    "routing_key": "queue=",
    "queue_name": "queue=",
    "exchange": "queue=",
    "link": "after=, or hook=",
    "link_error": 'after= with on="failure", or hook=',
    "depends_on": "after=",
    "on_success": "hook=",
    "on_failure": "hook=",
    "task_id": "id=",
    "job_id": "id=",
    "_job_id": "id=",
    "queueing_lock": "unique=",
    "lock": 'limit=1 with limit_key="{name}"',
    "max_concurrency": "limit=",
    "at_front": "priority=",
    "executor": 'isolation="process", or none',
    "max_instances": "@app.schedule(..., max_instances=) for a schedule, limit= for a task",
    "misfire_grace_time": "@app.schedule(..., misfire_grace_time=), or expires= for a call",
    "coalesce": "@app.schedule(..., coalesce=)",
}
"""For options that tasks and calls lack."""

APP_ARGUMENT_HABITS: Final = {
    "broker": "the URL of the store, first: Mainspring('redis://...')",
    "broker_url": "the URL of the store, first: Mainspring('redis://...')",
    "connection": "the URL of the store, first: Mainspring('redis://...')",
    "backend": "nothing: the store also keeps the results",
    "result_backend": "nothing: the store also keeps the results",
    "jobstores": "the URL of the store, first: Mainspring('postgresql://...')",
    "executors": "app.start(threads=...) and @app.task(isolation='process')",
    "key": "secret_key=",
    "tz": "timezone=",
    "eager": "inline=True",
    "task_always_eager": "inline=True",
    "immediate": "inline=True",
    "workers": "mainspring worker module:app --processes N, or app.start(work=True, threads=N)",
    "concurrency": "mainspring worker module:app --processes N, or app.start(work=True, threads=N)",
    "retries": "@app.task(retries=...)",
}
START_HABITS: Final = {
    "worker": "work=True",
    "workers": "threads=, or mainspring worker module:app --processes N",
    "processes": "mainspring worker module:app --processes N",
    "concurrency": "threads=",
    "scheduler": "schedule=",
    "beat": "schedule=",
    "queue": "queues=['mail']",
}


def attributes_elsewhere(habits: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """Return a `__getattr__` whose error about an attribute that does not exist says what to write instead."""

    def get(self: Any, name: str) -> Any:
        cls = type(self)
        if hasattr(cls, name):  # a property has raised AttributeError: raise that error again
            return object.__getattribute__(self, name)
        hint = ""
        if not name.startswith("_"):  # copy, pickle and others look up such names
            hint = _instead(name, habits) or near(name, (each for each in dir(cls) if not each.startswith("_")))
        # Without obj=None, Python would add a second hint.
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}{hint}", name=name, obj=None)

    return get


def unknown_option(name: str, known: Iterable[str]) -> TypeError:
    """Return the error about an option that tasks and calls do not have."""
    return TypeError(f"there is no option {name!r}{_instead(name, OPTION_HABITS) or near(name, known)}")


def option_hint(complaint: str, names: Iterable[str], options: Iterable[str]) -> str:
    """Return a hint for a complaint about the arguments of a call, if the caller meant one of them as an option."""
    for name in names:
        if f"takes no argument {name!r}" not in complaint:
            continue
        if name in options:
            return f"; the option {name}= goes before the call: task.options({name}=...).enqueue(...)"
        if name in OPTION_HABITS:
            return f"; options go before the call, task.options(...).enqueue(...): here that is {OPTION_HABITS[name]}"
    return ""


def named_arguments(habits: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function's error about an unknown argument suggest the argument that the caller may mean."""

    def decorate(func: Callable[P, R]) -> Callable[P, R]:
        code = func.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in known:
                    hint = _instead(name, habits) or near(name, set(known) - {"self"})
                    raise TypeError(f"{func.__qualname__}() takes no argument {name!r}{hint}")
            return func(*args, **kwargs)

        return call

    return decorate


def _instead(name: str, habits: Mapping[str, Any]) -> str:
    return f"; here it is {habits[name]}" if name in habits else ""
