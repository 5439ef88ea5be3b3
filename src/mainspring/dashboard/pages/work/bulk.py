"""Bulk actions on the selected runs, or on all that match a filter: a question with a trial, then progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from mainspring.app.insight.bulk import VERBS, Bulk
from mainspring.core.insight.wording import several
from mainspring.core.run import Status
from mainspring.core.validation import check_queue
from mainspring.dashboard.page import Action, BadParameter, Deed, Page, Question, View, there
from mainspring.dashboard.pages.work.fields import read_delay
from mainspring.errors import RunNotFound

__all__ = ["ACTIONS", "PAGE"]

TRIAL_SECONDS: Final = 1.5
"""The seconds to count before the question is shown."""
MOST_IDS: Final = 200
DELETE_UNTYPED: Final = 100
"""The number of runs above which a deletion requires typing a word."""
_TYPED: Final = "delete"


# -- what is asked for -----------------------------------------------------------------------------------------------


def _ids(values: list[str]) -> list[str]:
    ids = list(dict.fromkeys(each for each in values if each))
    if len(ids) > MOST_IDS:
        raise BadParameter(f"{len(ids)} runs are selected; select at most {MOST_IDS}, or all that match")
    return ids


def ask(verb: str, view: View) -> Question:
    """Ask, with the number of runs that would change, and of those that would not, with reasons."""
    done, text, ids = VERBS[verb].done, view.text("match"), list[str]()
    if text:
        trial = view.app.apply(verb, text, trial=True, **_placeholders(verb))
        ended = trial.wait(TRIAL_SECONDS)
        trial.stop()
        number, left, so_far = trial.changed, trial.left, "" if ended else " at least"
        limit = f"Only runs made before {view.times.text(view.now)} are touched. You can stop it between two."
        fields: dict[str, Any] = {"match": text, "ids": ""}
    else:
        ids = _ids(view.query.get("id", []))
        if not ids:
            raise BadParameter("no run is selected; tick some, or tick all that match")
        number, left = _counted(view, verb, ids)
        so_far, limit, fields = "", "", {"match": "", "ids": " ".join(ids)}
    able = f"{several(number, 'run')}{so_far}" if number else "No run"
    others = "".join(f" {_left(reason, count)}." for reason, count in left.most_common(4))
    sentence = f"{able} can be {done}.{others}"
    typed = _TYPED if verb == "delete" and (number > DELETE_UNTYPED or so_far) else ""
    title = f"{verb.capitalize()} {'all that match' if text else several(number or len(ids), 'run')}?"
    button = f"{verb.capitalize()} {number:,}{'+' if so_far else ''}" if number or so_far else ""
    if not button:
        return Question(title, sentence, "")
    return Question(
        title, sentence, button, typed, limit, "fields/bulk.html", {"verb": verb, **fields}, verb == "delete"
    )


def _left(reason: str, count: int) -> str:
    """Describe the runs that stay unchanged; `it is failed` is an example of a reason."""
    one = count == 1
    if reason.startswith("it is "):
        return f"{count:,} {'is' if one else 'are'} {reason[6:]} and {'stays as it is' if one else 'stay as they are'}"
    return f"{count:,} {'is left as it is' if one else 'are left as they are'}: {reason}"


def _placeholders(verb: str) -> dict[str, Any]:
    """Return options for a trial, which does not use them."""
    known: dict[str, Any] = {"queue": "default", "at": timedelta(0), "priority": 0}
    return {name: known[name] for name in VERBS[verb].needs}


def _counted(view: View, verb: str, ids: list[str]) -> tuple[int, Counter[str]]:
    found = view.app.runs.views(ids)
    able = [run for run in found if str(run.status) in VERBS[verb].able]
    left = Counter(f"it is {run.status}" for run in found if run not in able)
    if len(found) < len(ids):
        left["it is gone"] = len(ids) - len(found)
    return len(able), left


# -- and done --------------------------------------------------------------------------------------------------------


def do(verb: str, view: View, form: Mapping[str, str]) -> Deed:
    """Change the selected runs at once, or begin to change all matching ones."""
    options = _options(verb, form)
    text = form.get("match", "")
    if text:
        trial = view.app.apply(verb, text, trial=True, **_placeholders(verb)) if verb == "delete" else None
        if trial is not None:
            ended = trial.wait(TRIAL_SECONDS)
            trial.stop()
            if (trial.changed > DELETE_UNTYPED or not ended) and form.get("typed", "").strip() != _TYPED:
                raise BadParameter(f"nothing was done: type {_TYPED} to confirm")
        bulk = view.app.apply(verb, text, **options)
        return Deed(f"{verb.capitalize()} of all that match has begun", go=f"/bulk/{bulk.id}")
    ids = _ids(form.get("ids", "").split(" "))
    if not ids:
        raise BadParameter("no run is selected")
    act: Callable[..., Any] = getattr(view.app, verb)
    changed, left = 0, Counter[str]()
    for run_id in ids:
        try:
            if act(run_id, **options) is False:
                left["it has changed meanwhile"] += 1
            else:
                changed += 1
        except RunNotFound:
            left["it is gone"] += 1
        except ValueError:
            left["its status does not allow it"] += 1
    others = "; ".join(f"{count} left: {reason}" for reason, count in left.items())
    return Deed(f"{several(changed, 'run')} {VERBS[verb].done}{'; ' if others else ''}{others}")


def _options(verb: str, form: Mapping[str, str]) -> dict[str, Any]:
    if verb == "move":
        return {"queue": check_queue(form.get("queue", "").strip())}
    at = read_delay(form, "at") if verb == "retry" else None
    return {} if at is None else {"at": at}


ACTIONS: Final = tuple(
    Action(f"runs.{verb}", f"/runs/bulk/{verb}", partial(do, verb), partial(ask, verb))
    for verb in ("retry", "cancel", "move", "delete")
)


# -- progress --------------------------------------------------------------------------------------------------------


def _bulk(view: View) -> Bulk:
    return there(view.app.bulk(view.params["id"]), "page", f"/bulk/{view.params['id']}")


def read(view: View) -> dict[str, Any]:
    """Read the progress of the action."""
    bulk = _bulk(view)
    state = {"running": "running", "done": "succeeded", "stopped": "cancelled", "failed": "failed"}[bulk.state]
    return {"bulk": bulk, "state": state, "done": VERBS[bulk.verb].done, "pending": str(Status.PENDING)}


def ask_stop(view: View) -> Question:
    """Ask before stopping a bulk action."""
    return Question("Stop it?", f"{several(_bulk(view).changed, 'run')} are changed already and stay so.", "Stop it")


def stop(view: View, form: Mapping[str, str]) -> Deed:
    """Stop a bulk action."""
    stopped = view.app.stop_bulk(view.params["id"])
    return Deed("It stops before its next run" if stopped else "It has ended already")


PAGE = Page(
    path="/bulk/{id}",
    nav="runs",
    title="Acting on many runs",
    template="work/bulk.html",
    read=read,
    regions={"progress": None},
    actions=(Action("bulk.stop", "/bulk/{id}/stop", stop, ask_stop, weight="undo"),),
)
