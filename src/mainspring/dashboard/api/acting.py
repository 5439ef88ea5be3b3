"""The endpoints that change runs, jobs, queues, nodes and marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.app.handle import RunHandle
from mainspring.core.run import FINAL, WAITING
from mainspring.core.validation import check_queue
from mainspring.dashboard.api.plain import job_data, plain, run_data
from mainspring.dashboard.api.request import ApiRequest
from mainspring.dashboard.page import BadParameter, NoSuchThing, there
from mainspring.errors import NodeNotFound, near

__all__ = ["again", "begin_bulk", "cancel", "change_run", "delete_run", "enqueue", "mark", "pause_job", "pause_queue"]
__all__ += ["purge_queue", "remove_job", "resume_job", "resume_queue", "retry", "run_job", "skip_job", "stop_bulk"]
__all__ += ["quiet_node", "resume_node", "stop_node"]

OPTIONS = ("queue", "priority", "retries", "timeout", "retention", "group", "unique", "id")


def _run(asked: ApiRequest, run_id: str) -> dict[str, Any]:
    return run_data(asked.app, asked.app.get(run_id), asked.app.now())


def enqueue(asked: ApiRequest) -> dict[str, Any]:
    """Enqueue a call of one of this app's tasks."""
    name = asked.required("task", str)
    task = asked.app.tasks.get(name)
    if task is None or name.startswith("mainspring:"):
        known = [each.name for each in asked.app.tasks if not each.name.startswith("mainspring:")]
        raise BadParameter(f"this app has no task {name[:100]!r}{near(name, known)}")
    handle = task.options(**_options(asked)).enqueue(*asked.field("args", list, []), **asked.field("kwargs", dict, {}))
    return _run(asked, handle.id)


def _options(asked: ApiRequest) -> dict[str, Any]:
    given = asked.field("options", dict, {})
    strange = [name for name in given if name not in OPTIONS]
    if strange:
        raise BadParameter(f"there is no option {strange[0][:50]!r}{near(strange[0], OPTIONS)}")
    later = asked.later()
    return {**given, **({} if later is None else {"delay": later})}


def again(asked: ApiRequest) -> dict[str, Any]:
    """Enqueue the call of a run again, as a new run."""
    handle: RunHandle[Any] = asked.app.again(
        asked.params["id"], args=asked.field("args", list), kwargs=asked.field("kwargs", dict), **_options(asked)
    )
    return _run(asked, handle.id)


def retry(asked: ApiRequest) -> dict[str, Any]:
    """Send a failed, cancelled or broken run back."""
    asked.app.retry(asked.params["id"], at=asked.later())
    return _run(asked, asked.params["id"])


def cancel(asked: ApiRequest) -> dict[str, Any]:
    """Cancel a waiting run, or stop a running one."""
    if not asked.app.cancel(asked.params["id"]):
        raise BadParameter(f"the run has ended already: it is {asked.app.get(asked.params['id']).status}")
    return _run(asked, asked.params["id"])


def change_run(asked: ApiRequest) -> dict[str, Any]:
    """Move, postpone or prioritize a waiting run."""
    run_id = asked.params["id"]
    queue, priority, later = asked.field("queue", str), asked.field("priority", int), asked.later()
    if asked.app.get(run_id).status not in WAITING:
        raise BadParameter(f"the run does not wait: it is {asked.app.get(run_id).status}")
    if queue is not None:
        asked.app.move(run_id, check_queue(queue))
    if priority is not None:
        asked.app.prioritize(run_id, priority)
    if later is not None:
        asked.app.postpone(run_id, later)
    return _run(asked, run_id)


def delete_run(asked: ApiRequest) -> dict[str, Any]:
    """Delete the record of an ended run."""
    found = asked.app.get(asked.params["id"])
    if found.status not in FINAL or not asked.app.delete(found.id):
        raise BadParameter(f"the run has not ended: it is {found.status}; cancel it first")
    return {"deleted": found.id}


def begin_bulk(asked: ApiRequest) -> dict[str, Any]:
    """Act on all runs that match a filter; with `trial`, only count them."""
    options: dict[str, Any] = {}
    if asked.field("queue", str) is not None:
        options["queue"] = check_queue(asked.field("queue", str))
    if asked.field("priority", int) is not None:
        options["priority"] = asked.field("priority", int)
    if asked.later() is not None:
        options["at"] = asked.later()
    trial = bool(asked.field("trial", bool, False))
    found = asked.app.apply(asked.required("verb", str), asked.required("filter", str), trial=trial, **options)
    found.wait(1.0)
    return dict(plain(found.to_dict()))


def stop_bulk(asked: ApiRequest) -> dict[str, Any]:
    """Stop a bulk action before its next run."""
    found = there(asked.app.bulk(asked.params["id"]), "bulk", asked.params["id"])
    found.stop()
    return dict(plain(found.to_dict()))


def _job(verb: str) -> Callable[[ApiRequest], dict[str, Any]]:
    def act(asked: ApiRequest) -> dict[str, Any]:
        getattr(asked.app, verb)(asked.params["id"])
        found = there(asked.app.get_job(asked.params["id"]), "job", asked.params["id"])
        return job_data(asked.app, found, asked.app.health(found))

    return act


pause_job, resume_job, skip_job = _job("pause_job"), _job("resume_job"), _job("skip_next")


def run_job(asked: ApiRequest) -> dict[str, Any]:
    """Run a job at once."""
    return _run(asked, asked.app.run_now(asked.params["id"]).id)


def remove_job(asked: ApiRequest) -> dict[str, Any]:
    """Remove a job."""
    asked.app.remove_job(asked.params["id"], cancel_runs=bool(asked.field("cancel_runs", bool, False)))
    return {"deleted": asked.params["id"]}


def pause_queue(asked: ApiRequest) -> dict[str, Any]:
    """Pause a queue."""
    asked.app.pause_queue(asked.params["name"])
    return {"name": asked.params["name"], "paused": True}


def resume_queue(asked: ApiRequest) -> dict[str, Any]:
    """Resume a queue."""
    asked.app.resume_queue(asked.params["name"])
    return {"name": asked.params["name"], "paused": False}


def purge_queue(asked: ApiRequest) -> dict[str, Any]:
    """Cancel all waiting runs of a queue; the body must repeat its `name` to confirm."""
    if asked.required("name", str) != asked.params["name"]:
        raise BadParameter("name in the body must be the name of the queue: purging cannot be undone")
    return {"cancelled": asked.app.purge(asked.params["name"])}


def _order(verb: str) -> Callable[[ApiRequest], dict[str, Any]]:
    def act(asked: ApiRequest) -> dict[str, Any]:
        try:
            found = getattr(asked.app, verb)(asked.params["id"])
        except NodeNotFound:
            raise NoSuchThing("node", asked.params["id"]) from None
        return {"nodes": found, "within_seconds": asked.app.lease / 3}

    return act


quiet_node, resume_node, stop_node = _order("quiet_node"), _order("resume_node"), _order("stop_node")


def mark(asked: ApiRequest) -> dict[str, Any]:
    """Mark this moment in charts."""
    asked.app.mark(asked.required("text", str)[:200])
    return {"text": asked.required("text", str)[:200]}
