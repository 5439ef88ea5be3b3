"""The form to enqueue a task, or to run a call again with changes: fields for the function's parameters, else JSON."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mainspring.app.declaring.task import Task
from mainspring.core.quantities import read_value
from mainspring.core.references import parameters_of
from mainspring.core.showing.redaction import Secret, is_secret_name, masked
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import function_of
from mainspring.core.validation import check_queue
from mainspring.dashboard.looks.values import argument_names
from mainspring.dashboard.page import Action, BadParameter, Deed, Page, Question, View
from mainspring.dashboard.pages.work.fields import read_delay, read_priority, run_of
from mainspring.errors import near

__all__ = ["PAGE"]

MOST_TASKS: Final = 500
MOST_VALUE_CHARS: Final = 100_000
_SIMPLE: Final = (str, int, float, bool, type(None))


class FormField(NamedTuple):
    """One parameter: its name, the content of its field, and a remark about it."""

    name: str
    kind: str
    value: str
    hint: str
    required: bool
    secret: bool


# -- the form --------------------------------------------------------------------------------------------------------


def read(view: View) -> dict[str, Any]:
    """Read the task or run of the form, and its parameters."""
    again, wanted = view.text("again", most=600), view.text("task", most=300)
    run = run_of(view, again) if again else None
    names = sorted(task.name for task in view.tasks)[:MOST_TASKS]
    task = _task(view, run.task if run is not None else wanted) if run is not None or wanted else None
    if run is None and wanted and task is None:
        raise BadParameter(f"this app has no task {wanted[:100]!r}{near(wanted, names)}")
    fields, rest = _fields(view, task, run)
    return {
        "names": names,
        "task": task,
        "task_name": run.task if run is not None else task.name if task is not None else "",
        "run": run,
        "fields": fields,
        "rest": rest,
        "queue": run.queue if run is not None else task.defaults.queue if task is not None else "",
        "priority": run.priority if run is not None else task.defaults.policy.priority if task is not None else 0,
        "about": (inspect.getdoc(task.func) or "").partition("\n\n")[0] if task is not None else "",
        "link": view.act("run.enqueue"),
        "title": "Run again" if run is not None else "Enqueue a task",
    }


def _task(view: View, name: str) -> Task[..., Any] | None:
    found: Task[..., Any] | None = view.app.tasks.get(name)
    if found is not None:
        return found
    alike = [task for task in view.app.tasks if task.name.rpartition(":")[2] == name]
    return alike[0] if len(alike) == 1 else None


def _fields(view: View, task: Task[..., Any] | None, run: RunView | None) -> tuple[list[FormField], str]:
    """Return a field for each parameter, and the other keyword arguments as JSON."""
    given = {} if run is None else _arguments(run, function_of(view.app.runs, run))
    if task is None:
        return [], _as_json(given)
    fields = []
    for each in parameters_of(task.func).values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        secret = is_secret_name(each.name)
        value = given.pop(each.name, each.default if run is None and each.default is not each.empty else _NOTHING)
        shown = "" if secret or value is _NOTHING else _typed_text(value)
        kind = _kind(each.annotation)
        hint = kind or "JSON, or text"
        if secret and run is not None:
            hint = "hidden; leave it empty to keep it"
        fields.append(FormField(each.name, kind, shown, hint, each.default is each.empty and run is None, secret))
    return fields, _as_json(given)


_NOTHING: Final = object()


def _arguments(run: RunView, func: Any) -> dict[str, Any]:
    args, kwargs = masked(run.args, run.kwargs, func)
    return {**dict(zip(argument_names(func, len(args)), args, strict=True)), **kwargs}


def _kind(annotation: Any) -> str:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return "" if annotation is inspect.Parameter.empty else str(name)[:60]


def _typed_text(value: Any) -> str:
    """Return a value as a person would type it: text unchanged if it reads back as text, everything else as JSON."""
    if isinstance(value, Secret):
        return ""
    if isinstance(value, str):
        return value if read_value(value) == value else json.dumps(value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return ""


def _as_json(values: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in values.items() if isinstance(value, (*_SIMPLE, list, dict, tuple))}
    try:
        return json.dumps(shown, ensure_ascii=False) if shown else ""
    except (TypeError, ValueError):
        return ""


# -- what is sent ----------------------------------------------------------------------------------------------------


def ask(view: View) -> Question:
    """Ask on a separate page if the visitor comes here without the form."""
    return Question("Enqueue a task?", "Choose the task on the form.", "Enqueue it")


def enqueue(view: View, form: Mapping[str, str]) -> Deed:
    """Enqueue a call of a task, or the call of a run once more."""
    options = _options(form)
    again = form.get("again", "")
    if again:
        handle = _again(view, again, form, options)
    else:
        task = _task(view, form.get("task", ""))
        if task is None:
            raise BadParameter(f"this app has no task {form.get('task', '')[:100]!r}")
        handle = task.options(**options).enqueue(**_values(form))
    return Deed(f"{handle.id} was enqueued", link=view.of("run", handle.id), go=view.path_of("run", handle.id))


def _again(view: View, run_id: str, form: Mapping[str, str], options: dict[str, Any]) -> Any:
    run = run_of(view, run_id)
    func = function_of(view.app.runs, run)
    names = list(parameters_of(func))
    kept = {names[number]: value for number, value in enumerate(run.args) if number < len(names)} | dict(run.kwargs)
    given = _values(form)
    if len(run.args) > len(names):  # the names of positional arguments are unknown here
        if given:
            raise BadParameter("the function is not known here, so its arguments cannot be changed")
        return view.app.again(run_id, **options)
    for name in list(given):
        # The visitor did not change this field: keep the run's value, whose type a form cannot show.
        if name in kept and form.get(f"arg.{name}") == _typed_text(_arguments(run, func).get(name)):
            given[name] = kept[name]
    return view.app.again(run_id, args=(), kwargs={**kept, **given}, **options)


def _values(form: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in form.items():
        if name.startswith("arg.") and (text != "" or form.get(f"empty.{name[4:]}")):
            if len(text) > MOST_VALUE_CHARS:
                raise BadParameter(f"{name[4:]} has {len(text):,} characters; {MOST_VALUE_CHARS:,} are the most")
            values[name[4:]] = read_value(text)
    more = form.get("rest", "").strip()
    if more:
        found = read_value(more)
        if not isinstance(found, dict) or not all(re.fullmatch(r"[^\W\d]\w*", name) for name in found):
            raise BadParameter('further arguments are one JSON object, such as {"width": 200}')
        values |= found
    return values


def _options(form: Mapping[str, str]) -> dict[str, Any]:
    queue = form.get("queue", "").strip()
    options = {
        "queue": check_queue(queue) if queue else None,
        "delay": read_delay(form, "delay"),
        "priority": read_priority(form),
    }
    return {name: value for name, value in options.items() if value is not None}


PAGE = Page(
    path="/runs/new",
    nav="runs",
    title="Enqueue a task",
    template="work/run_form.html",
    read=read,
    actions=(Action("run.enqueue", "/runs/new/enqueue", enqueue, ask, weight="undo"),),
)
