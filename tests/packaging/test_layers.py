"""The floor plan as a test: who may import whom. Imports inside functions and for typing count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainspring

PACKAGE = Path(mainspring.__file__).parent

LAYERS = (
    {"errors", "events", "interrupts", "locks"},
    {"core", "triggers", "clock", "plugins", "util"},
    {"codec"},
    {"jobstores", "executors"},
    {"node"},
    {"app", "schedulers", "aio", "job", "alerts"},
    {"cluster", "tasks", "tracker", "contrib", "testing", "dashboard"},
    {"cli", "__main__"},
    {"django"},
    {"django_q"},
)
"""From the bottom to the top: a room imports from its own layer and from those below it."""
NEIGHBOURS = {("jobstores", "executors"), ("executors", "jobstores"), ("schedulers", "app"), ("app", "schedulers")}
"""Rooms of one layer that must not know each other."""
PURE = {"core", "triggers", "errors", "util"}
"""What the pure core may import of mainspring (`util` holds APScheduler's names for the triggers' own helpers)."""
IMPURE_MODULES = {"threading", "socket", "asyncio", "subprocess", "multiprocessing", "time", "random", "sqlalchemy"}
IMPURE_MODULES |= {"redis", "logging", "sqlite3", "select", "signal"}


LATER = {("mainspring.app.app", "mainspring.aio")}
"""Imported when first used: `app.aio` is made of the app's own verbs, and asyncio is slow to import."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("mainspring", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports: modules as far as they are ours, else the name that was asked for."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


def room(module: str) -> str:
    """Return the top-level name that a module of ours lives under; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] == "mainspring" and room(name)}


def test_every_room_has_its_layer() -> None:
    rooms = {room(name) for name in MODULES} - {""}
    assert rooms == set().union(*LAYERS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_its_own_layer_and_below(module: str) -> None:
    rank = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    if not room(module):  # `mainspring` itself names its public classes and imports each when it is asked for
        return
    wrong = {
        name
        for name in ours(MODULES[module])
        if rank[room(name)] > rank[room(module)] or (room(module), room(name)) in NEIGHBOURS
    }
    assert not wrong, f"{module} must not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("module", sorted(name for name in MODULES if room(name) in ("core", "triggers")))
def test_the_core_is_pure(module: str) -> None:
    found = set(imports(MODULES[module]))
    # Triggers leave jitter to chance, and the start of an interval, if nobody gave one, to a clock.
    wrong = {name for name in found if room(module) == "core" and name.split(".")[0] in IMPURE_MODULES}
    wrong |= {name for name in found if name.startswith("mainspring.") and room(name) not in PURE}
    assert not wrong, f"{module} must not import {', '.join(sorted(wrong))}"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports for typing may: they do not happen when the program runs."""
    later = {name: {needed for who, needed in LATER if who == name} for name in MODULES}
    graph = {name: _at_run_time(path) & set(MODULES) - {name} - later[name] for name, path in MODULES.items()}
    while leaves := {name for name, needed in graph.items() if not needed}:
        graph = {name: needed - leaves for name, needed in graph.items() if name not in leaves}
    assert not graph, f"these import each other: {', '.join(sorted(graph))}"


def _at_run_time(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else str(node.module))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found
