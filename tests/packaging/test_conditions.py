"""No code of ours enters a `threading.Condition`: an interrupt in its Python code would leave the lock held."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "mainspring"


def entered(source: str) -> list[int]:
    """Return the lines that enter an attribute to which a new Condition is assigned."""
    tree = ast.parse(source)
    conditions = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "threading.Condition(" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    found = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    return [each.lineno for each in found if isinstance(each, ast.Attribute) and each.attr in conditions]


def test_a_condition_that_is_entered_is_found() -> None:
    assert entered("self.c = free(threading.Condition())\nwith self.c:\n    pass\nwith self.lock:\n    pass") == [2]


def test_locks_are_entered_and_not_conditions() -> None:
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    users = {path: entered(source) for path, source in sources.items() if "threading.Condition(" in source}
    assert len(users) >= 5
    assert {path.name: lines for path, lines in users.items() if lines} == {}
