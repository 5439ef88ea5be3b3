"""The pages of the reference, made from the code when the site is built: signatures, docstrings, help texts."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Set
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from mainspring import Mainspring, cli, errors, events
from mainspring.app.declaring.task import Options, Task
from mainspring.app.enqueuing.admission import ADMISSION_OPTIONS
from mainspring.app.handle import RunHandle
from mainspring.app.jobs import Jobs
from mainspring.core.job import Job
from mainspring.core.policy import Backoff, Policy
from mainspring.core.showing.run_view import RunError, RunStart, RunView
from mainspring.executors.current_run import CurrentRun

VARIABLES: Final = {
    "MAINSPRING_URL": "The store of an app that is made without a URL, and of commands that name no app.",
    "MAINSPRING_SECRET_KEY": "The signing key, or several separated by commas, the newest first ([keys](../keys.md)).",
    "MAINSPRING_APP": "The app that commands act on, as `MODULE:APP`, a module or a file.",
    "MAINSPRING_DASHBOARD_USERS": "The file with the accounts of the dashboard, as `--users`.",
}
"""Every variable that mainspring reads, and what it means. A test compares the names with the code."""

INTERNAL: Final = frozenset(
    {"wrapped", "report", "needs_loop", "codec", "may_import", "call_off_loop_by", "hand_over_sums", "as_task", "now"}
)
"""Public names of the app that only other parts of mainspring use."""

SECTIONS: Final = {
    "Mainspring": "Declare, call, start, stop",
    "Runs": "Runs",
    "Jobs": "Jobs and schedules",
    "Queues": "Queues",
    "Insight": "Why, and how it fares",
    "Numbers": "Figures",
    "Participation": "Declare, call, start, stop",
}
"""The heading for verbs by the class they come from; the others stand under `More`."""

MADE: Final = "\n\nThis page is made from the code.\n"


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its path in the site."""
    makers: dict[str, Callable[[], str]] = {
        "app": app_page,
        "tasks": tasks_page,
        "runs": runs_page,
        "jobs": jobs_page,
        "cli": cli_page,
        "settings": settings_page,
        "events": events_page,
        "errors": errors_page,
        "metrics": metrics_page,
    }
    return {f"reference/{name}.md": make() for name, make in makers.items()}


def app_page() -> str:
    """Return the page about the app: its constructor and every verb."""
    found: dict[str, list[str]] = {title: [] for title in [*dict.fromkeys(SECTIONS.values()), "More"]}
    for name, member in _members(Mainspring):
        if name in INTERNAL:
            continue
        home = getattr(member, "__qualname__", "Mainspring").partition(".")[0]
        found[SECTIONS.get(home, "More")].append(_entry(name, member, "app."))
    parts = [f"## {title}\n\n" + "\n\n".join(entries) for title, entries in found.items() if entries]
    return (
        f"# The app{MADE}\nEvery verb that touches the store is also a coroutine of `app.aio`.\n\n"
        f"## Mainspring\n\n{_code('Mainspring', Mainspring)}\n\n{_doc(Mainspring)}\n\n" + "\n\n".join(parts)
    )


def tasks_page() -> str:
    """Return the page about tasks and their options."""
    said = _said_of_options()
    policy = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(Policy))
    defaults = {
        **dict(_defaults(Options, leave_out={"policy", "admission"})),
        "on": "`'success'`",
        **dict(_defaults(Policy)),
        **dict.fromkeys(sorted(ADMISSION_OPTIONS), "`None`"),
    }
    rows = "\n".join(f"| `{name}` | {default} | {said.get(name, '')} |" for name, default in defaults.items())
    return (
        f"# Tasks and their options{MADE}\n`@app.task(...)` sets the options for all calls of a task, and "
        f"`task.options(...)` for one call. `@app.schedule(...)` and `app.add_job(...)` take `queue`, {policy}.\n\n"
        f"## Options\n\n| option | default | |\n|---|---|---|\n{rows}\n\n"
        f"## Backoff\n\n{_code('Backoff', Backoff)}\n\n{_doc(Backoff)}\n\n"
        f"## Task\n\n{_doc(Task)}\n\n{_verbs(Task, 'task.')}"
    )


