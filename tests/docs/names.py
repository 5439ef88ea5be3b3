"""Check the names that a piece of code takes from mainspring, without executing it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

from mainspring import Mainspring
from mainspring.aio import AsyncFace
from mainspring.app.declaring.task import Options
from mainspring.app.enqueuing.admission import ADMISSION_OPTIONS
from mainspring.app.handle import RunHandle
from mainspring.core.showing.run_view import RunView
from mainspring.core.validation import POLICY_FIELDS
from mainspring.core.waiting.followups import FinishedRun
from mainspring.executors.current_run import CurrentRun
from mainspring.schedulers.base import BaseScheduler
from mainspring.testing import Kit

KNOWN: Final[dict[str, tuple[type, ...]]] = {
    "app": (Mainspring,),
    "scheduler": (BaseScheduler,),
    "handle": (RunHandle,),
    "kit": (Kit,),
    "mainspring_kit": (Kit,),
    "run": (RunView, CurrentRun, FinishedRun),
}
"""What a variable of this name is in every page, unless a block makes something else of it."""
OTHER_APPS: Final = re.compile(r"\bapp(: \w+)? = (?!Mainspring\(|app\b)")

PARTS: Final = {"aio": AsyncFace}
TASK_OPTIONS: Final = frozenset({*Options.__struct_fields__, *POLICY_FIELDS, *ADMISSION_OPTIONS, "on"})


def complaints(text: str, first_line: int = 1) -> Iterator[str]:
    """Yield what is wrong with a block: it does not compile, or a name does not exist."""
    try:
        tree = ast.parse(text)
        compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        yield f"line {first_line + (error.lineno or 1)}: {error.msg}"
        return
    foreign = OTHER_APPS.search(text) is not None  # Flask's, for example
    for node in ast.walk(tree):
        said: str | None = None
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mainspring"):
            said = _import_from(node)
        elif isinstance(node, ast.Import):
            said = next(filter(None, (_module(each.name) for each in node.names)), None)
        elif isinstance(node, ast.Attribute) and not foreign:
            said = _attribute(node)
        elif isinstance(node, ast.Call) and not foreign:
            said = _keywords(node)
        if said:
            yield f"line {first_line + getattr(node, 'lineno', 1)}: {said}"


def _module(name: str) -> str | None:
    if not name.startswith("mainspring"):
        return None
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return str(error)
    return None


def _import_from(node: ast.ImportFrom) -> str | None:
    module = node.module or ""
    if module.startswith(("mainspring.django.", "mainspring.django_q.")):
        return None  # they need a Django project; tests/django imports them in one
    if said := _module(module):
        return said
    found = importlib.import_module(module)
    for each in node.names:
        if not hasattr(found, each.name) and _module(f"{module}.{each.name}"):
            return f"{module} has no {each.name}"
    return None


def _attribute(node: ast.Attribute) -> str | None:
    base = node.value
    if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.value.id == "app":
        part = PARTS.get(base.attr)
        return None if part is None or _has(part, node.attr) else f"app.{base.attr} has no {node.attr}"
    if not isinstance(base, ast.Name) or base.id not in KNOWN:
        return None
    if any(_has(kind, node.attr) for kind in KNOWN[base.id]):
        return None
    return f"{base.id} has no {node.attr}"


def _has(kind: type, name: str) -> bool:
    if hasattr(kind, name) or name in inspect.get_annotations(kind):
        return True
    source = inspect.getsource(kind)
    return f"self.{name} =" in source or f"self.{name}:" in source or f"self.{name}," in source


def _keywords(node: ast.Call) -> str | None:
    """Check the keywords of verbs of the app whose signature names them all."""
    func = node.func
    if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "app"):
        return None
    verb: Any = getattr(Mainspring, func.attr, None)
    if not callable(verb):
        return None
    parameters = inspect.signature(verb).parameters
    if func.attr == "task":
        known = {*parameters, *TASK_OPTIONS}
    elif any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    else:
        known = set(parameters)
    wrong = [each.arg for each in node.keywords if each.arg is not None and each.arg not in known]
    return f"app.{func.attr} has no argument {wrong[0]!r}" if wrong else None
