"""Import the modules that an app includes, and find forgotten modules with tasks or schedules of the app."""

from __future__ import annotations

import ast
import logging
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mainspring.app.loading.import_guard import importing
from mainspring.core.references import main_name
from mainspring.errors import ConfigurationError, near

__all__ = ["alias_main", "forgotten_modules", "import_included", "warn_of_forgotten"]

_DECLARING: Final = frozenset(["task", "schedule", "on", "middleware"])
"""The methods by which a module adds something to an app."""

MOST_FILES: Final = 2000
"""Look into at most this many files for forgotten modules, so that a start stays quick."""

log = logging.getLogger("mainspring.app")


def import_included(patterns: Iterable[str]) -> None:
    """Import modules by names and patterns such as `shop.tasks` and `shop.reports.*`."""
    for pattern in patterns:
        for name in _matching(pattern) if "*" in pattern else [pattern]:
            with importing(name):
                _import(name)


def _import(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            error.add_note(f"while importing {name!r}, which include= names")
            raise  # the module exists, but imports one that does not
        package = name.rpartition(".")[0]
        known = [] if error.name != name else [each for each, _ in _modules_below(package)]
        raise ConfigurationError(
            f"include= names the module {name!r}, but there is no module {error.name!r}{near(name, known)}"
        ) from None
    except Exception as error:
        error.add_note(f"while importing {name!r}, which include= names")
        raise


def _matching(pattern: str) -> list[str]:
    """Return the modules that match a pattern, found by their files; `*` matches any text, dots included."""
    package = pattern.partition("*")[0].rpartition(".")[0]
    if not package:
        raise ConfigurationError(f"include={pattern!r} must begin with a package, as in 'shop.*' or 'shop.*.tasks'")
    found = sorted(name for name, _ in _modules_below(package) if fnmatchcase(name, pattern))
    if not found:
        raise ConfigurationError(
            f"include={pattern!r} matches no module: is {package!r} a package, with modules in it?"
        )
    return found


def _modules_below(package: str) -> Iterator[tuple[str, str | None]]:
    """Yield the name and file of each module in a package and in the packages inside it, importing only parents."""
    try:
        spec = find_spec(package) if package else None
    except (ImportError, ValueError):
        return
    if spec is not None and spec.submodule_search_locations is not None:
        yield from _walk(f"{package}.", list(spec.submodule_search_locations))


def _walk(prefix: str, folders: list[str]) -> Iterator[tuple[str, str | None]]:
    for finder, name, is_package in pkgutil.iter_modules(folders):
        spec = finder.find_spec(prefix + name, None)
        if spec is None or name == "__main__":  # importing a program runs it
            continue
        yield prefix + name, spec.origin
        if is_package:
            yield from _walk(f"{prefix}{name}.", list(spec.submodule_search_locations or ()))


def alias_main(app: object) -> None:
    """Make modules that import the main program by its name get the running app instead of a second one."""
    main, name = sys.modules.get("__main__"), main_name()
    if main is not None and name != "__main__" and any(value is app for value in vars(main).values()):
        sys.modules.setdefault(name, main)


# -- forgotten modules -------------------------------------------------------------------------------------------------


def warn_of_forgotten(app: object) -> None:
    """Warn of modules beside an app that declare its tasks or schedules and were not imported."""
    names = forgotten_modules(app)
    if names:
        log.warning(
            "this process does not know the tasks and schedules of %s: the modules use the app and were not imported; "
            "name them in Mainspring(include=%r) or by --include",
            ", ".join(names),
            names,
        )


def forgotten_modules(app: object) -> list[str]:
    """Return the modules beside an app that declare its tasks or schedules and were not imported."""
    places = set(_places(app))
    attributes = {place.rpartition(".")[2] for place in places}
    found = []
    for number, (name, file) in enumerate(_neighbours(places)):
        if number >= MOST_FILES:
            break
        if name in sys.modules or _is_test(name) or not file or not file.endswith(".py"):
            continue
        if name.startswith("mainspring."):  # the app of a Django project is in a package of mainspring
            continue
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:  # an unreadable file must not keep the app from starting
            continue
        # Parsing is slow, so look for these words first.
        if any(word in text for word in attributes) and any(f".{verb}" in text for verb in _DECLARING):
            package = name if Path(file).name == "__init__.py" else name.rpartition(".")[0]
            if _declares(text, package, places):
                found.append(name)
    return sorted(found)


def _places(app: object) -> Iterator[str]:
    """Yield where an app can be imported from, as `module.variable`."""
    for name, module in list(sys.modules.items()):
        if name != "__mp_main__":
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is app:
                    yield f"{main_name() if name == '__main__' else name}.{attribute}"


def _neighbours(places: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the modules of the packages that hold an app, or of its folder if it is in no package."""
    modules = {place.rpartition(".")[0] for place in places}
    for top in sorted({module.partition(".")[0] for module in modules}):
        spec = getattr(sys.modules.get(top), "__spec__", None)
        if spec is not None and spec.submodule_search_locations is not None:
            yield from _walk(f"{top}.", list(spec.submodule_search_locations))
            continue
        file = getattr(sys.modules.get(top) or sys.modules["__main__"], "__file__", None)
        folder = os.path.dirname(os.path.abspath(file)) if file else ""
        if folder and os.path.basename(folder) not in ("site-packages", "dist-packages"):
            yield from _walk("", [folder])


def _is_test(name: str) -> bool:
    return any(part in ("tests", "conftest") or part.startswith("test_") for part in name.split("."))


def _declares(text: str, package: str, places: Iterable[str]) -> bool:
    """Return True if a module's source declares something on an app that is imported from one of these places."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    imported: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{module}.{alias.name}"
            if node.names[0].name == "*":
                imported |= {place.removeprefix(f"{module}."): place for place in places}
    uses = (node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr in _DECLARING)
    return any(_target(node, imported) in places for node in uses)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    parts = package.split(".")
    base = parts[: len(parts) + 1 - node.level] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _target(node: ast.expr, imported: dict[str, str]) -> str:
    """Return the `module.variable` that `name.attribute...` in a source refers to."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([imported.get(node.id, ""), *reversed(parts)]) if isinstance(node, ast.Name) else ""
