"""A run: the explanation of its state, its history, error, arguments, log and result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from mainspring.core.insight.flows import flow_key, is_part
from mainspring.core.insight.story import Episode, story_of
from mainspring.core.insight.wording import several
from mainspring.core.instants import SECOND, to_us
from mainspring.core.policy import kind_name
from mainspring.core.run import FINAL, Status
from mainspring.core.showing.failures import key_of, place_of
from mainspring.core.showing.redaction import masked
from mainspring.core.showing.run_view import RunError, RunView
from mainspring.core.showing.searching import function_of
from mainspring.core.validation import check_queue
from mainspring.dashboard.history import RANGES
from mainspring.dashboard.looks.ribbon import legend, ribbon, running_seconds
from mainspring.dashboard.looks.rows import RETRYABLE, progress_of, run_row
from mainspring.dashboard.looks.tracebacks import trace_lines
from mainspring.dashboard.looks.values import arguments_text, pretty, shown_arguments
from mainspring.dashboard.page import Action, BadParameter, Deed, Page, Question, View
from mainspring.dashboard.pages.schedules.job import policy_words
from mainspring.dashboard.pages.work.fields import read_delay, read_priority, run_of

__all__ = ["PAGE"]

TRACE_CHARS: Final = 64 * 1024
RESULT_CHARS: Final = 64 * 1024
LOG_LINES_SHOWN: Final = 300
LOG_LINES_KEPT: Final = 1000
_LOG_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d )?(\d\d:\d\d:\d\d[,.]?\d*) ([A-Z]+) (\S+): (.*)", re.DOTALL)
_LEVELS: Final = {"WARNING": "w", "ERROR": "e", "CRITICAL": "e"}


class LogLine(NamedTuple):
    """One line of a run's log, split into its parts if possible."""

    time: str
    level: str
    cls: str
    text: str


def _found(view: View) -> RunView:
    return run_of(view, view.params["id"])


def read(view: View) -> dict[str, Any]:
    """Read the run once, for all regions."""
    run = _found(view)
    row = run_row(view.app, run, view.now)
    flow = flow_key(run.record) if is_part(run.record) else ""
    return {"run": run, "row": row, "title": f"{row.name}, {row.kind}", "ended": run.status in FINAL, "flow": flow}


