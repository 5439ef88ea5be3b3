"""Front ends whose framework is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.errors import install_command
from tests.schedulers.kit import Program


@pytest.mark.parametrize("name", ["gevent", "tornado", "twisted"])
def test_a_framework_that_is_missing_is_named_with_its_extra(tmp_path: Path, name: str) -> None:
    out = Program(
        tmp_path,
        f"""
        import sys
        sys.modules["{name}"] = None
        try:
            import mainspring.schedulers.{name}
        except ModuleNotFoundError as error:
            print(error)
        """,
    ).run()
    assert f"Scheduler needs {name}: {install_command(name)}" in out


def test_a_missing_qt_is_named_with_its_extra(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import sys
        for name in ("PySide6", "PyQt6", "PySide2", "PyQt5"):
            sys.modules[name] = None
        from mainspring.schedulers.qt import QtScheduler
        try:
            QtScheduler()
        except ImportError as error:
            print(error)
        """,
    ).run()
    assert install_command("qt") in out
