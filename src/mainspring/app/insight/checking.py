"""Compare the records in a store with the code before it is deployed, to find the records that it would strand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.app.insight.doctor import EXAMPLES_SHOWN, Finding, Mark, function_finder, waiting_runs
from mainspring.core.insight.wording import listed, several
from mainspring.core.job import Job
from mainspring.core.references import complaint_about, ref_to_obj
from mainspring.core.run import HELD_PREFIX, Run, Status, is_local
from mainspring.core.waiting.placeholders import placeholders_in
from mainspring.errors import InvalidArguments, TaskNotFound, near
from mainspring.jobstores.base import RunQuery

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["check_code"]


def check_code(app: Mainspring, beside: Sequence[Mainspring] = ()) -> list[Finding]:
    """Return the jobs and unfinished runs in the store that the code of an app would strand; change nothing.

    `beside` are other apps on the same store: their tasks and schedules count as known, too.
    """
    store = app.store
    jobs, unreadable = store.examine_jobs()
    runs, complete = waiting_runs(store)
    running = store.find_runs(RunQuery(status=(Status.RUNNING,)), limit=1000)
    runs = [run for run in (*runs, *running) if not run.queue.startswith(HELD_PREFIX)]  # nobody calls those
    known = {name for other in beside for task in other.tasks for name in (task.name, *task.aliases)}
    known -= {task.name for task in app.tasks}
    declared = {job_id for other in beside for job_id in other.jobs.declared_ids}
    jobs = [job for job in jobs if job.id not in declared and job.call.func not in known]
    runs = [run for run in runs if run.call.func not in known]
    unreadable = unreadable | {run.id: run.reason or "" for run in runs if run.call.func == ""}
    findings = list(_unreadable(unreadable))
    findings += _calls(app, jobs, [run for run in runs if run.call.func != ""])
    findings += _schedules(app, jobs)
    if not complete:
        text = f"there are more waiting runs than the newest {len(runs):,} that were looked at"
        findings.append(Finding(Mark.WARNING, "runs", text))
    if not any(each.mark == Mark.PROBLEM for each in findings):
        text = f"the code fits {several(len(jobs), 'stored job')} and {several(len(runs), 'unfinished run')}"
        findings.append(Finding(Mark.OK, "code", text))
    return findings


def _unreadable(found: Mapping[str, str]) -> Iterator[Finding]:
    for record_id, reason in list(found.items())[:EXAMPLES_SHOWN]:
        yield Finding(
            Mark.PROBLEM,
            "records",
            f"{record_id!r} cannot be read with this code: {reason}",
            "keep the types that it needs, or let it end before the deploy; or give the app the key that signed it",
        )
    if len(found) > EXAMPLES_SHOWN:
        yield Finding(Mark.PROBLEM, "records", f"{len(found) - EXAMPLES_SHOWN:,} more records cannot be read")


def _calls(app: Mainspring, jobs: Iterable[Job], runs: Iterable[Run]) -> Iterator[Finding]:
    """Yield one finding for each missing function, and one for each shape of arguments that a function refuses."""
    find = function_finder(app)
    known = [task.name for task in app.tasks]
    complaints: dict[tuple[str, str], list[str]] = {}
    for each, local in _records(jobs, runs):
        name = each.call.func
        if not isinstance(name, str):  # a store in memory has the function itself
            continue
        look = partial(ref_to_obj, name) if local else partial(_task_function, app, find, each)
        why = _complaint(app, each, look)
        if why:
            word = "job" if isinstance(each, Job) else "run"
            complaints.setdefault((name, why), []).append(f"{word} {each.id!r}")
    for (name, why), users in complaints.items():
        text = f"{name!r} {why}; it is called by {listed(users, EXAMPLES_SHOWN)}"
        gone = why.startswith("cannot be called")
        advice = (
            f"if it was renamed, keep its old name: @app.task(aliases=[{name!r}]){near(name, known)}"
            if gone
            else "give new parameters a default value, and keep old ones until no stored call has them"
        )
        yield Finding(Mark.PROBLEM, "tasks" if gone else "arguments", text, advice)


def _records(jobs: Iterable[Job], runs: Iterable[Run]) -> Iterator[tuple[Any, bool]]:
    for job in jobs:
        yield job, job.executor != "queue"
    for run in runs:
        yield run, is_local(run.queue)


def _task_function(app: Mainspring, find: Callable[[Any], Any], each: Any) -> Any:
    """Return the function as a worker would call it, without its middleware."""
    task = app.tasks.get(each.call.func)
    if task is not None:
        return task.func
    find(each)  # raises unless a worker may import it
    return ref_to_obj(each.call.func)


def _complaint(app: Mainspring, each: Any, look: Callable[[], Any]) -> str:
    """Return why this code could not execute the stored call; an empty text if it could."""
    try:
        func = look()
    except Exception as error:  # importing executes the user's code: it may raise anything
        why = error.__cause__ if isinstance(error, TaskNotFound) and error.__cause__ is not None else error
        return f"cannot be called by this code: {why}"
    func = getattr(func, "func", func)  # a job of a scheduler may name a task
    try:
        shape = complaint_about(func, len(each.call.args), tuple(each.call.kwargs))
    except TypeError:  # not hashable
        shape = ""
    if shape:
        return f"does not take the stored arguments: {shape}"
    task = app.tasks.get(str(each.call.func))
    if task is not None and task.validator is not None and not placeholders_in(each.call.args, each.call.kwargs):
        try:
            task.validator(each.call.args, each.call.kwargs)
        except InvalidArguments as error:
            return f"does not take the stored arguments: {error}"
    return ""


def _schedules(app: Mainspring, jobs: Iterable[Job]) -> Iterator[Finding]:
    """Yield the stored schedules that the code no longer declares: they would continue to fire."""
    for job in filter(app.jobs.is_gone, jobs):
        task = app.tasks.get(job.id)
        if task is not None and job.id in task.aliases and task.name in app.jobs.declared_ids:
            continue  # it takes the new name when the app starts
        yield Finding(
            Mark.PROBLEM,
            "schedules",
            f"the schedule {job.id!r} is in the store, and this code does not declare it: it would go on as it is",
            "declare it, remove it (mainspring jobs remove), or keep its id: @app.schedule(..., id=...)",
        )
