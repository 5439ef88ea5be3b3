"""The reference that the site makes from the code is complete."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from mainspring import Mainspring
from tests.docs.pages import ROOT, all_pages


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = spec_from_file_location("site_reference", ROOT / "docs" / "site" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_variables_are_those_that_the_code_reads(reference: ModuleType) -> None:
    # The settings of Flask are not variables.
    paths = [path for path in (ROOT / "src").rglob("*.py") if path.name != "flask.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    read = set(re.findall(r'"(MAINSPRING_[A-Z_]+)"', source)) - {"MAINSPRING_COMPLETE"}
    assert set(reference.VARIABLES) == read


def test_every_entry_says_something(reference: ModuleType) -> None:
    for path, text in reference.pages().items():
        empty = re.findall(r"^### (\w+)\n\n```python\n[^`]*```\n\n(?=#|$)", text, re.M)
        assert empty == [], f"{path}: these have no docstring"


def test_every_option_of_a_task_is_explained(reference: ModuleType) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `.*` \| (.*) \|$", reference.tasks_page(), re.M)
    assert len(rows) > 25
    assert [name for name, said in rows if not said] == []


def test_every_verb_of_the_app_is_there(reference: ModuleType) -> None:
    page = reference.pages()["reference/app.md"]
    verbs = {name for name in dir(Mainspring) if not name.startswith("_")} - reference.INTERNAL
    assert {name for name in verbs if f"### {name}\n" not in page} == set()


def test_every_page_of_the_reference_is_in_the_navigation(reference: ModuleType) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [path for path in reference.pages() if path not in navigation] == []


def test_every_page_of_docs_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page for page in all_pages() if page != "README.md"]
    assert [page for page in pages if f" {page}\n" not in navigation] == []