def why(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Explain the run; for a waiting one, say when it should start."""
    run: RunView = data["run"]
    told = view.explain(run, run=run.record)
    eta = view.app.eta(run) if run.status is Status.RUNNING or data["row"].kind == "waiting" else None
    return {"told": told, "eta": eta, "error_url": _group_url(view, run)}


def _group_url(view: View, run: RunView) -> str:
    if not run.errors:
        return ""
    last = run.errors[-1]
    age = timedelta(microseconds=max(0, view.now - to_us(last.at)))
    since = next((name for name, each in RANGES.items() if age < each.length), "30d")
    return view.url(f"/errors/{key_of(last.type, place_of(last.traceback))}", since=since)


def timeline(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show the history of the run, drawn and in words."""
    run: RunView = data["run"]
    story = story_of(run.record, view.now, view.app.timezone)
    now = view.times.local(view.now)
    whole = ((run.finished_at or now) - run.created_at).total_seconds()
    return {
        "story": [(each, _episode_mark(each), *_parted(each)) for each in story],
        "ribbon": ribbon(story, view.times),
        "note": _lasted(view, whole, running_seconds(story, now), data["ended"]),
        "legend": legend(story),
    }


def _lasted(view: View, whole: float, running: float, ended: bool) -> str:
    text = f"{view.times.seconds(whole)}{'' if ended else ' so far'}"
    return f"{text}, of which {view.times.seconds(running)} running" if running and running < whole else text


def _parted(episode: Episode) -> tuple[str, str, str]:
    """Return the text of an episode in three parts: the first is bold, the last goes below."""
    text = episode.text[:1].upper() + episode.text[1:]
    if episode.kind == "start" and episode.number is not None:
        bold, where = f"Start {episode.number}", f" on {episode.node}" if episode.node else ""
        how, _, length = text.removeprefix(f"{bold}{where}: ").rpartition(", ")
        return bold, f"{where}, {length}" if how else where, "" if how == "runs" else how or length
    if episode.kind == "wait" and ", " in text:
        words, _, length = text.rpartition(", ")
        return length, f" {words[:1].lower()}{words[1:]}".replace(" backs off", " backing off"), ""
    return text, "", ""


def _episode_mark(episode: Episode) -> str:
    if episode.kind != "start":
        return {"end": "cancelled", "gap": ""}.get(episode.kind, "")
    text = episode.text
    if "succeeded" in text:
        return "succeeded"
    if "fell silent" in text or "stopped" in text or "process died" in text:
        return "missed"
    return "running" if episode.until is None else "cancelled" if "cancelled" in text else "failed"


def error(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show the error of one start: the last, or the one that the URL names."""
    run: RunView = data["run"]
    if not run.errors:
        return {"failure": None}
    wanted = view.number("start", run.errors[-1].attempt, 0, 10**9)
    failure: RunError = next((each for each in run.errors if each.attempt == wanted), run.errors[-1])
    same = sum(place_of(each.traceback) == place_of(failure.traceback) for each in run.errors)
    return {
        "failure": failure,
        "tabs": [each.attempt for each in run.errors],
        "trace": trace_lines(failure.traceback, failure.type, failure.message),
        "whole": failure.traceback[:TRACE_CHARS],
        "same": same,
        "error_url": _group_url(view, run),
    }


def values(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show arguments, progress, data and result, with secrets hidden."""
    run: RunView = data["run"]
    func = function_of(view.app.runs, run)
    shown = masked((), {"result": run.result, "data": run.data})[1]
    result = None if run.status is not Status.SUCCEEDED else _pretty(shown["result"])
    return {
        "arguments": shown_arguments(run.args, run.kwargs, func),
        "arguments_line": arguments_text(run.args, run.kwargs, func),
        "progress": progress_of(run),
        "document": shown["data"],
        "result": None if result is None else result[:RESULT_CHARS],
        "result_cut": result is not None and len(result) > RESULT_CHARS,
    }


def _pretty(value: Any) -> str:
    try:
        return pretty(value, 100)
    except Exception as error:  # a user's class may do anything
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def log(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show the last lines of the run's log."""
    run: RunView = data["run"]
    level = view.choice("level", ("all", "warning"), "all")
    lines = [_log_line(line) for line in run.log]
    chosen = lines if level == "all" else [line for line in lines if line.cls]
    most = len(chosen) if view.choice("log", ("all", "last"), "last") == "all" else LOG_LINES_SHOWN
    dropped = len(run.log) >= LOG_LINES_KEPT
    return {
        "lines": chosen[-most:],
        "number": len(lines),
        "level": level,
        "dropped": dropped,
        "more": len(chosen) > most,
    }


def _log_line(line: str) -> LogLine:
    found = _LOG_LINE.fullmatch(line)
    if found is None:
        return LogLine("", "", "", line)
    return LogLine(found[2].replace(",", "."), found[3].lower(), _LEVELS.get(found[3], ""), found[5])


def policy(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show the policy in words, and the people who have changed the run."""
    run: RunView = data["run"]
    acts = view.app.acts.acts_on("run", run.id, 5)
    return {"policy": list(_policy(run, view)), "acts": acts}


def _policy(run: RunView, view: View) -> Sequence[tuple[str, str]]:
    found = run.policy
    pairs = [("Priority", str(run.priority)), *policy_words(found)]
    if found.retry_on:
        pairs.append(("Retried on", ", ".join(map(kind_name, found.retry_on))))
    if found.give_up_on:
        pairs.append(("Gives up on", ", ".join(map(kind_name, found.give_up_on))))
    if found.isolation:
        pairs.append(("Runs in", "a process of its own"))
    if found.retention is not None:
        pairs.append(("Kept for", view.times.seconds(found.retention)))
    pairs += [(name, value) for name, value in (("Group", run.group), ("Unique", run.unique)) if value]
    return pairs


# -- actions -------------------------------------------------------------------------------------------------------


def _name(run: RunView) -> str:
    return run.task.rpartition(":")[2] or run.id


def ask_retry(view: View) -> Question:
    """Ask when to send a run back."""
    run = _found(view)
    retries = several(run.policy.retries, "retry", "retries")
    text = f"It goes back to the queue {run.queue}, keeps its id, and has {retries} again."
    return Question(
        f"Retry {_name(run)}?",
        text,
        "Retry it",
        template="fields/bulk.html",
        fields={"verb": "retry", "match": "", "ids": ""},
    )


def retry(view: View, form: Mapping[str, str]) -> Deed:
    """Send a run back, at once or later."""
    run = _found(view)
    if run.status not in RETRYABLE:
        raise BadParameter(_overtaken(view, run, "retry", "retried"))
    view.app.retry(run.id, at=read_delay(form, "at"))
    return Deed(f"{_name(run)} was sent back", link=view.of("run", run.id), undo=view.act("run.cancel", id=run.id).url)


def _overtaken(view: View, run: RunView, verb: str, done: str) -> str:
    """Say why a run cannot be changed any more: another person was faster, or the run has moved on."""
    kind = run_row(view.app, run, view.now).kind
    acts = view.app.acts.acts_on("run", run.id, 5)
    act = next((each for each in acts if each.verb == verb), None)
    if act is None:
        return f"{_name(run)} is {kind} by now, so it cannot be {done}"
    return f"{_name(run)} was already {done} by {act.by}, {view.times.text(to_us(act.at))}; it is {kind} now"


def ask_cancel(view: View) -> Question:
    """Ask before cancelling a run."""
    run = _found(view)
    text = "It is stopped as soon as its code lets it." if run.status is Status.RUNNING else "It will not start."
    return Question(f"Cancel {_name(run)}?", text, "Cancel it", bad=True)


def cancel(view: View, form: Mapping[str, str]) -> Deed:
    """Cancel a waiting run, or stop a running one."""
    run = _found(view)
    if not view.app.cancel(run.id):
        raise BadParameter(_overtaken(view, _found(view), "cancel", "cancelled"))
    if run.status is Status.RUNNING:
        return Deed(f"{_name(run)} is being stopped", link=view.of("run", run.id))
    return Deed(f"{_name(run)} was cancelled", link=view.of("run", run.id), undo=view.act("run.retry", id=run.id).url)


def ask_delete(view: View) -> Question:
    """Ask before deleting a record."""
    run = _found(view)
    return Question(f"Delete {_name(run)}?", "Its record, error and log are gone for good.", "Delete it", bad=True)


def delete(view: View, form: Mapping[str, str]) -> Deed:
    """Delete the record of an ended run."""
    run = _found(view)
    if not view.app.delete(run.id):
        raise BadParameter(f"{_name(run)} has not ended, so it cannot be deleted; cancel it first")
    return Deed(f"{_name(run)} was deleted", go="/runs")


def ask_change(view: View) -> Question:
    """Ask for the queue, time and priority of a waiting run."""
    run = _found(view)
    fields = {"queue": run.queue, "priority": run.priority}
    text = "It waits. Change what you like; what you leave stays as it is."
    return Question(f"Change {_name(run)}?", text, "Change it", template="fields/run.html", fields=fields)


def change(view: View, form: Mapping[str, str]) -> Deed:
    """Move, postpone or prioritize a waiting run."""
    run = _found(view)
    queue, priority, at = form.get("queue", "").strip(), read_priority(form), read_delay(form, "at")
    done = []
    if queue and queue != run.queue:
        view.app.move(run.id, check_queue(queue))
        done.append(f"moved to {queue}")
    if priority is not None and priority != run.priority:
        view.app.prioritize(run.id, priority)
        done.append(f"given priority {priority}")
    if at is not None:
        view.app.postpone(run.id, at)
        done.append(f"set for {view.times.text(view.now + int(at.total_seconds() * SECOND))}")
    return Deed(f"{_name(run)} was {' and '.join(done)}" if done else "Nothing was changed")


_ID: Final = "/runs/{id:path}"
PAGE = Page(
    path=_ID,
    nav="runs",
    title="Run",
    template="work/run.html",
    read=read,
    regions={
        "head": None,
        "why": why,
        "ribbon": timeline,
        "error": error,
        "values": values,
        "log": log,
        "story": timeline,
        "policy": policy,
    },
    actions=(
        Action("run.retry", f"{_ID}/retry", retry, ask_retry, weight="undo"),
        Action("run.later", f"{_ID}/retry-later", retry, ask_retry),
        Action("run.cancel", f"{_ID}/cancel", cancel, ask_cancel, weight="undo"),
        Action("run.delete", f"{_ID}/delete", delete, ask_delete),
        Action("run.change", f"{_ID}/change", change, ask_change),
    ),
)