def _said_of_options() -> dict[str, str]:
    """Return what the guides say of each option: the reference does not say it a second time."""
    said: dict[str, str] = {}
    for page in ("queue.md", "limits.md"):
        text = Path(__file__).parents[1].joinpath(page).read_text(encoding="utf-8")
        for names, last in re.findall(r"^\| (`[^|]*`) \|(?: [^|]* \|)? ([^|]*) \|$", text, re.M):
            for name in re.findall(r"`(\w+)(?:=[^`]*)?`", names):
                said.setdefault(name, re.sub(r"\]\((?=\w+\.md)", "](../", last))
    return said


def runs_page() -> str:
    """Return the page about runs: the handle, the record, and the run inside a task."""
    return (
        f"# Runs{MADE}\n## RunHandle\n\n{_doc(RunHandle)}\n\n{_verbs(RunHandle, 'handle.')}\n\n"
        f"## The record\n\n{_doc(RunView)}\n\n{_attributes(RunView)}\n\n{_verbs(RunView, 'run.')}\n\n"
        f"### RunError\n\n{_doc(RunError)}\n\n{_attributes(RunError)}\n\n"
        f"### RunStart\n\n{_doc(RunStart)}\n\n{_attributes(RunStart)}\n\n"
        f"## current_run()\n\n{_doc(CurrentRun)}\n\n{_verbs(CurrentRun, 'current_run().')}"
    )


def jobs_page() -> str:
    """Return the page about jobs."""
    return (
        f"# Jobs{MADE}\n## Job\n\n{_doc(Job)}\n\n{_code('Job', Job)}\n\n{_verbs(Job, 'job.')}\n\n"
        f"## app.jobs\n\n{_doc(Jobs)}\n\n{_verbs(Jobs, 'app.jobs.')}"
    )


def cli_page() -> str:
    """Return the page about the command line: the help text of each command."""
    settings = cli.main.context_settings
    context = click.Context(cli.main, info_name="mainspring", terminal_width=100, **settings)
    return (
        f"# Commands{MADE}\n[The command line](../cli.md) tells how to use them.\n\n"
        f"```text\n{cli.main.get_help(context)}\n```\n\n" + "\n\n".join(_commands(cli.main, context, 2))
    )


def _commands(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield f"{'#' * level} {below.command_path}\n\n```text\n{command.get_help(below)}\n```"
        if isinstance(command, click.Group):
            yield from _commands(command, below, level + 1)


def settings_page() -> str:
    """Return the page about settings: variables, the app's arguments, the options of a worker."""
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in VARIABLES.items())
    worker = cli.main.get_command(click.Context(cli.main), "worker")
    assert worker is not None
    options = "\n".join(
        f"| `{'`, `'.join((*each.opts, *each.secondary_opts))}` | {each.help or ''} |"
        for each in worker.params
        if isinstance(each, click.Option)
    )
    return (
        f"# Settings{MADE}\nAn argument goes before a variable, and a variable before the default.\n\n"
        f"## Variables\n\n| variable | |\n|---|---|\n{rows}\n\n"
        f"## Arguments of the app\n\n{_code('Mainspring', Mainspring)}\n\n{_doc(Mainspring)}\n\n"
        f"## Options of a worker\n\n| option | |\n|---|---|\n{options}\n\n"
        "## Django\n\nA project has the setting `MAINSPRING`: see [Django](../django.md).\n"
    )


def events_page() -> str:
    """Return the page about events: the codes, and what an event carries."""
    codes: dict[int, list[str]] = {}
    for name in sorted(events.__all__):
        if name.startswith("EVENT_"):
            codes.setdefault(getattr(events, name), []).append(name)
    rows = "\n".join(f"| `{'`, `'.join(names)}` | {_bits(code)} |" for code, names in sorted(codes.items()))
    kinds = [getattr(events, name) for name in events.__all__ if not name.startswith("EVENT_")]
    classes = "\n\n".join(f"### {kind.__name__}\n\n{_code(kind.__name__, kind)}\n\n{_doc(kind)}" for kind in kinds)
    return (
        f"# Events{MADE}\n`app.on(mask, callback)` and `scheduler.add_listener(callback, mask)` call a function for "
        f"each event in the mask. [The guide](../queue.md#events) says when each happens.\n\n"
        f"## Codes\n\n| code | value |\n|---|---|\n{rows}\n\n## Classes\n\n{classes}\n"
    )


