"""Find an app by its path, `module:attribute`, and the path of an app."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from mainspring.app.app import Mainspring
from mainspring.app.loading.import_guard import importing
from mainspring.core.references import variable_of
from mainspring.core.schedules.linting import LINT_LOGGER
from mainspring.errors import ConfigurationError, near

__all__ = ["find_app", "path_of", "without_lint"]


def path_of(app: Mainspring) -> str:
    """Return where another process can import an app from: the module variable that holds it."""
    path = variable_of(app)
    if path is not None:
        return path
    raise ConfigurationError(
        "worker processes import the app, so it must be a variable of a module: app = Mainspring(...)"
    )


def find_app(path: str, include: Iterable[str] = ()) -> Mainspring:
    """Import the app at `module:attribute`, `module` or `file.py`, and the modules it includes.

    Without an attribute, return the one app in the module.
    """
    app = _find_app(path)
    app.load(include)
    return app


@contextmanager
def without_lint() -> Iterator[None]:
    """Load an app without the warnings about its schedules, because another process logs them."""
    lint = logging.getLogger(LINT_LOGGER)
    level = lint.level
    lint.setLevel(logging.ERROR)
    try:
        yield
    finally:
        lint.setLevel(level)


def _find_app(path: str) -> Mainspring:
    module_name, _, attribute = path.partition(":")
    file: Path | None = None
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if module_name.endswith(".py") or os.sep in module_name:
        file = Path(module_name).resolve()
        if not file.is_file():
            others = [each.name for each in file.parent.glob("*.py")] if file.parent.is_dir() else []
            raise ConfigurationError(f"there is no file {str(file)!r} to load the app from{near(file.name, others)}")
        sys.path.insert(0, str(file.parent))
        module_name = file.stem
    try:
        with importing(module_name):
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise  # the module exists, but imports one that does not
        if Path(path).suffix in (".db", ".sqlite", ".sqlite3"):
            raise ConfigurationError(
                f"{path!r} is not a module; a database is named by its URL: sqlite:///{path}"
            ) from None
        here = [file.stem for file in Path.cwd().glob("*.py")]
        raise ConfigurationError(
            f"no module {module_name!r} can be imported from the folder {os.getcwd()!r}{near(module_name, here)}"
        ) from None
    if file is not None and Path(getattr(module, "__file__", None) or "").resolve() != file:
        raise ConfigurationError(f"the name of {str(file)!r} is taken by another module, {module!r}; rename the file")
    apps = {name: value for name, value in vars(module).items() if isinstance(value, Mainspring)}
    if attribute:
        found: Any = getattr(module, attribute, None)
        if found is None:
            raise ConfigurationError(f"module {module_name!r} has no {attribute!r}{near(attribute, apps)}")
        if not isinstance(found, Mainspring):
            raise ConfigurationError(f"{path!r} is {found!r}, not a Mainspring app")
        return found
    if not apps:
        raise ConfigurationError(f"module {module_name!r} has no app: none of its variables is a Mainspring(...)")
    if len(set(map(id, apps.values()))) != 1:
        which = ", ".join(f"{module_name}:{name}" for name in apps)
        raise ConfigurationError(f"which app of {module_name!r} is meant? it has {which}")
    return next(iter(apps.values()))
