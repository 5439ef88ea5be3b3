"""A plugin of pytest: whoever imports `django_q` gets `mainspring.django_q`, except for django-q2's own tests.

Their modules import functions of django-q's engine that are not there. Such a name is something that fails when it is
used, so that the tests which do not use it can run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import distribution
from types import ModuleType
from typing import Any

import pytest

FOLDER = str(distribution("django-q2").locate_file("django_q"))


class Absent:
    """A name of django-q's engine."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self._name} is the inside of django-q")


class InPlace(MetaPathFinder, Loader):
    """Finds `mainspring.django_q` under the name `django_q`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "django_q":
            spec = ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [FOLDER]
            return spec
        if name.startswith(("django_q.tests", "django_q.humanhash")):  # the words are what the tests work with
            return PathFinder.find_spec(name, path)
        return ModuleSpec(name, self) if name.startswith("django_q.") else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "django_q":
            return
        try:
            found = importlib.import_module(f"mainspring.{module.__name__}")
        except ModuleNotFoundError as error:
            if error.name != f"mainspring.{module.__name__}":
                raise
            found = module
        if not hasattr(found, "__getattr__"):
            found.__getattr__ = lambda name: _absent(found, name)  # type: ignore[method-assign]
        sys.modules[module.__name__] = found


def _absent(module: ModuleType, name: str) -> Absent:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent(f"{module.__name__}.{name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the database: it is the broker here, where theirs is Redis."""
    # A module of theirs puts its folder there, in which `tests` is another package than ours.
    sys.path[:] = [path for path in sys.path if not path.endswith("/../")]
    for item in items:
        item.add_marker(pytest.mark.django_db)


sys.meta_path.insert(0, InPlace())