def _bits(code: int) -> str:
    if code == events.EVENT_ALL:
        return "all of them"
    return " + ".join(f"2<sup>{bit}</sup>" for bit in range(code.bit_length()) if code >> bit & 1)


def errors_page() -> str:
    """Return the page about errors: the tree, and each class."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    entries = [
        f"### {kind.__name__}\n\nIs a {', '.join(f'`{base.__name__}`' for base in kind.__bases__)}.\n\n{_doc(kind)}"
        for kind in kinds
        if isinstance(kind, type)
    ]
    tree = re.search(r"```\n(.*?)```", errors.__doc__ or "", re.S)
    assert tree is not None
    return f"# Errors{MADE}\n```text\n{tree[1]}```\n\n" + "\n\n".join(entries)


def metrics_page() -> str:
    """Return the page about metrics, as an app without runs shows them."""
    metrics_text = import_module("mainspring.dashboard.asgi").metrics_text  # needs the extra `dashboard`
    with Mainspring("memory://", name="reference") as app:
        text = metrics_text(app)
    helps = dict(re.findall(r"# HELP (\S+) (.*)", text))
    kinds = dict(re.findall(r"# TYPE (\S+) (.*)", text))
    labels: dict[str, str] = {}
    for name, label in re.findall(r"^(\w+)\{(\w+)=", text, re.M):
        labels[name] = f"`{label}`"
    rows = "\n".join(f"| `{name}` | {kinds[name]} | {labels.get(name, '')} | {said} |" for name, said in helps.items())
    return (
        f"# Metrics{MADE}\n[The dashboard](../dashboard.md#for-machines) serves them for Prometheus at `/metrics`.\n\n"
        f"| metric | kind | label | |\n|---|---|---|---|\n{rows}\n"
    )


# -- pieces --------------------------------------------------------------------------------------------------------


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(cls)):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield name, member


def _verbs(cls: type, prefix: str) -> str:
    return "\n\n".join(_entry(name, member, prefix) for name, member in _members(cls))


def _entry(name: str, member: Any, prefix: str) -> str:
    shown = f"```python\n{prefix}{name}\n```" if isinstance(member, property) else _code(f"{prefix}{name}", member)
    return f"### {name}\n\n{shown}\n\n{_doc(member)}"


def _doc(thing: Any) -> str:
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")


def _attributes(cls: type) -> str:
    found = inspect.get_annotations(cls)
    rows = "\n".join(f"| `{name}` | `{_plain(kind)}` |" for name, kind in found.items() if not name.startswith("_"))
    return "| attribute | type |\n|---|---|\n" + rows


def _defaults(cls: type[msgspec.Struct], leave_out: Set[str] = frozenset()) -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(cls):
        if field.name not in leave_out:
            yield field.name, f"`{field.default!r}`"


def _plain(annotation: Any) -> str:
    """Return an annotation for a cell of a table; in backticks, a | needs no escape."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _code(name: str, thing: Any) -> str:
    """Return a signature as a block of code, on several lines if it is long."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"```python\n{name}\n```"
    parts = list(_parameters(signature))
    back = _written(signature.return_annotation)
    end = f" -> {back}" if back and not isinstance(thing, type) else ""
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) > 100:
        line = f"{name}(\n" + textwrap.indent("".join(f"{part},\n" for part in parts), "    ") + f"){end}"
    return f"```python\n{line}\n```"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "app")]
    positional = [each for each in parameters if each.kind is each.POSITIONAL_ONLY]
    starred = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
            starred = True
        kind = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        annotation = _written(each.annotation)
        text = f"{kind}{each.name}" + (f": {annotation}" if annotation else "")
        if each.default is not each.empty:
            text += f" = {each.default!r}" if annotation else f"={each.default!r}"
        yield text
        if positional and each is positional[-1]:
            yield "/"


def _written(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
